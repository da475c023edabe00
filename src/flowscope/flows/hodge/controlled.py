"""Rotation of a sampled field beside its controls: one must be zero, the other must be found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.controls import gradient_null, planted_rotation
from flowscope.flows.hodge.decomposition import rotation
from flowscope.flows.hodge.outcome import Rotation, Settings

__all__ = ["PLANTED", "ControlledRotation", "controlled_rotation"]

PLANTED = 0.05
_CONTROL_DRAWS = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class ControlledRotation:
    """What was found, in linear fields alone, and on the two controls; NaN where it abstained."""

    found: Rotation
    linear: float
    gradient: float
    planted: float


def controlled_rotation(
    y: Tensor,
    v: Tensor,
    *,
    groups: Tensor,
    diffusion: float | Literal["estimate"],
    degree: int,
    draws: int,
    seed: int,
    step: float = 1.0,
) -> ControlledRotation:
    """Rotation of a field, with a gradient control and one with a planted rotation.

    Parameters
    ----------
    y, v
        Points, and the field at them.
    groups
        Which points depend on each other.
    diffusion
        a, or ``"estimate"``.
    degree
        Of the fields; a lower one is taken when the points do not carry it.
    draws
        Resamples of the intervals.
    seed
        Of halves and resamples: readings with one seed share them.
    step
        Time that a velocity is the mean over, for an estimated diffusion.

    Raises
    ------
    InvalidInputError
        When the points carry no field at all.
    """

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    found = _carried(y, v, groups, diffusion, Settings(draws=draws, step=step), degree, seed)
    if found.status != "ok":
        nan = float("nan")
        return ControlledRotation(found=found, linear=nan, gradient=nan, planted=nan)
    few, a = Settings(draws=_CONTROL_DRAWS, degree=found.degree), found.diffusion
    linear = rotation(
        y, v, diffusion=a, generator=seeded(), groups=groups, settings=replace(few, degree=1)
    )
    null = gradient_null(y, v, diffusion=a, generator=seeded(), groups=groups, settings=few)
    # planted on the null: on the data it would add to, or cancel, what turns already
    planted = planted_rotation(
        y, null.velocities, PLANTED, diffusion=a, generator=seeded(), groups=groups, settings=few
    )
    return ControlledRotation(
        found=found,
        linear=linear.normalised,
        gradient=null.measured.normalised,
        planted=planted.measured.normalised,
    )


def _carried(
    y: Tensor,
    v: Tensor,
    groups: Tensor,
    diffusion: float | Literal["estimate"],
    settings: Settings,
    degree: int,
    seed: int,
) -> Rotation:
    """Rotation in fields of the degree asked for, or of the highest that the points carry."""
    for lower in range(degree, 0, -1):
        try:
            return rotation(
                y,
                v,
                diffusion=diffusion,
                generator=torch.Generator().manual_seed(seed),
                groups=groups,
                settings=replace(settings, degree=lower),
            )
        except InvalidInputError:
            if lower == 1:
                raise
    raise InvalidInputError(f"degree must be at least 1; found {degree}.")
