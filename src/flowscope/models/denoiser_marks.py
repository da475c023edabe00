"""What tells one denoiser from another: its weights, its decoder's, its schedule."""

import uuid
from typing import Any

from flowscope.models.denoiser import Denoiser
from flowscope.models.loading import weight_hash
from flowscope.records import Unavailable, library_versions

__all__ = ["denoiser_marks"]


def denoiser_marks(denoiser: Denoiser) -> dict[str, Any]:
    """What decides the numbers of a run, of the model and of the libraries."""
    decoder, weights = denoiser.decoder, denoiser.loaded.weight_hash
    if isinstance(weights, Unavailable):  # off-loaded or quantised: nothing tells such models apart
        weights = uuid.uuid4().hex
    return {
        "weights": weights,
        "decoder": "" if isinstance(decoder, Unavailable) else str(weight_hash(decoder)),
        "schedule": {k: str(v) for k, v in denoiser.schedule.items()},
        "config": _settings(denoiser.loaded.model),
        "decoder_config": {} if isinstance(decoder, Unavailable) else _settings(decoder),
        "shape": [*denoiser.shape, denoiser.learned_variance],
        "versions": {name: str(version) for name, version in library_versions().items()},
    }


def _settings(module: Any) -> dict[str, str]:
    """The configuration of a model: equal weights under another one give other numbers."""
    config: Any = getattr(module, "config", {})
    known = config if hasattr(config, "items") else vars(config)
    return {str(k): str(v) for k, v in known.items() if not str(k).startswith("_")}
