r"""The change of entropy in one step by two routes: between clouds, and from the mean flow.

For any law $dS/dt=\mathbb E[\nabla\cdot u]$, $u$ the mean velocity at a point. For a finite step
$y'=y+u(y)+\varepsilon$ in one set of axes,

$$
\Delta S = \underbrace{\mathbb E\log\lvert\det(I+\nabla u)\rvert}_{\text{mean flow}}
  + \underbrace{\tfrac12\operatorname{tr}\bigl(\Sigma^{-1}\operatorname{Cov}\varepsilon\bigr)}_{
    \text{noise}} + \text{rest},
$$

with $\Sigma$ halfway between the covariances of $y+u(y)$ and of $y'$. The mean flow is exact where
the step is a one-to-one map. The noise term is that of a Gaussian; halfway makes it
$x/(1+x/2)=\log(1+x)+O(x^3)$ for noise of $x$ times the variance. The rest is printed: where it is
larger than the error of $\Delta S$ the two terms do not explain the change.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from flowscope.flows.entropy.gaussian import gaussian_entropy
from flowscope.flows.entropy.nearest import refuse_repeats, refuse_sparse
from flowscope.flows.entropy.neighbours import NeighbourLists, neighbour_lists
from flowscope.flows.potential.fitting import MeanFlow

__all__ = ["TERMS", "EntropyChange", "entropy_change"]

TERMS = ("difference", "gaussian", "flow", "noise", "rest")
"""Change by nearest neighbours, by covariances, both terms of the flow, and what they leave."""

_LISTED = 48  # neighbours, of which a half of the groups holds enough


@dataclass(frozen=True, kw_only=True, eq=False)
class EntropyChange:
    """Change of entropy in a step, in nats.

    Attributes
    ----------
    values
        Numbers in the order of `TERMS`.
    halves
        The same on halves of the groups, one row each.
    """

    values: Float64[Tensor, "5"]
    halves: Float64[Tensor, "draws 5"]

    def __getattr__(self, name: str) -> float:
        if name in TERMS:
            return float(self.values[TERMS.index(name)])
        raise AttributeError(name)


def entropy_change(
    flow: MeanFlow,
    groups: Tensor,
    halves: Bool[Tensor, "draws N"],
    *,
    k: int = 3,
) -> EntropyChange:
    """Change of entropy in a step, and its terms.

    Parameters
    ----------
    flow
        Mean flow of the step.
    groups
        Group of each point; neighbours come from other groups.
    halves
        Which points belong to each half of the groups, as `half_samples` gives them.
    k
        Neighbour that the entropy reads.

    Raises
    ------
    InvalidInputError
        For repeated points, or fewer than 10 points for each coordinate.

    Examples
    --------
    >>> from flowscope.flows.entropy import half_samples
    >>> from flowscope.flows.potential.fitting import mean_flow
    >>> g = torch.Generator().manual_seed(0)
    >>> y, groups = torch.randn(600, 2, generator=g).double(), torch.arange(600) % 20
    >>> change = entropy_change(mean_flow(y, 2 * y, groups), groups, half_samples(groups, 8, g))
    >>> round(change.flow, 2), abs(change.difference - 1.386) < 0.01, round(change.noise, 2)
    (1.39, True, 0.0)
    """
    n, r = flow.points.shape
    refuse_sparse(n, r)
    after = flow.points + flow.velocities
    lists = [neighbour_lists(y, groups=groups, count=_LISTED) for y in (flow.points, after)]
    for one in lists:
        refuse_repeats(one)
    rows = [_terms(flow, lists, after, k, half) for half in (None, *halves)]
    return EntropyChange(values=rows[0], halves=torch.stack(rows[1:]))


def _terms(
    flow: MeanFlow,
    lists: list[NeighbourLists],
    after: Float64[Tensor, "N r"],
    k: int,
    chosen: Bool[Tensor, "N"] | None,
) -> Float64[Tensor, "5"]:
    r = after.shape[1]
    start, end = (one.entropy(k, float(r), chosen) for one in lists)
    rows = slice(None) if chosen is None else chosen
    gaussian = gaussian_entropy(after[rows]) - gaussian_entropy(flow.points[rows])
    step = torch.eye(r, dtype=after.dtype) + flow.jacobians(chosen)
    moved = torch.linalg.slogdet(step).logabsdet.mean()
    noise = torch.cov(flow.residuals[rows].mT).reshape(r, r)
    ends = (torch.cov(y[rows].mT).reshape(r, r) for y in (flow.mapped, after))
    spread = 0.5 * torch.stack(list(ends)).sum(0)
    spreading = 0.5 * torch.linalg.solve(spread, noise).trace()
    difference = end - start
    rest = difference - moved - spreading
    return torch.stack(
        [difference, torch.tensor(gaussian, dtype=after.dtype), moved, spreading, rest]
    )
