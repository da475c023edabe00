"""Studies: the sources' experiments, one YAML each, shipped with the package."""

import difflib
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from flowscope.errors import InvalidInputError
from flowscope.runs.config import AuditConfig, Config, HeadsConfig, ImageConfig, SyncConfig

__all__ = [
    "DiffusionAttention",
    "SynchronizationGap",
    "TrackI",
    "TrackT",
    "studies",
    "study_file",
]

_CHECKOUT = Path(__file__).parents[3] / "studies"


class TrackT(Config):
    """What ``flowscope reproduce track_t`` takes.

    ``audit`` holds fields of `AuditConfig`. ``refinements`` are the n of the identification check,
    read on ``refined_prompts`` prompts, ``refined_positions`` tokens of each, in ``refined_rank``
    coordinates; ``output_temperatures`` are swept for mobility and calibration.
    """

    study: str = "track_t"
    title: str = ""
    audit: AuditConfig = AuditConfig.model_validate({})
    refinements: tuple[int, ...] = Field((1, 2, 4, 8), min_length=3)
    refined_prompts: int = Field(16, ge=5)
    refined_positions: int = Field(16, ge=1)
    refined_rank: int = Field(16, ge=2)
    output_temperatures: tuple[float, ...] = (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)


class DiffusionAttention(Config):
    """What ``flowscope reproduce diffusion_attention`` takes.

    ``heads`` holds fields of `HeadsConfig`. The identities are checked in float64 on the logits of
    every head, on ``identity_prompts`` prompts, ``identity_tokens`` of each, with ``sweeps``
    normalisations of the bistochastic kernels and the magnetic ``charge``.
    """

    study: str = "diffusion_attention"
    title: str = ""
    heads: HeadsConfig = HeadsConfig.model_validate({})
    identity_prompts: int = Field(4, ge=1)
    identity_tokens: int = Field(32, ge=3)
    sweeps: int = Field(50, ge=1)
    charge: float = Field(0.05, allow_inf_nan=False)


class SynchronizationGap(Config):
    """What ``flowscope reproduce synchronization_gap`` takes: fields of `SyncConfig`."""

    study: str = "synchronization_gap"
    title: str = ""
    sync: SyncConfig = SyncConfig.model_validate({})


class TrackI(Config):
    """What ``flowscope reproduce track_i`` takes: fields of `ImageConfig`."""

    study: str = "track_i"
    title: str = ""
    image: ImageConfig = ImageConfig.model_validate({})


def _folder() -> Path:
    """Inside an installed package, or beside the source of a checkout."""
    packaged = Path(str(files("flowscope"))) / "studies"
    return packaged if packaged.is_dir() else _CHECKOUT


def studies() -> tuple[str, ...]:
    """Names of the studies that ship with flowscope."""
    return tuple(sorted(file.stem for file in _folder().glob("*.yaml")))


def study_file(name: str) -> Path:
    """The YAML of a study.

    Raises
    ------
    InvalidInputError
        When there is none of that name; the nearest is suggested.
    """
    known = studies()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(known)}."
        raise InvalidInputError(f"No study is named {name!r}.{hint}")
    return _folder() / f"{name}.yaml"
