"""What tells one denoiser from another: its weights, its decoder's, its schedule."""

from typing import Any

from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.models.loading import weight_hash
from flowscope.models.marks import configuration_marks, model_marks
from flowscope.records import Unavailable, library_versions

__all__ = ["denoiser_marks"]


def denoiser_marks(denoiser: Denoiser) -> dict[str, Any]:
    """What decides the numbers of a run, of the model and of the libraries."""
    decoder = denoiser.decoder
    return {
        **model_marks(denoiser.loaded),
        "decoder": "" if isinstance(decoder, Unavailable) else str(weight_hash(decoder)),
        "schedule": {k: str(v) for k, v in denoiser.schedule.items()},
        "decoder_config": {} if isinstance(decoder, Unavailable) else configuration_marks(decoder),
        "shape": [*denoiser.shape, denoiser.learned_variance],
        "versions": {name: str(version) for name, version in library_versions().items()},
    }
