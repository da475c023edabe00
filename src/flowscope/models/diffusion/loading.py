"""A diffusion model as a command's settings ask for it."""

from pathlib import Path
from typing import Any, Protocol

from flowscope.models.dtypes import named_dtype
from flowscope.models.loading import Loaded, load

__all__ = ["LoadSettings", "loaded_denoiser"]


class LoadSettings(Protocol):
    """Settings of an instrument that say where and how a model is loaded."""

    @property
    def device(self) -> str | None:
        """Device of the model; None for the CPU."""

    @property
    def dtype(self) -> str | None:
        """Name of the precision; None for the default of the device."""

    @property
    def revision(self) -> str | None:
        """Branch, tag or commit of a hub id."""

    @property
    def trust_remote_code(self) -> bool:
        """Whether Python code beside the weights may run."""


def loaded_denoiser(source: Any, settings: LoadSettings) -> Loaded:
    """The model of a folder, an id or in memory; in single precision on a CPU."""
    if isinstance(source, Loaded):
        return source
    if not isinstance(source, (str, Path)):
        return load(source)
    return load(
        source,
        device=settings.device,
        dtype=named_dtype(settings.dtype, settings.device),
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
    )
