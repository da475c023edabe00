r"""The mean flow of one step of a cloud, and its Jacobian.

A step takes the state $y$ to $y'$. Its *mean flow* is $u(y)=\mathbb E[y'-y\mid y]$; what is left,
$y'-y-u(y)$, is noise as far as $y$ goes. In the residual stream it is what the chosen coordinates
do not hold: other coordinates, other tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy.neighbours import read_points
from flowscope.flows.potential.polynomials import (
    STRENGTHS,
    Basis,
    GroupMoments,
    basis_of,
    group_moments,
    held_out_error,
    weights_of,
)
from flowscope.simplex.probability import ArrayLike

__all__ = ["MeanFlow", "mean_flow", "read_step"]

_FOLDS = 5
_LEAST_PER_FUNCTION = 4  # points for every function of the basis


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanFlow:
    """Mean velocity of a step as a polynomial of the state.

    Attributes
    ----------
    points, velocities
        States before the step, and y' − y.
    weights, basis, strength
        The fit to all points; degree and ridge were chosen on held-out groups.
    residuals
        What the fit to the other groups leaves of each velocity.
    explained
        Share of the squared velocities that the fit explains on held-out groups, mean velocity
        included.
    """

    points: Float64[Tensor, "N r"]
    velocities: Float64[Tensor, "N r"]
    weights: Float64[Tensor, "F r"]
    basis: Basis
    strength: float
    residuals: Float64[Tensor, "N r"]
    explained: float
    place: Int64[Tensor, "N"]
    moments: GroupMoments

    def jacobians(self, chosen: Bool[Tensor, "N"] | None = None) -> Float64[Tensor, "n r r"]:
        """∇u at the points, or at those of some groups, fitted to the same groups."""
        if chosen is None:
            return self.basis.slopes(self.points, self.weights)
        groups = torch.zeros(len(self.moments.count), dtype=torch.bool)
        groups[self.place[chosen]] = True
        return self._fitted_to(groups, self.points[chosen])

    def crossed_jacobians(
        self, splits: int, chosen: Bool[Tensor, "N"] | None = None
    ) -> Iterator[tuple[Float64[Tensor, "n r r"], Float64[Tensor, "n r r"]]]:
        """∇u at the same points twice, fitted to one random half of the groups and to the other.

        The noise of the two is independent: what both show is not noise.
        """
        rows = torch.ones(len(self.points), dtype=torch.bool) if chosen is None else chosen
        names = torch.unique(self.place[rows])
        for split in range(splits):
            order = torch.randperm(len(names), generator=torch.Generator().manual_seed(split))
            parts = []
            for half in (order[: len(names) // 2], order[len(names) // 2 :]):
                groups = torch.zeros(len(self.moments.count), dtype=torch.bool)
                groups[names[half]] = True
                parts.append(self._fitted_to(groups, self.points[rows]))
            yield parts[0], parts[1]

    def _fitted_to(
        self, groups: Bool[Tensor, "G"], points: Float64[Tensor, "n r"]
    ) -> Float64[Tensor, "n r r"]:
        gram, cross, _, _ = self.moments.over(groups)
        return self.basis.slopes(points, weights_of(gram, cross, self.strength))

    @property
    def mapped(self) -> Float64[Tensor, "N r"]:
        """Y + u(y)."""
        return self.points + self.basis.values(self.points) @ self.weights


def mean_flow(
    before: Tensor | ArrayLike,
    after: Tensor | ArrayLike,
    groups: Tensor,
    *,
    degrees: tuple[int, ...] = (1, 2),
) -> MeanFlow:
    r"""Mean flow of a step, degree and ridge chosen by cross-validation over groups.

    $$ u = \arg\min \sum_i \lVert y_i' - y_i - u(y_i)\rVert^2 + \text{ridge} $$

    Parameters
    ----------
    before, after
        Coordinates of the same points before and after the step.
    groups
        Group of each point (its prompt).
    degrees
        Degrees of the polynomials that are tried; a quadratic one only with four points for each
        of its functions.

    Raises
    ------
    InvalidInputError
        If shapes differ, an entry is not finite, there are fewer groups than five, fewer than four
        points for each function of a linear flow, or points do not differ or do not move.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> y = torch.randn(600, 2, generator=g, dtype=torch.float64)
    >>> flow = mean_flow(y, 1.1 * y, torch.arange(600) % 20)
    >>> flow.jacobians().mean(0).diagonal().round(decimals=3).tolist(), round(flow.explained, 3)
    ([0.1, 0.1], 1.0)
    """
    y, v, place = read_step(before, after, groups)
    count = int(place.max()) + 1
    folds = torch.arange(count) % _FOLDS
    best: tuple[float, float, Basis, GroupMoments] | None = None
    for degree in degrees:
        basis = basis_of(y, degree)
        if degree > min(degrees) and len(y) < _LEAST_PER_FUNCTION * basis.size:
            continue
        moments = group_moments(basis, y, v, place)
        for strength in STRENGTHS:
            error = held_out_error(moments, folds, strength)
            if best is None or error < best[0]:
                best = error, strength, basis, moments
    assert best is not None
    error, strength, basis, moments = best
    gram, cross, energy, _ = moments.over()
    return MeanFlow(
        points=y,
        velocities=v,
        weights=weights_of(gram, cross, strength),
        basis=basis,
        strength=strength,
        residuals=_residuals(moments, basis, y, v, folds[place], strength, folds),
        explained=1 - error / energy,
        place=place,
        moments=moments,
    )


def read_step(
    before: Tensor | ArrayLike, after: Tensor | ArrayLike, groups: Tensor
) -> tuple[Float64[Tensor, "N r"], Float64[Tensor, "N r"], Int64[Tensor, "N"]]:
    """States, velocities and the number of each point's group, from 0."""
    y, end = read_points(before, "before"), read_points(after, "after")
    if y.shape != end.shape or tuple(torch.as_tensor(groups).shape) != (len(y),):
        raise InvalidInputError(
            "before and after must be the same points, and groups name a group for each; found "
            f"shapes {tuple(y.shape)}, {tuple(end.shape)} and "
            f"{tuple(torch.as_tensor(groups).shape)}."
        )
    names, place = torch.unique(torch.as_tensor(groups).cpu(), return_inverse=True)
    if len(names) < _FOLDS:
        raise InvalidInputError(
            f"A mean flow is chosen on held-out groups and needs {_FOLDS} of them; found "
            f"{len(names)}. Give more texts."
        )
    least = _LEAST_PER_FUNCTION * (y.shape[1] + 1)
    if len(y) < least:
        raise InvalidInputError(
            f"A flow of {y.shape[1]} coordinates needs {least} points; found {len(y)}. Give more "
            "points or fewer coordinates."
        )
    if bool((y == y[0]).all()):
        raise InvalidInputError(
            "All points are equal before the step: a flow is a function of points that differ."
        )
    v = end - y
    if not float(v.square().sum()) > 0:
        raise InvalidInputError("Nothing moves: before and after are equal.")
    return y, v, place


def _residuals(
    moments: GroupMoments,
    basis: Basis,
    y: Tensor,
    v: Tensor,
    fold_of: Int64[Tensor, "N"],
    strength: float,
    folds: Int64[Tensor, "G"],
) -> Float64[Tensor, "N r"]:
    left = torch.empty_like(v)
    for fold in range(_FOLDS):
        gram, cross, _, _ = moments.over(folds != fold)
        weights = weights_of(gram, cross, strength)
        held = fold_of == fold
        left[held] = v[held] - basis.values(y[held]) @ weights
    return left
