r"""Distances between clouds by entropic couplings, with their bias taken out."""

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike
from flowscope.transport.cloud import PointCloud
from flowscope.transport.coupling import Status
from flowscope.transport.entropic import sinkhorn
from flowscope.transport.geometry import CostMatrix, Geometry
from flowscope.transport.options import Options
from flowscope.transport.problem import strength

__all__ = ["Divergence", "sinkhorn_divergence"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Divergence:
    r"""A debiased transport cost and how right it is.

    Attributes
    ----------
    value
        :math:`S_\varepsilon` of each problem, in units of cost (½|x−y|² for point clouds).
    epsilon
        ε of each problem, the same in all three terms.
    marginal_error
        Largest of the three couplings' errors.
    converged
        Whether all three couplings of each problem are within tolerance.
    """

    value: Float[Tensor, "*batch"]
    epsilon: Float[Tensor, "*batch"]
    marginal_error: Float[Tensor, "*batch"]
    converged: Bool[Tensor, "*batch"]

    @property
    def status(self) -> Status:
        """``"converged"`` when every problem of the batch is within tolerance."""
        return "converged" if bool(self.converged.all()) else "not converged"

    @property
    def distance(self) -> Float[Tensor, "*batch"]:
        """The W₂-like distance √(2S) of a cost ½|x−y|²; S below zero by rounding counts as zero."""
        return torch.sqrt(2 * self.value.clamp_min(0))


def sinkhorn_divergence(
    first: Tensor | ArrayLike | Geometry,
    second: Tensor | ArrayLike | None = None,
    a: Tensor | ArrayLike | None = None,
    b: Tensor | ArrayLike | None = None,
    *,
    within: tuple[Tensor | ArrayLike, Tensor | ArrayLike] | None = None,
    **options: Unpack[Options],
) -> Divergence:
    r"""Debiased entropic transport cost between two weighted clouds.

    .. math:: S_\varepsilon(\mu,\nu) = T_\varepsilon(\mu,\nu)
              - \tfrac12 T_\varepsilon(\mu,\mu) - \tfrac12 T_\varepsilon(\nu,\nu)

    with :math:`T_\varepsilon` the least value of the entropic problem. It is zero for equal laws,
    not negative, and runs from the transport cost (ε → 0) to ½|mean difference|² (ε → ∞).

    Parameters
    ----------
    first, second
        Points (…, n, d) and (…, m, d) with cost ½|x−y|²; or ``first`` a cost matrix as a
        ``CostMatrix`` between the clouds, with ``within`` the costs inside each, and no second.
    a, b
        Masses; uniform when not given.
    within
        Costs (…, n, n) and (…, m, m) inside each cloud, when ``first`` is a ``CostMatrix``. They
        must vanish on the diagonal for the divergence of equal laws to be zero.
    **options
        :class:`Options` of the couplings; ``initial`` is not taken. ``relative_epsilon`` is read
        from the cost between the clouds and used in all three terms.

    Raises
    ------
    InvalidInputError
        As for :func:`sinkhorn`, and if costs within the clouds are missing.
    ConvergenceError
        If one of the couplings did not reach its tolerance.

    Notes
    -----
    Three couplings. The slopes are those of the values (envelope theorem). The error of the value
    is of the order of the marginal error times the range of the potentials: ask for a tolerance
    below the accuracy wanted. Source: Feydy et al. (2019).

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> sinkhorn_divergence(x, x + 2, epsilon=0.1, tolerance=1e-9).value.round(decimals=6)
    tensor(2., dtype=torch.float64)
    """
    if "initial" in options:
        raise InvalidInputError(
            "sinkhorn_divergence solves three problems and takes no initial potentials; drop it."
        )
    between, left, right = _geometries(first, second, within)
    epsilon = strength(between, options.get("epsilon"), options.get("relative_epsilon"))
    batch = np.broadcast_shapes(between.batch, tuple(epsilon.shape))
    left, right = left.expand(batch), right.expand(batch)
    shared = options | {"epsilon": epsilon, "relative_epsilon": None}
    parts = (
        sinkhorn(between, a, b, **shared),
        sinkhorn(left, a, a, **shared),
        sinkhorn(right, b, b, **shared),
    )
    errors = torch.stack([part.marginal_error.to(parts[0].a.dtype) for part in parts])
    return Divergence(
        value=parts[0].value - (parts[1].value + parts[2].value) / 2,
        epsilon=epsilon,
        marginal_error=errors.amax(0),
        converged=torch.stack([part.converged for part in parts]).all(0),
    )


def _geometries(
    first: Tensor | ArrayLike | Geometry,
    second: Tensor | ArrayLike | None,
    within: tuple[Tensor | ArrayLike, Tensor | ArrayLike] | None,
) -> tuple[Geometry, Geometry, Geometry]:
    if isinstance(first, PointCloud) and second is None:
        x, y, p = first.x, first.y, first.exponent
        return first, PointCloud(x, x, exponent=p), PointCloud(y, y, exponent=p)
    if isinstance(first, Geometry):
        if within is None or second is not None:
            raise InvalidInputError(
                "a cost matrix between two clouds says nothing of the costs inside each; pass them "
                "as within=(first, second), and no second argument, or pass points instead."
            )
        return first, CostMatrix(within[0]), CostMatrix(within[1])
    if second is None or within is not None:
        raise InvalidInputError(
            "sinkhorn_divergence takes two clouds of points, or a CostMatrix with within=(…, …); "
            "found one cloud, or both kinds."
        )
    return PointCloud(first, second), PointCloud(first), PointCloud(second)
