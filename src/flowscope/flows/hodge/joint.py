r"""Gradients and fields fitted together, when gradients are known at the points alone.

With X the gradients of r potentials and Q ⊗ e_j the fields of s regressors, both at the points,

.. math:: M = \begin{pmatrix} K & B \\ B^\top & I \otimes G \end{pmatrix}, \qquad
          M\begin{pmatrix}\theta\\ f\end{pmatrix} + \lambda\begin{pmatrix}0\\ Df\end{pmatrix}
          = \begin{pmatrix}\mathbb E\,X^\top v\\ \mathbb E\,Q \otimes v\end{pmatrix}, \qquad
          \hat w = Qf - X K^{-1} B f .

It is the fit of :mod:`flowscope.flows.hodge.crossfit`, whose potentials must have gradients within
the span of Q; here they need not. One factorisation serves every right-hand side, so controls on
the same points cost next to nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.moments import orthonormal, weighted
from flowscope.flows.hodge.potentials import Functions
from flowscope.flows.hodge.problem import Blocks

__all__ = [
    "Design",
    "Half",
    "JointMoments",
    "Products",
    "averaged",
    "chosen_penalty",
    "design",
    "halves",
    "products",
    "ridged",
    "summed",
]

_JITTER = 1e-8
# Waves and memberships differ from powers, and from each other, at a few far points alone in
# directions below this share of their size: one half would be asked for what the other holds.
_WEAK = 1e-3
# Added to the diagonal of K, which is about one, for all but quadratic potentials: a half that
# lacks a direction does not guess it. It leaves its square, .1 %, of a gradient in the field;
# nothing of a linear one.
_FLOOR = 0.03
_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Orthonormal gradients X and regressors Q at the points.

    ``exact`` is how many of the first gradients are those of quadratic potentials, which are not
    shrunk at all, and ``penalty`` is the diagonal D of the regressors.
    """

    gradients: Float64[Tensor, "N d r"]
    regressors: Float64[Tensor, "N s"]
    exact: int
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

    def chosen(self, column: slice) -> "Products":
        """The same for some of the fields."""
        return Products(
            gradients=self.gradients[..., column], regressors=self.regressors[..., column]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class JointMoments:
    """Sums over each block: of 1, and of the parts K, B and G of M.

    ``floor`` is what is added to the diagonal of K, when K is that of the mean over points.
    """

    floor: Float64[Tensor, "r"]
    count: Float64[Tensor, "b"]
    stiffness: Float64[Tensor, "b r r"]
    coupling: Float64[Tensor, "b r ds"]
    gram: Float64[Tensor, "b s s"]

    def total(self, weights: Float64[Tensor, "b"]) -> "JointMoments":
        """Mean over the points of the blocks, so weighted, as one block."""
        w = weights[None] / (weights @ self.count)
        return JointMoments(
            floor=self.floor,
            count=torch.ones_like(self.count[:1]),
            stiffness=weighted(self.stiffness, w),
            coupling=weighted(self.coupling, w),
            gram=weighted(self.gram, w),
        )

    def applied(self, x: Float64[Tensor, "rds c"]) -> Products:
        """M of each block times coefficients."""
        r, s = self.stiffness.shape[1], self.gram.shape[1]
        theta, f = x[:r], x[r:]
        d = len(f) // s
        upright = f.reshape(d, s, -1)
        inner = torch.einsum("bst,dtc->bdsc", self.gram, upright).flatten(1, 2)
        return Products(gradients=self.sloped(x), regressors=self.coupling.mT @ theta + inner)

    def sloped(self, x: Float64[Tensor, "rds c"]) -> Float64[Tensor, "b r c"]:
        """Products of a field with the gradients, from its coefficients."""
        r = self.stiffness.shape[1]
        return self.stiffness @ x[:r] + self.coupling @ x[r:]


def design(
    of: Functions,
    z: Float64[Tensor, "N d"],
    chart: Float64[Tensor, "d d"],
) -> Design:
    r"""Gradients and regressors at whitened points, orthonormal on the sample.

    .. math:: \tfrac1N\textstyle\sum_i X_i^\top X_i = I, \qquad \tfrac1N\sum_i Q_iQ_i^\top = I

    Parameters
    ----------
    of : potentials and regressors.
    z : whitened points.
    chart : J = a^{1/2}L^{-⊤}, which takes a gradient in z to the metric of the diffusion.

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
    phi = of.regressors(z)
    gram = phi.mT @ phi / N
    Q, _ = orthonormal(gram, gram[:, :0], range(of.linear_size))
    rest, eigen = orthonormal(gram, Q, range(of.linear_size, len(gram)))
    X = torch.einsum("npj,ej->nep", of.gradients(z), chart).reshape(N * d, -1)
    K = X.mT @ X / N
    low = int((of.smooth.potential_powers.sum(1) <= 2).sum())
    first, _ = orthonormal(K, K[:, :0], range(low))
    second, _ = orthonormal(K, first, range(low, len(of.smooth.potential_powers)))
    powers = torch.cat([first, second], 1)
    third, _ = orthonormal(K, powers, range(len(of.smooth.potential_powers), len(K)), _WEAK)
    X = X @ torch.cat([powers, third], 1)
    penalty = torch.cat([torch.zeros_like(Q[0]), 1 / eigen])
    return Design(
        gradients=X.reshape(N, d, -1),
        exact=first.shape[1],
        regressors=phi @ torch.cat([Q, rest], 1),
        penalty=penalty.repeat(d),
    )


def summed(of: Design, units: Blocks) -> JointMoments:
    """Moments of each block."""
    d = of.gradients.shape[1]
    stiffness, coupling, gram = [], [], []
    for rows in _members(units):
        X, Q = of.gradients[rows], of.regressors[rows]
        flat = X.flatten(0, 1)
        stiffness.append(flat.mT @ flat)
        coupling.append(torch.cat([X[:, j].mT @ Q for j in range(d)], 1))
        gram.append(Q.mT @ Q)
    sizes = torch.bincount(units.labels, minlength=units.count).double()
    floor = torch.full_like(of.gradients[0, 0], _FLOOR)
    floor[: of.exact] = _JITTER
    return JointMoments(
        floor=floor,
        count=sizes,
        stiffness=torch.stack(stiffness),
        coupling=torch.stack(coupling),
        gram=torch.stack(gram),
    )


def products(of: Design, v: Float64[Tensor, "N d c"], units: Blocks) -> Products:
    """Products of velocities with gradients and fields, summed over each block."""
    gradients, regressors = [], []
    for rows in _members(units):
        X, Q, w = of.gradients[rows], of.regressors[rows], v[rows]
        gradients.append(X.flatten(0, 1).mT @ w.flatten(0, 1))
        regressors.append((Q.mT @ w.flatten(1)).reshape(Q.shape[1], *w.shape[1:]))
    stacked = torch.stack(regressors).transpose(1, 2).flatten(1, 2)
    return Products(gradients=torch.stack(gradients), regressors=stacked)


def _members(units: Blocks) -> list[Tensor]:
    order = units.labels.argsort(stable=True)
    sizes = torch.bincount(units.labels, minlength=units.count)
    return list(torch.split(order, sizes.tolist()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Half:
    """Factorised equations of a half of the blocks.

    Attributes
    ----------
    stiff
        Cholesky factor of K.
    coupling
        B.
    schur
        Cholesky factor of I ⊗ G − BᵀK⁻¹B + λD.
    pull
        Diagonal of λD.
    """

    stiff: Float64[Tensor, "r r"]
    coupling: Float64[Tensor, "r ds"]
    bare: Float64[Tensor, "ds ds"]
    schur: Float64[Tensor, "ds ds"]
    pull: Float64[Tensor, "ds"]

    def potential(self, product: Float64[Tensor, "r c"]) -> Float64[Tensor, "r c"]:
        """K⁻¹ of products with the gradients."""
        return torch.cholesky_solve(product, self.stiff)

    def gradient(self, of: Products) -> Float64[Tensor, "rds c"]:
        """Coefficients of Pv, the gradient part."""
        return torch.cat([self.potential(of.gradients), torch.zeros_like(of.regressors)])

    def rotation(self, of: Products) -> Float64[Tensor, "rds c"]:
        """Coefficients of ŵ = (1 − P)f̂."""
        left = of.regressors - self.coupling.mT @ self.potential(of.gradients)
        f = torch.cholesky_solve(left, self.schur)
        return torch.cat([-self.potential(self.coupling @ f), f])


def halves(of: JointMoments, weights: Float64[Tensor, "h b"]) -> list[Half]:
    """Equations of each row of weights, factorised, without ridge."""
    found = []
    for row in weights:
        mean = of.total(row)
        K, B, G = mean.stiffness[0], mean.coupling[0], mean.gram[0]
        d = B.shape[1] // len(G)
        K.diagonal().add_(mean.floor)
        stiff = torch.linalg.cholesky(K)
        shadow = torch.linalg.solve_triangular(stiff, B, upper=False)
        unit = torch.eye(d, dtype=G.dtype, device=G.device)
        bare = torch.kron(unit, G) - shadow.mT @ shadow
        half = Half(stiff=stiff, coupling=B, bare=bare, schur=bare, pull=torch.zeros_like(B[0]))
        found.append(half)
    return found


def ridged(half: Half, pull: Float64[Tensor, "ds"]) -> Half:
    """The same half with a penalty λD on the fields."""
    schur = half.bare.clone()
    schur.diagonal().add_(pull + _JITTER)
    return Half(
        stiff=half.stiff,
        coupling=half.coupling,
        bare=half.bare,
        schur=torch.linalg.cholesky(schur),
        pull=pull,
    )


def averaged(of: Products, weights: Tensor, count: Tensor) -> Products:
    """Mean over the points of blocks, so weighted."""
    w = weights / (weights @ count)
    return Products(
        gradients=torch.tensordot(w, of.gradients, 1),
        regressors=torch.tensordot(w, of.regressors, 1),
    )


def chosen_penalty(
    of: JointMoments, right: Products, penalty: Float64[Tensor, "ds"], folds: int
) -> Float64[Tensor, "ds"]:
    """λD with λ by cross-validation over blocks, on the first field of the products."""
    if not bool((penalty > 0).any()):
        return penalty
    fold = torch.arange(len(of.count), device=penalty.device) % folds
    held = (fold == torch.arange(folds, device=penalty.device)[:, None]).double()
    mine = right.chosen(slice(0, 1))
    losses = torch.zeros(len(_RIDGES), dtype=torch.float64)
    for out, half in zip(held, halves(of, 1 - held), strict=True):
        here, there = averaged(mine, out, of.count), averaged(mine, 1 - out, of.count)
        mean = of.total(out)
        for i, ridge in enumerate(_RIDGES):
            trial = ridged(half, ridge * penalty)
            u = trial.gradient(there) + trial.rotation(there)
            losses[i] += float((u * (mean.applied(u).stacked[0] - 2 * here.stacked)).sum())
    return _RIDGES[int(losses.argmin())] * penalty
