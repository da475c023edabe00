r"""From cross-fitted energies and their resamples to an answer: interval, p-value, or abstention.

.. math:: p = \frac{1 + \#\{R^\pm \ge R\}}{1 + B}
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from flowscope.flows.hodge.influence import Resampled
from flowscope.flows.hodge.outcome import Rotation, Settings, Unmeasured
from flowscope.flows.hodge.problem import Sample
from flowscope.flows.hodge.resampling import bca_interval, no_interval

__all__ = ["Chances", "chances", "judged"]

# Fewer blocks than this say too little about each other for an interval or a null.
_FEWEST = 10
_QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chances:
    """Everything random after the dictionary: halves, counts of resamples, signs of the null."""

    splits: Bool[Tensor, "S b"]
    weights: Float64[Tensor, "B b"]
    signs: Float64[Tensor, "B b"]


def chances(blocks: int, settings: Settings, generator: torch.Generator) -> Chances:
    """Halves, counts and signs for so many blocks."""
    device = generator.device
    order = torch.rand(settings.splits, blocks, generator=generator, device=device).argsort(1)
    picked = torch.randint(blocks, (settings.draws, blocks), generator=generator, device=device)
    counts = torch.zeros(settings.draws, blocks, dtype=torch.float64, device=device)
    coins = torch.rand(settings.draws, blocks, generator=generator, device=device)
    return Chances(
        splits=order < blocks // 2,
        weights=counts.scatter_add_(1, picked, torch.ones_like(counts)),
        signs=(coins < 0.5).double() * 2 - 1,
    )


def judged(of: Sample, found: Resampled, settings: Settings) -> Rotation:
    """Answer of a method; what only the method knows is left at its default."""
    plain, total = found.energies.tolist()
    R = plain + found.correction
    shift = torch.tensor([found.correction, 0.0]).to(found.draws)
    draws, left_out = found.draws + shift, found.jackknife + shift
    few = "" if of.blocks.count >= _FEWEST else f"{of.blocks.count} groups are too few to resample"
    doubt = few or _doubt(total, draws[:, 1])
    nan, level = float("nan"), settings.level
    at = torch.tensor(_QUANTILES).to(found.null)
    return Rotation(
        energy=R,
        normalised=R / total if total > 0 and doubt in ("", few) else nan,
        total=total,
        interval=no_interval(doubt, level)
        if doubt
        else bca_interval(
            R / total, draws[:, 0] / draws[:, 1], left_out[:, 0] / left_out[:, 1], level
        ),
        energy_interval=no_interval(few, level)
        if few
        else bca_interval(R, draws[:, 0], left_out[:, 0], level),
        p_value=nan if few else (1 + int((found.null >= plain).sum())) / (1 + len(found.null)),
        null=() if doubt else tuple((found.null.quantile(at) / total).tolist()),
        hjb=Unmeasured(reason="a grid holds one time"),
        status="abstained" if doubt and not few else "ok",
        because=doubt,
        n=len(of.points),
        groups=of.blocks.groups,
        blocks=of.blocks.count,
        draws=draws[:, 0] / draws[:, 1],
        left_out=left_out[:, 0] / left_out[:, 1],
    )


def _doubt(total: float, draws: Tensor) -> str:
    """Why a share of the energy is not defined; empty where it is."""
    low = float(draws.quantile(0.025))
    if total > 0 and low > 0:
        return ""
    return (
        f"no signal: the energy of the velocity that halves agree on is {total:.3g} and resamples "
        f"reach {low:.3g}, so a share of it is not defined"
    )
