r"""Do two samplers differ by more than their own step errors? Distances against a budget.

A sampler of K steps is off by its step error, and two samplers of one law may differ by the sum of
both errors. With $d$ the total variation of two histograms, the *budget* is what either sampler
moves when its steps are doubled,

.. math:: B = d(\mathrm{flow}_K, \mathrm{flow}_{2K}) + d(\mathrm{sde}_K, \mathrm{sde}_{2K}), \qquad
          X = d(\mathrm{flow}_{2K}, \mathrm{sde}_{2K}) - B .

At first order the error c/2K that is left at 2K steps is the change c/K − c/2K, so X ≤ 0 for two
samplers of one law. At K steps the errors are twice the change: the same excess of the coarse runs
is positive for exact scores too.

**Noise.** The distance of two samples is too large: with $n$ the mean distance of noise alone,

.. math:: E\,\hat d - n \;\le\; d \;\le\; E\,\hat d .

So the lower bound of X takes the noise off the first distance only, the upper bound off the budget
only; the point takes it off all three.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.fields import check_count

__all__ = ["StepBudget", "step_budget"]

_FEWEST_GROUPS = 8
_FEWEST_DRAWS = 20
_NUMBERS = 2**21  # numbers in one array


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBudget:
    """Distances at each time, mean over channels, and what each group adds to the excess.

    Attributes
    ----------
    distance, noise
        d of flow and SDE at 2K steps, and that of noise alone.
    flow, flow_noise, sde, sde_noise
        d of K and 2K steps of either sampler, and that of noise alone.
    pseudo_values
        Of the excess d(flow, sde) − d(flow) − d(sde) with all noise in it, one row a group; their
        mean is the excess.
    """

    distance: Float64[Tensor, "K"]
    noise: Float64[Tensor, "K"]
    flow: Float64[Tensor, "K"]
    flow_noise: Float64[Tensor, "K"]
    sde: Float64[Tensor, "K"]
    sde_noise: Float64[Tensor, "K"]
    pseudo_values: Float64[Tensor, "G K"]

    @property
    def budget(self) -> Float64[Tensor, "K"]:
        """Change of both samplers when their steps are doubled, less noise."""
        return (self.flow - self.flow_noise).clamp_min(0) + (self.sde - self.sde_noise).clamp_min(0)

    @property
    def excess(self) -> Float64[Tensor, "K"]:
        """Distance of the samplers beyond the budget, less noise."""
        return (self.distance - self.noise).clamp_min(0) - self.budget

    @property
    def at_least(self) -> Float64[Tensor, "K"]:
        """Lower bound of the excess on average: noise is taken off the distance only."""
        return (self.distance - self.noise) - self.flow - self.sde

    @property
    def at_most(self) -> Float64[Tensor, "K"]:
        """Upper bound of the excess on average: noise is taken off the budget only."""
        return self.distance - (self.flow - self.flow_noise) - (self.sde - self.sde_noise)


def step_budget(
    flow: Shaped[Tensor, "G K C bins"],
    sde: Shaped[Tensor, "G K C bins"],
    fine_flow: Shaped[Tensor, "G K C bins"],
    fine_sde: Shaped[Tensor, "G K C bins"],
    *,
    draws: int,
    generator: torch.Generator,
) -> StepBudget:
    r"""How far two samplers are apart at 2K steps, and how far the steps move each of them.

    .. math:: \hat d = \tfrac12\sum_b |\bar\delta_b|, \qquad
              n = \sqrt{\tfrac G{G-1}}\; E_\varepsilon\,\tfrac12\sum_b
              \Bigl|\sum_g \varepsilon_g(\delta_{gb} - \bar\delta_b)\Bigr|

    Parameters
    ----------
    flow, sde : counts of either sampler with K steps, by group of images, time, channel and bin.
    fine_flow, fine_sde : the same with 2K steps, at the same times and over the same bins.
    draws : patterns of signs for the noise, at least 20.
    generator : source of the signs.

    Raises
    ------
    InvalidInputError
        If shapes differ, there are fewer than 8 groups, or a group has no counts.

    Notes
    -----
    Signs ε exchange the two runs of a group about their mean difference: a shift that all groups
    share is not noise. Pseudo-values are the influence of each group, with the sign of every bin
    held. O(draws·G·K·C·bins) products in float64.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> counts = torch.randint(1, 9, (4, 10, 1, 1, 6), generator=g)
    >>> same = step_budget(*(counts[:1].expand(4, -1, -1, -1, -1)), draws=20, generator=g)
    >>> same.excess.tolist(), same.budget.tolist()
    ([0.0], [0.0])
    """
    runs = [x.double() for x in (flow, sde, fine_flow, fine_sde)]
    _check(runs)
    check_count(draws, "draws", _FEWEST_DRAWS)
    coarse_flow, coarse_sde, flow_, sde_ = runs
    G = len(flow_)
    coins = torch.randint(0, 2, (draws, G), generator=generator, device=generator.device)
    signs = (2 * coins - 1).to(flow_)
    between = _distance(flow_, sde_, signs)
    of_flow = _distance(coarse_flow, flow_, signs)
    of_sde = _distance(coarse_sde, sde_, signs)
    return StepBudget(
        distance=between[0],
        noise=between[1],
        flow=of_flow[0],
        flow_noise=of_flow[1],
        sde=of_sde[0],
        sde_noise=of_sde[1],
        pseudo_values=between[2] - of_flow[2] - of_sde[2],
    )


def _distance(first: Tensor, second: Tensor, signs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distance, that of noise, and pseudo-values [G, K]; mean over channels."""
    G, K = first.shape[:2]
    sizes = [x.sum(-1, keepdim=True) for x in (first, second)]
    p, q = (x.sum(0) / n.sum(0) for x, n in zip((first, second), sizes, strict=True))
    # What each group adds to p − q, about its mean: G times, so that a mean over groups is 0.
    moved = G * (
        (first - sizes[0] * p) / sizes[0].sum(0) - (second - sizes[1] * q) / sizes[1].sum(0)
    )
    distance = 0.5 * (p - q).abs().sum(-1).mean(-1)
    pseudo = distance + 0.5 * ((p - q).sign() * moved).sum(-1).mean(-1)
    chunk = max(1, _NUMBERS // (len(signs) * first[0, 0].numel()))
    noise = [
        (signs @ part.flatten(1) / G).reshape(-1, *part.shape[1:]).abs().sum(-1).mean((0, 2))
        for part in torch.split(moved, chunk, 1)
    ]  # fmt: skip
    return distance, 0.5 * math.sqrt(G / (G - 1)) * torch.cat(noise).reshape(K), pseudo


def _check(runs: list[Tensor]) -> None:
    shapes = {tuple(x.shape) for x in runs}
    if len(shapes) > 1 or runs[0].ndim != 4:
        raise InvalidInputError(
            "The four runs must have the same shape [groups, times, channels, bins]; found "
            f"{', '.join(map(str, sorted(shapes)))}. Count the same images at the same times."
        )
    if len(runs[0]) < _FEWEST_GROUPS:
        raise InvalidInputError(
            f"At least {_FEWEST_GROUPS} groups are needed; found {len(runs[0])}. Pass more images, "
            "or fewer of them to a group."
        )
    if any(bool((x.sum(-1) <= 0).any()) or not bool(x.isfinite().all()) for x in runs):
        raise InvalidInputError(
            "Every group must have counts at every time and channel; found one without. Drop it "
            "in all four runs."
        )
