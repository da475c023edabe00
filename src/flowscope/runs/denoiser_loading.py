"""A diffusion model as a command's settings ask for it."""

from pathlib import Path
from typing import Any

from flowscope.runs.config import ImageConfig, SyncConfig
from flowscope.runs.dtypes import named_dtype
from flowscope.runs.loading import Loaded, load

__all__ = ["loaded_denoiser"]


def loaded_denoiser(source: Any, config: SyncConfig | ImageConfig) -> Loaded:
    """The model of a folder, an id or in memory; in single precision on a processor."""
    if isinstance(source, Loaded):
        return source
    if not isinstance(source, (str, Path)):
        return load(source)
    return load(
        source,
        device=config.device,
        dtype=named_dtype(config.dtype, config.device),
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
    )
