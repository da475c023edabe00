"""A diffusion model as a command's settings ask for it."""

from pathlib import Path
from typing import Any

import torch

from flowscope.runs.config import ImageConfig, SyncConfig
from flowscope.runs.loading import Loaded, load

__all__ = ["loaded_denoiser"]


def loaded_denoiser(source: Any, config: SyncConfig | ImageConfig) -> Loaded:
    """The model of a folder, an id or in memory; in single precision on a processor."""
    if isinstance(source, Loaded):
        return source
    if not isinstance(source, (str, Path)):
        return load(source)
    on_cpu = config.device in (None, "cpu")
    dtype = getattr(torch, config.dtype) if config.dtype else torch.float32 if on_cpu else None
    return load(
        source,
        device=config.device,
        dtype=dtype,
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
    )
