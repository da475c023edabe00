r"""Gradients and fields fitted together, when gradients are known at the points alone.

With X the gradients of r potentials and Q ⊗ e_j the fields of s regressors, both at the points,

.. math:: M = \begin{pmatrix} K & B \\ B^\top & I \otimes G \end{pmatrix}, \qquad
          M\begin{pmatrix}\theta\\ f\end{pmatrix} + \lambda\begin{pmatrix}0\\ Df\end{pmatrix}
          = \begin{pmatrix}\mathbb E\,X^\top v\\ \mathbb E\,Q \otimes v\end{pmatrix}, \qquad
          \hat w = Qf - X K^{-1} B f .

It is the fit of :mod:`flowscope.flows.hodge.crossfit`, whose potentials must have gradients within
the span of Q; here they need not. Its equations are in :mod:`flowscope.flows.hodge.halves`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.layout import Layout
from flowscope.flows.hodge.moments import orthonormal, weighted
from flowscope.flows.hodge.potentials import Functions

__all__ = ["JITTER", "Design", "JointMoments", "Products", "design", "products", "summed"]

JITTER = 1e-8
"""Added to the diagonals of matrices that are about one."""
# Waves and memberships differ from powers, and from each other, at a few far points alone in
# directions below this share of their size: one half would be asked for what the other holds.
_WEAK = 1e-3
# Added to the diagonal of K, which is about one, for all but quadratic potentials: a half that
# lacks a direction does not guess it. It leaves its square, .1 %, of a gradient in the field;
# nothing of a linear one.
_FLOOR = 0.03


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Orthonormal gradients X and regressors Q at the points, or at the places of a layout.

    ``exact`` is how many of the first gradients are those of quadratic potentials, which are not
    shrunk at all, ``penalty`` the diagonal D of the regressors, and ``bent`` how many regressors
    it does not leave alone.
    """

    gradients: Float64[Tensor, "N d r"]
    regressors: Float64[Tensor, "N s"]
    exact: int
    bent: int
    penalty: Float64[Tensor, "ds"]

    def field(self, coefficients: Float64[Tensor, "rds"]) -> Float64[Tensor, "N d"]:
        """The field with these coefficients, at the points."""
        _, d, r = self.gradients.shape
        theta, f = coefficients[:r], coefficients[r:].reshape(d, -1)
        found: Tensor = self.gradients @ theta + self.regressors @ f.mT
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Products:
    """Products of several fields with X and with Q ⊗ e_j, summed over each block or a half."""

    gradients: Float64[Tensor, "*b r c"]
    regressors: Float64[Tensor, "*b ds c"]

    @property
    def stacked(self) -> Float64[Tensor, "*b rds c"]:
        """Products with the gradients, then with the fields."""
        return torch.cat([self.gradients, self.regressors], -2)

    def averaged(self, shares: Float64[Tensor, "h b"]) -> "Products":
        """Sums over blocks for each row of shares."""
        return Products(
            gradients=weighted(self.gradients, shares), regressors=weighted(self.regressors, shares)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class JointMoments:
    """The parts K, B and G of M, of one set of points or of several: sums, or means.

    ``floor`` is what is added to the diagonal of K, when K is that of the mean over points.
    """

    floor: Float64[Tensor, "r"]
    stiffness: Float64[Tensor, "*b r r"]
    coupling: Float64[Tensor, "*b r ds"]
    gram: Float64[Tensor, "*b s s"]

    def averaged(self, shares: Float64[Tensor, "h b"]) -> "JointMoments":
        """Sums over blocks for each row of shares."""
        return JointMoments(
            floor=self.floor,
            stiffness=weighted(self.stiffness, shares),
            coupling=weighted(self.coupling, shares),
            gram=weighted(self.gram, shares),
        )

    def chosen(self, sets: int | slice) -> "JointMoments":
        """Those of some of the sets."""
        return JointMoments(
            floor=self.floor,
            stiffness=self.stiffness[sets],
            coupling=self.coupling[sets],
            gram=self.gram[sets],
        )

    def applied(self, x: Float64[Tensor, "*b rds c"]) -> Float64[Tensor, "*b rds c"]:
        """M times coefficients; sets and coefficients are broadcast against each other."""
        r, s = self.stiffness.shape[-1], self.gram.shape[-1]
        theta, f = x[..., :r, :], x[..., r:, :]
        d, c = f.shape[-2] // s, f.shape[-1]
        side = torch.unflatten(f, -2, (d, s)).transpose(-3, -2).flatten(-2)
        inner = torch.unflatten(self.gram @ side, -1, (d, c)).transpose(-3, -2).flatten(-3, -2)
        return torch.cat([self.sloped(x), self.coupling.mT @ theta + inner], -2)

    def sloped(self, x: Float64[Tensor, "*b rds c"]) -> Float64[Tensor, "*b r c"]:
        """Products of a field with the gradients, from its coefficients."""
        r = self.stiffness.shape[-1]
        return self.stiffness @ x[..., :r, :] + self.coupling @ x[..., r:, :]


def design(
    of: Functions,
    z: Float64[Tensor, "N d"],
    chart: Float64[Tensor, "d d"],
    over: Layout | None = None,
) -> Design:
    r"""Gradients and regressors at whitened points, orthonormal on the sample.

    .. math:: \tfrac1N\textstyle\sum_i X_i^\top X_i = I, \qquad \tfrac1N\sum_i Q_iQ_i^\top = I

    Parameters
    ----------
    of : potentials and regressors.
    z : whitened points.
    chart : J = a^{1/2}L^{-⊤}, which takes a gradient in z to the metric of the diffusion.
    over : places to take the functions at, zero where there is no point; by default the points.

    Notes
    -----
    O(N d p²). Powers come first; waves and memberships are left out in directions that powers, or
    others of them, hold to a thousandth.

    Examples
    --------
    >>> from flowscope.flows.hodge.potentials import functions
    >>> g = torch.Generator().manual_seed(0)
    >>> z = torch.randn(500, 2, generator=g).double()
    >>> X = design(functions(z, generator=g), z, torch.eye(2).double()).gradients
    >>> gram = torch.einsum("ndr,ndt->rt", X, X) / 500
    >>> bool((gram - torch.eye(len(gram))).abs().max() < 1e-6)
    True
    """
    N, d = z.shape
    phi, X = of.evaluated(z if over is None else over.laid(z), chart)
    if over is not None:
        phi, X = (x.index_fill_(0, over.blank, 0) for x in (phi, X))
    X = X.flatten(0, 1)
    gram = phi.mT @ phi / N
    Q, _ = orthonormal(gram, gram[:, :0], range(of.linear_size))
    rest, eigen = orthonormal(gram, Q, range(of.linear_size, len(gram)))
    K = X.mT @ X / N
    low, high = of.quadratic_size, len(of.smooth.potential_powers)
    first, _ = orthonormal(K, K[:, :0], range(low))
    second, _ = orthonormal(K, first, range(low, high))
    powers = torch.cat([first, second], 1)
    third, _ = orthonormal(K, powers, range(high, len(K)), _WEAK)
    X = X @ torch.cat([powers, third], 1)
    penalty = torch.cat([torch.zeros_like(Q[0]), 1 / eigen])
    return Design(
        gradients=torch.unflatten(X, 0, (-1, d)),
        exact=first.shape[1],
        bent=rest.shape[1],
        regressors=phi @ torch.cat([Q, rest], 1),
        penalty=penalty.repeat(d),
    )


def summed(of: Design, over: Layout) -> JointMoments:
    """Moments of each block, of functions at the places of a layout."""
    X, Q = of.gradients, of.regressors
    _, d, r = X.shape
    coupling = over.summed(X.reshape(len(X), 1, d * r), Q[:, None])
    floor = torch.full_like(X[0, 0], _FLOOR)
    floor[: of.exact] = JITTER
    return JointMoments(
        floor=floor,
        stiffness=over.summed(X, X),
        coupling=torch.unflatten(coupling, 1, (d, r)).transpose(1, 2).flatten(2),
        gram=over.summed(Q[:, None], Q[:, None]),
    )


def products(of: Design, v: Float64[Tensor, "P d c"], over: Layout) -> Products:
    """Products of velocities with gradients and fields, summed over each block; all at places."""
    d, c = v.shape[1:]
    regressed = over.summed(of.regressors[:, None], v.reshape(len(v), 1, d * c))
    return Products(
        gradients=over.summed(of.gradients, v),
        regressors=torch.unflatten(regressed, 2, (d, c)).transpose(1, 2).flatten(1, 2),
    )
