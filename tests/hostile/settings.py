"""Every number among the settings of every command at 0, 1, −1, 10¹² and, for floats, NaN and ∞."""

import typing
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from flowscope.lab.config import Config
from flowscope.lab.registry import instruments, studies
from flowscope.models.config import DoctorConfig

__all__ = ["SMALL", "setting_values"]

_WHOLE = ("0", "1", "-1", "1000000000000")
_REAL = (*_WHOLE[:3], "1.0e+12", ".nan", ".inf")
SMALL: dict[str, list[str]] = {
    "audit": ["tokens=8", "resamples=4", "batch=2", "control_prompts=2"],
    "heads": [
        "tokens=8", "resamples=4", "batch=2", "control_prompts=2", "metric=[]", "exact=[]",
        "alpha=[]", "temperatures=[]", "squares=[]", "flux=[0.0]",
    ],
    "sync": [
        "pairs=8", "steps=6", "couplings=[1.0]", "interventions=6", "resamples=20", "draws=39",
        "kept=3", "finals=0",
    ],
    "image": [
        "images=8", "steps=4", "doubling=[2, 4]", "lams=[0.0, 1.0]", "bins=4", "family_images=8",
        "rotation_times=1", "rank=2", "information_images=3", "uturn_images=2", "uturn_times=1",
        "resamples=20", "draws=39", "batch=8",
    ],
}  # fmt: skip
"""Settings of a small run of each instrument."""


def setting_values() -> Iterator[tuple[str, type[Config], str]]:
    """Command, class of its settings, and one assignment for ``--set``; one setting at a time."""
    configs: dict[str, type[Config]] = {one.name: one.config for one in instruments()}
    configs["doctor"] = DoctorConfig
    for name, config in configs.items():
        yield from ((name, config, assignment) for assignment in _assignments(config))
    for study in studies().values():
        additions = _assignments(study.config)
        yield from (("reproduce " + study.name, study.config, value) for value in additions)


def _assignments(config: type[Config]) -> Iterator[str]:
    for name, field in config.model_fields.items():
        for value in _values(field):
            yield f"{name}={value}"


def _values(field: FieldInfo) -> list[str]:
    kind, several = _number(field.annotation)
    if kind is None:
        return []
    values = list(_WHOLE if kind is int else _REAL)
    return ["[]", *(f"[{value}]" for value in values)] if several else values


def _number(annotation: Any) -> tuple[type | None, bool]:
    """Kind of number of a setting, and whether it holds several."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return _number(parts[0])[0], True
    if origin is typing.Annotated:
        return _number(parts[0])
    return (annotation if annotation in (int, float) else None), False
