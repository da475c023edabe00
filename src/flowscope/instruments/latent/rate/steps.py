"""One block as a step of a cloud: its entropy change, its mean flow and the flow's curvature."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float64
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy import principal_coordinates
from flowscope.flows.potential import (
    TERMS,
    MeanFlow,
    crossed_curvature,
    curvature,
    entropy_change,
    mean_flow,
)
from flowscope.instruments.latent.clouds import Clouds, Sample

__all__ = ["COLUMNS", "PLAIN", "pooled_steps", "step_arrays", "step_curvatures"]

CURVATURES = ("lambda_min", "lambda_median", "expanding", "turning")
PLAIN = {"lambda_min": "lambda_min_plain", "lambda_median": "lambda_median_plain"}
"""Least curvatures of one fit, too low by its noise, beside those crossed between two fits."""

COLUMNS = (*TERMS, *CURVATURES, "conditional_share", *PLAIN.values())
"""Columns of one step, whole and on halves of the prompts."""

_SPLITS, _HALF_SPLITS = 8, 2  # of the groups into two, for the whole sample and for a half

_HALF_POINTS = 300  # at which a half of the prompts is read; eigenvalues are what takes the time
_MOST_POINTS = 4000  # that find axes of all layers together

Rows = NDArray[np.float64]


def step_arrays(
    clouds: Clouds, sample: Sample, block: int, rank: int, k: int, *, curved: bool
) -> dict[str, NDArray[np.generic]]:
    """Numbers of one block in axes of both its layers; ``block`` counts from 1.

    Returns ``step`` ``[1 + draws, columns]``, ``curvature`` and ``conditional`` ``[rank]`` and
    ``explained``; or ``reason``, why there is no step.
    """
    try:
        flow = _flow(clouds, sample, block, rank)
        if not len(sample.halves):
            raise InvalidInputError("the prompts are too few for an interval")
        change = entropy_change(flow, sample.prompt, sample.halves, k=k)
    except InvalidInputError as refusal:
        return {"reason": np.frombuffer(str(refusal).encode(), np.uint8).copy()}
    terms = torch.cat([change.values[None], change.halves]).numpy()
    found: dict[str, NDArray[np.generic]] = {"explained": np.array([flow.explained])}
    bent = np.full((len(terms), len(COLUMNS) - len(TERMS)), np.nan)
    if curved:
        for row, half in enumerate((None, *sample.halves)):
            bent[row] = step_curvatures(flow, half)
        mean = curvature(flow.jacobians())
        left = torch.cov(flow.residuals.mT).reshape(rank, rank)
        found["curvature"] = np.array(mean.mean_values)
        found["conditional"] = torch.linalg.eigvalsh(left).numpy()
    return found | {"step": np.concatenate([terms, bent], 1)}


def _flow(clouds: Clouds, sample: Sample, block: int, rank: int) -> MeanFlow:
    before, after = (clouds.directions[sample.places, depth] for depth in (block - 1, block))
    pooled = principal_coordinates(torch.cat([before, after]).double(), rank).coordinates
    n = len(before)
    return mean_flow(pooled[:n], pooled[n:], sample.prompt)


def step_curvatures(flow: MeanFlow, half: Bool[Tensor, "N"] | None = None) -> list[float]:
    """Columns of a step beyond `TERMS`, of all points or of those of some prompts."""
    rows = slice(None) if half is None else half
    few = 1 if half is None else max(1, len(flow.points[rows]) // _HALF_POINTS)
    plain = curvature(flow.jacobians(half)[::few])
    splits = _SPLITS if half is None else _HALF_SPLITS
    crossed = crossed_curvature(
        (one[::few], other[::few]) for one, other in flow.crossed_jacobians(splits, half)
    )
    left = flow.residuals[rows].var(0).sum()
    share = float(left / flow.velocities[rows].var(0).sum())
    return [
        crossed.lowest, crossed.median, plain.expanding, crossed.turning, share,
        plain.lowest, plain.median,
    ]  # fmt: skip


def pooled_steps(clouds: Clouds, sample: Sample, rank: int) -> list[MeanFlow]:
    """Mean flow of every block in one set of axes, those of all layers together.

    Raises
    ------
    InvalidInputError
        Where tokens lie in fewer dimensions, or are too few.
    """
    depths = clouds.layers + 1
    spacing = max(1, -(-len(sample.places) * depths // _MOST_POINTS))
    several = clouds.directions[sample.places].reshape(-1, clouds.directions.shape[-1])[::spacing]
    found = principal_coordinates(several.double(), rank)
    states: list[Float64[Tensor, "n r"]] = [
        clouds.directions[sample.places, depth].double() @ found.axes for depth in range(depths)
    ]
    return [
        mean_flow(states[block - 1], states[block], sample.prompt) for block in range(1, depths)
    ]
