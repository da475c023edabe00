r"""The effective potential of a flow: what its symmetric Jacobian says, without a pair (ν, U).

A law that obeys $\partial_t\rho=\nu\Delta\rho+\nabla\cdot(\rho\nabla U)$ moves with the velocity
$u=-\nabla(U+\nu\log\rho)$. Only this sum can be seen: for every $\nu$ the potential

$$ U_\nu = U-(\nu-\nu_0)\log\rho $$

gives the same path of laws. What is read is the symmetric part of $\nabla u$, minus the Hessian of
the *effective* potential $U+\nu\log\rho$. Its least eigenvalue over points bounds how fast clouds
draw together (Bakry and Émery, with the effective potential in place of U); a negative one is a
direction in which the flow expands.

A fitted Jacobian has noise, which spreads eigenvalues: the least of them comes out too low, and a
gradient flow seems to turn. `crossed_curvature` takes directions and points from one fit and the
numbers from another one, of other texts. Its least eigenvalue comes out too high where directions
are uncertain, so that the truth lies between the two.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse

__all__ = [
    "LOW_QUANTILE",
    "CrossedCurvature",
    "Curvature",
    "crossed_curvature",
    "curvature",
    "equivalent_stiffness",
]

LOW_QUANTILE = 0.05
"""Share of the points below the quantile that stands for the least curvature."""

_LARGEST = 1e150  # squares of entries up to it are numbers


@dataclass(frozen=True, kw_only=True)
class Curvature:
    """Eigenvalues of −sym ∇u over points.

    Attributes
    ----------
    lowest
        5 % quantile over points of the least eigenvalue: the λ_min of Bakry and Émery, without the
        outermost points.
    median
        Median over points of the least eigenvalue.
    mean_values
        Eigenvalues of the mean of −sym ∇u, ascending.
    expanding
        Mean number of directions in which the flow expands (negative eigenvalues).
    turning
        Share of the squared Jacobian that is antisymmetric; NaN where all of it is 0.
    """

    lowest: float
    median: float
    mean_values: tuple[float, ...]
    expanding: float
    turning: float


def curvature(jacobians: Float64[Tensor, "N r r"]) -> Curvature:
    """Curvature of the effective potential from the Jacobian of the flow at points.

    Raises
    ------
    InvalidInputError
        If there are no square matrices, or an entry is not finite or beyond 1e150.

    Examples
    --------
    >>> found = curvature(torch.tensor([[[0.3, 1.0], [-1.0, -0.1]]]))
    >>> round(found.lowest, 6), found.expanding, round(found.turning, 3)
    (-0.3, 1.0, 0.952)
    """
    J = _squares(jacobians)
    bent = -0.5 * (J + J.mT)
    values = torch.linalg.eigvalsh(bent)
    least = values[:, 0]
    size = float(J.square().sum())
    return Curvature(
        lowest=float(least.quantile(LOW_QUANTILE)),
        median=float(least.quantile(0.5)),
        mean_values=tuple(torch.linalg.eigvalsh(bent.mean(0)).tolist()),
        expanding=float((values < 0).sum(1).double().mean()),
        turning=float((J + bent).square().sum()) / size if size else math.nan,
    )


def _squares(jacobians: Float64[Tensor, "N r r"]) -> Float64[Tensor, "N r r"]:
    """Jacobians in double precision, if they are finite square matrices."""
    if jacobians.ndim != 3 or not len(jacobians) or jacobians.shape[1] != jacobians.shape[2]:
        raise InvalidInputError(
            "Jacobians must be square matrices, one for each point; found shape "
            f"{tuple(jacobians.shape)}."
        )
    refuse(~jacobians.isfinite(), jacobians, "Jacobians must be finite", "Look at the fit.")
    J: Tensor = jacobians.double()
    refuse(J.abs() > _LARGEST, J, f"Jacobians must be below {_LARGEST:g}", "Divide the velocities.")
    return J


@dataclass(frozen=True, kw_only=True)
class CrossedCurvature:
    """Numbers of `Curvature` whose directions come from another fit than their values."""

    lowest: float
    median: float
    turning: float


def crossed_curvature(
    pairs: Iterable[tuple[Float64[Tensor, "N r r"], Float64[Tensor, "N r r"]]],
) -> CrossedCurvature:
    r"""Curvature and rotation from pairs of Jacobians with independent noise at the same points.

    $$ \text{turning} = \frac{\sum\langle A_1,A_2\rangle}{\sum\langle J_1,J_2\rangle}, \qquad
       A = \tfrac12(J-J^\top), $$

    which is 0 on average for a gradient flow with any noise, and may come out below 0. `lowest`
    is the mean, over the points between the 2.5 and the 7.5 % quantile of the least eigenvalue of
    one fit, of what the other fit has along its eigenvector.

    Raises
    ------
    InvalidInputError
        Without a pair, or for Jacobians that `curvature` refuses or that do not pair.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> noise = lambda: 0.1 * torch.randn(1, 4, 4, generator=g).double().expand(50, 4, 4)
    >>> pairs = [(0.5 * torch.eye(4) + noise(), 0.5 * torch.eye(4) + noise()) for _ in range(200)]
    >>> found = crossed_curvature(pairs)
    >>> abs(found.lowest + 0.5) < 0.02, abs(found.turning) < 0.01
    (True, True)
    """
    lowest, median, turned, size = [], [], 0.0, 0.0
    for pair in pairs:
        first, second = map(_squares, pair)
        if first.shape != second.shape:
            raise InvalidInputError(
                "Two fits must have a Jacobian each at the same points; found shapes "
                f"{tuple(first.shape)} and {tuple(second.shape)}."
            )
        for one, other in ((first, second), (second, first)):
            values, vectors = torch.linalg.eigh(-0.5 * (one + one.mT))
            least, along = values[:, 0], vectors[..., 0]
            seen = -torch.einsum("ni,nij,nj->n", along, other, along)
            ranks = least.argsort()
            start = math.floor(0.5 * LOW_QUANTILE * len(ranks))
            stop = max(math.ceil(1.5 * LOW_QUANTILE * len(ranks)), start + 1)
            lowest.append(float(seen[ranks[start:stop]].mean()))
            median.append(float(seen.quantile(0.5)))
        parts = [0.5 * (one - one.mT) for one in (first, second)]
        turned += float((parts[0] * parts[1]).sum())
        size += float((first * second).sum())
    if not lowest:
        raise InvalidInputError("A crossed curvature needs at least one pair of Jacobians.")
    return CrossedCurvature(
        lowest=math.fsum(lowest) / len(lowest),
        median=math.fsum(median) / len(median),
        turning=turned / size if size else math.nan,
    )


def equivalent_stiffness(nu: float, reference: tuple[float, float], variance: float) -> float:
    r"""Stiffness that gives a Gaussian law the path of another pair of diffusion and stiffness.

    $$ k_\nu = k_0 + \frac{\nu-\nu_0}{s^2}, \qquad U = \tfrac12k_\nu y^2 . $$

    Parameters
    ----------
    nu
        Diffusion ν of the other description.
    reference
        (ν₀, k₀) of the law.
    variance
        s², the variance of the law now.

    Raises
    ------
    InvalidInputError
        If the variance is not above 0.

    Examples
    --------
    >>> equivalent_stiffness(1.0, (0.5, 1.0), 0.5)
    2.0
    """
    if not variance > 0:
        raise InvalidInputError(f"variance must be above 0; found {variance}.")
    return reference[1] + (nu - reference[0]) / variance
