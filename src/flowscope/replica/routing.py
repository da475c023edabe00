r"""What a row softmax cannot do: identities of routing and pattern modulation, and a bound.

With $A_0$ row-stochastic over $N$ tokens, $P_0 = \mathbf 1\mathbf 1^\top/N$, $P_\perp = I - P_0$
and $\delta A = D\sigma[\delta S] = A_0 \odot (\delta S - \langle A_0, \delta S\rangle)$,

$$
\delta A\,\mathbf 1 = 0, \qquad A_0 P_0 = P_0, \qquad \delta A\,V_0 = \delta A\,P_\perp V_0 .
$$

A pattern change does not see the constant part of the values; routing keeps it. How much a pattern
change can do is bounded row by row, with $N_{\rm eff}^{(i)} = 1/\sum_j A_{0,ij}^2$:

$$
\Vert\delta A V_0\Vert
\le \Bigl(\sum_i \frac{\mathrm{osc}(\delta S_i)^2}{N_{\rm eff}^{(i)}}\Bigr)^{1/2}
    \Vert P_\perp V_0\Vert
\le 2\sqrt{\frac{N}{N_{\rm eff}^{\min}}}\;\Vert\delta S\Vert_{\max}\,\Vert P_\perp V_0\Vert .
$$

The second form is 004 eq 99. Its factor is never below 2: spread-out attention, $N_{\rm eff} = N$,
brings no suppression (E87), and there the bound is reached within a factor 2. The constant 2 itself
cannot be improved: one key of small mass against many of tiny mass reaches it in the limit. The
first form is never larger and does not change when a constant is added to a row of $\delta S$.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse, within_range

__all__ = [
    "PatternBound",
    "RatioBound",
    "RoutingResiduals",
    "kernel_derivative",
    "pattern_bound",
    "ratio_bound",
    "routing_residuals",
]


def kernel_derivative(
    A: Float[Tensor, "*batch N M"], dS: Float[Tensor, "*batch N M"]
) -> Float[Tensor, "*batch N M"]:
    r"""Change of a row softmax with its logits, $A \odot (\delta S - \langle A, \delta S\rangle)$.

    Parameters
    ----------
    A
        Row-stochastic kernel.
    dS
        Change of the logits.

    Examples
    --------
    >>> kernel_derivative(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
    tensor([[ 0.2500, -0.2500]])
    """
    # In this order rows sum to zero as well as rounding allows, for any size of dS.
    return A * (dS - (A * dS).sum(-1, keepdim=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutingResiduals:
    r"""How far the identities are missed, one number per kernel; rounding for a row softmax.

    Attributes
    ----------
    row_sums
        Largest $|\delta A\,\mathbf 1|$, relative to the largest $\Vert\delta S_i\Vert_\infty$.
    constants
        Largest $|A_0 P_0 - P_0|$, relative to $1/N$.
    values
        $\Vert\delta A V_0 - \delta A P_\perp V_0\Vert$, relative to $\Vert\delta S\Vert_{\max}
        \Vert V_0\Vert$.
    """

    row_sums: Float[Tensor, "*batch"]
    constants: Float[Tensor, "*batch"]
    values: Float[Tensor, "*batch"]


def routing_residuals(
    A: Float[Tensor, "*batch N N"], dS: Float[Tensor, "*batch N N"], V: Float[Tensor, "*batch N d"]
) -> RoutingResiduals:
    """The identities of routing and pattern modulation, measured.

    Parameters
    ----------
    A
        Kernel at the symmetric state.
    dS
        Change of its logits.
    V
        Values at the symmetric state.

    Raises
    ------
    InvalidInputError
        If shapes do not fit.

    Notes
    -----
    Source 004 eqs 86–90.

    Examples
    --------
    >>> A = torch.full((3, 3), 1 / 3, dtype=torch.float64)
    >>> found = routing_residuals(A, torch.eye(3).double(), torch.ones(3, 1).double())
    >>> float(found.row_sums) < 1e-15, float(found.values) < 1e-15
    (True, True)
    """
    A, dS, V = _widened(A, dS, V)
    dA, n = kernel_derivative(A, dS), A.shape[-1]
    size = dS.abs().amax((-2, -1))
    gap = dA @ V - dA @ _rough(V)
    return RoutingResiduals(
        row_sums=_share(dA.sum(-1).abs().amax(-1), size),
        constants=(A.sum(-1) / n - 1 / n).abs().amax(-1) * n,
        values=_share(_held(_norm(gap)), size * _norm(V)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternBound:
    r"""Size of a pattern change and what bounds it, one number per kernel.

    Attributes
    ----------
    measured
        $\Vert\delta A V_0\Vert$ (Frobenius).
    rowwise
        The first bound of the module, from the oscillation and width of each row.
    bound
        The second, $2\sqrt{N/N_{\rm eff}^{\min}}\,\Vert\delta S\Vert_{\max}\Vert P_\perp V_0\Vert$.
    effective_width
        $N_{\rm eff}^{\min}$, between 1 and N.
    """

    measured: Float[Tensor, "*batch"]
    rowwise: Float[Tensor, "*batch"]
    bound: Float[Tensor, "*batch"]
    effective_width: Float[Tensor, "*batch"]

    @property
    def tightness(self) -> Float[Tensor, "*batch"]:
        """Measured over bound, between 0 and 1."""
        return _share(self.measured, self.bound)


def pattern_bound(
    A: Float[Tensor, "*batch N N"], dS: Float[Tensor, "*batch N N"], V: Float[Tensor, "*batch N d"]
) -> PatternBound:
    r"""Bound on what a change of the attention pattern does, with its real constant.

    Parameters
    ----------
    A, dS, V
        As for `routing_residuals`.

    Raises
    ------
    InvalidInputError
        If shapes do not fit.

    Notes
    -----
    Source 004 eqs 92–99; E87 on what it does not say.

    Examples
    --------
    >>> v = torch.tensor([1.0, -1.0], dtype=torch.float64)
    >>> found = pattern_bound(torch.full((2, 2), 0.5).double(), v.expand(2, 2), v[:, None])
    >>> float(found.tightness)
    0.5
    """
    A, dS, V = _widened(A, dS, V)
    rough = _norm(_rough(V))
    width = 1 / A.square().sum(-1)
    osc = dS.amax(-1) - dS.amin(-1)
    narrowest = width.amin(-1)
    factor = 2 * (A.shape[-1] / narrowest).sqrt() * dS.abs().amax((-2, -1))
    return PatternBound(
        measured=_held(_norm(kernel_derivative(A, dS) @ _rough(V))),
        rowwise=_held((osc.double().square() / width).sum(-1).sqrt().to(osc.dtype) * rough),
        bound=_held(factor * rough),
        effective_width=narrowest,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioBound:
    r"""Pattern change against routing, one number per kernel.

    Attributes
    ----------
    measured
        $\Vert\delta A V_0\Vert / \Vert A_0\delta V\Vert$.
    bound
        The bound of eq 105, ∞ where the values are too rough for it to say anything.
    transmission
        $\lambda_\perp = \Vert A_0P_\perp\Vert$, the spectral norm.
    """

    measured: Float[Tensor, "*batch"]
    bound: Float[Tensor, "*batch"]
    transmission: Float[Tensor, "*batch"]


def ratio_bound(
    A: Float[Tensor, "*batch N N"],
    dS: Float[Tensor, "*batch N N"],
    V: Float[Tensor, "*batch N d"],
    dV: Float[Tensor, "*batch N d"],
) -> RatioBound:
    r"""Whether routing dominates pattern modulation, as far as smooth values make it.

    .. math::
        \frac{\Vert\delta A V_0\Vert}{\Vert A_0\delta V\Vert} \le
        \frac{2\sqrt{N/N_{\rm eff}^{\min}}\,\Vert\delta S\Vert_{\max}\Vert P_\perp V_0\Vert}
        {\Vert P_0\delta V\Vert - \lambda_\perp\Vert P_\perp\delta V\Vert}

    Parameters
    ----------
    A, dS, V
        As for `routing_residuals`.
    dV
        Change of the values.

    Raises
    ------
    InvalidInputError
        If shapes do not fit.

    Notes
    -----
    Eq 105 of source 004 in one piece. What makes it small is a small $P_\perp V_0$, not a large
    width: $\sqrt{N/N_{\rm eff}} \ge 1$ (E87). It is empty, ∞, as soon as the denominator is not
    positive. One singular value decomposition per kernel, O(N³).

    Examples
    --------
    >>> A = torch.full((2, 2), 0.5, dtype=torch.float64)
    >>> dS, one = torch.eye(2).double(), torch.ones(2, 1).double()
    >>> found = ratio_bound(A, dS, one, one)
    >>> float(found.measured), float(found.bound)
    (0.0, 0.0)
    """
    A, dS, V = _widened(A, dS, V)
    dV = _widened(A, dS, dV)[2]
    found = pattern_bound(A, dS, V)
    kept = A - A.mean(-1, keepdim=True)
    transmission = torch.linalg.matrix_norm(kept, 2)
    left = _norm(dV - _rough(dV)) - transmission * _norm(_rough(dV))
    bound = torch.where(left > 0, found.bound / left.where(left > 0, 1.0), torch.inf)
    return RatioBound(
        measured=_share(found.measured, _norm(A @ dV)), bound=bound, transmission=transmission
    )


def _rough(V: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch N d"]:
    """P_⊥V: what is left of the values without their mean over tokens."""
    return V - V.mean(-2, keepdim=True)


def _held(x: Tensor) -> Tensor:
    return within_range(x, "The change of attention", infinite=True)


def _norm(x: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch"]:
    # Squares of single precision leave its range before their root does.
    size: Tensor = torch.linalg.matrix_norm(x, dtype=torch.float64).to(x.dtype)
    return size


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Part over whole; nothing of nothing is zero."""
    return torch.where(part == 0, 0.0, part / torch.where(part == 0, 1.0, whole))


def _widened(A: Tensor, dS: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or dS.shape[-2:] != A.shape[-2:]:
        raise InvalidInputError(
            "kernel and change of logits must be square, one row and column per token; got "
            f"{tuple(A.shape)} and {tuple(dS.shape)}."
        )
    if V.ndim < 2 or V.shape[-2] != A.shape[-1]:
        raise InvalidInputError(
            f"values must have one row for each of the {A.shape[-1]} tokens; got {tuple(V.shape)}."
        )
    for x, name in ((A, "kernel"), (dS, "change of logits"), (V, "values")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
    wide = torch.promote_types(A.dtype, torch.float32)
    return A.to(wide), dS.to(wide), V.to(wide)
