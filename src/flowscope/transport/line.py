r"""Transport on the line, where the optimal coupling is known: quantiles are matched in order.

.. math:: W_p^p(\mu, \nu) = \int_0^1 |F^{-1}(q) - G^{-1}(q)|^p\,dq

For finite laws both quantile functions are steps, and the integral is a finite sum over the merged
levels of the two cumulative masses.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse
from flowscope.transport.masses import as_masses, rounding_unit, same_total

__all__ = ["EMPTY", "ProximalLine", "wasserstein_1d"]

Array = npt.NDArray[np.float64]

# Cells with less than this share of the mass are empty: their quantile slopes would overflow.
EMPTY = 1e-30


def wasserstein_1d(
    x: Float[Tensor, "*batch n"] | ArrayLike,
    y: Float[Tensor, "*batch m"] | ArrayLike,
    a: Float[Tensor, "*batch n"] | ArrayLike | None = None,
    b: Float[Tensor, "*batch m"] | ArrayLike | None = None,
    *,
    order: float = 1.0,
) -> Float[Tensor, "*batch"]:
    r"""Wasserstein distance of two finite laws on the line.

    .. math:: W_p = \Bigl(\sum_k (q_k - q_{k-1})\,|x_{\sigma(k)} - y_{\tau(k)}|^p\Bigr)^{1/p}

    Parameters
    ----------
    x, y : the atoms, in any order; n and m may differ, leading axes broadcast.
    a, b : their masses, non-negative with equal totals; uniform of total one when missing. The
        q_k are the merged cumulative masses, σ(k), τ(k) the sorted atoms reaching them.
    order : p ≥ 1, finite. The cost is \|x − y\|^p without the ½ of the solvers, and the p-th root
        is taken. With masses of total M the p-th power is M times that of the normalised laws.

    Raises
    ------
    InvalidInputError
        If a number is not finite, a mass is negative, totals differ by more than rounding, shapes
        do not match, or p < 1.

    Notes
    -----
    Exact. O((n + m) log(n + m)) time, linear memory; levels in float64 whatever the input, result
    in the widest input dtype. Levels closer than (n + m)·eps of the total are one level. Slopes
    exist in x, y and in the masses: at ties they are one of the one-sided ones, and 0 at distance
    zero. Source: Santambrogio (2015), Prop. 2.17.

    Examples
    --------
    >>> wasserstein_1d([0.0, 1.0], [0.0, 3.0, 3.0, 4.0], order=1)
    tensor(2., dtype=torch.float64)
    """
    if not 1 <= order < float("inf"):
        raise InvalidInputError(
            f"order must be finite and >= 1; found {order:.6g}. Below 1 sorting is not optimal."
        )
    left, right = _as_atoms(x, "x"), _as_atoms(y, "y")
    masses_a = as_masses(a, "a", left.shape[-1], left)
    masses_b = as_masses(b, "b", right.shape[-1], right)
    dtype = left.dtype
    for other in (right, masses_a, masses_b):
        dtype = torch.promote_types(dtype, other.dtype)
    masses_a, masses_b = masses_a.double(), masses_b.double()
    batch = _common_batch([left, right, masses_a, masses_b])
    unit = rounding_unit(a, dtype) + rounding_unit(b, dtype)
    masses_a, masses_b = masses_a.expand(*batch, -1), masses_b.expand(*batch, -1)
    masses_b, total = masses_b * same_total(masses_a, masses_b, unit), masses_a.sum(-1)
    left, levels_a = _quantiles(left.double().expand(*batch, -1), masses_a)
    right, levels_b = _quantiles(right.double().expand(*batch, -1), masses_b)
    levels = torch.cat([levels_a, levels_b], -1).sort(-1).values
    width = torch.diff(levels, dim=-1, prepend=torch.zeros_like(levels[..., :1]))
    width = width.where(width > levels.shape[-1] * torch.finfo(width.dtype).eps, 0.0)
    gap = (_at_level(left, levels_a, levels) - _at_level(right, levels_b, levels)).abs()
    gap = gap.where(width > 0, 0.0)
    # Powers are taken of gaps relative to the widest, so that no order overflows.
    widest = gap.detach().amax(-1)
    size = widest.where(widest > 0, 1.0)
    power = (width * (gap / size[..., None]) ** order).sum(-1) * total
    live = (widest > 0) & (power > 0)
    return (size * power.where(live, 1.0) ** (1 / order)).where(live, 0.0).to(dtype)


def _as_atoms(x: Tensor | ArrayLike, name: str) -> Float[Tensor, "*batch n"]:
    atoms = as_reals(x, name)
    if atoms.ndim == 0 or atoms.shape[-1] == 0:
        raise InvalidInputError(
            f"{name} must have at least one atom on its last axis; found shape "
            f"{tuple(atoms.shape)}. Pass a vector."
        )
    refuse(~atoms.isfinite(), atoms, f"{name} must be finite", "Remove such atoms first.")
    return atoms


def _common_batch(tensors: list[Tensor]) -> tuple[int, ...]:
    shapes = [tuple(t.shape[:-1]) for t in tensors]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise InvalidInputError(
            f"x, y, a and b must have leading shapes that broadcast; found {shapes}. Add or align "
            "the leading axes."
        ) from error


def _quantiles(atoms: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted atoms and their cumulative masses, the last level exactly one."""
    atoms, order = atoms.sort(-1)
    levels = masses.gather(-1, order).cumsum(-1)
    return atoms, levels / levels[..., -1:]


def _at_level(atoms: Tensor, levels: Tensor, wanted: Tensor) -> Tensor:
    place = torch.searchsorted(levels.detach().contiguous(), wanted.detach().contiguous())
    return atoms.gather(-1, place.clamp(max=atoms.shape[-1] - 1))


class ProximalLine:
    r"""The convex problem of a JKO step on the cells of an interval.

    .. math:: \min_m \frac{W_2^2(m, m_0)}{2\tau} + \sum_i m_i\bigl(U_i + \nu\log\tfrac{m_i}h\bigr),
              \qquad \tfrac12 W_2^2 = \int dx \int_{F_0(x)}^{F(x)} (Q_0(s) - x)\,ds

    m = e^u are the masses of the cells, F their sums at the edges x_j = jh (the outer integral is a
    sum over them) and Q₀ the quantile function of the start m₀. Convex in F since Q₀ increases.
    """

    def __init__(self, m0: Array, U: Array, h: float, tau: float, nu: float) -> None:
        self.m0, self.U, self.h, self.pull, self.nu = m0, U, h, h / tau, nu
        self.left = np.concatenate([[0.0], np.cumsum(m0)])
        self.right = np.concatenate([np.cumsum(m0[::-1])[::-1], [0.0]])
        live = np.flatnonzero(m0 > EMPTY)
        self.ends = int(live[0]), int(live[-1])
        # End slopes of Q₀ in each cell, relative to its chord: 2m/(m + neighbour's m).
        with np.errstate(invalid="ignore"):
            shares = (
                2 * m0 / (m0 + np.stack([np.append(m0[0], m0[:-1]), np.append(m0[1:], m0[-1])]))
            )
        self.rise = np.nan_to_num(shares)
        areas = 0.5 + (self.rise[0] - self.rise[1]) / 12
        self.moment = np.concatenate([[0.0], np.cumsum(m0 * h * (np.arange(len(m0)) + areas))])

    def first_guess(self) -> Array:
        """Take log m₀, continued outside its support by the solution there for a rigid bulk."""
        centres = np.arange(len(self.m0)) + 0.5
        inside = np.clip(centres, self.ends[0] + 0.5, self.ends[1] + 0.5)
        place = inside.astype(np.intp)
        climb = self.U - self.U[place] + (centres - inside) ** 2 * self.h * self.pull / 2
        return _normalised(np.log(self.m0[place]) - np.maximum(climb, 0) / self.nu)

    def quantiles(self, u: Array) -> tuple[Array, Array, Array]:
        """Q₀(F_j) − x_j, the slope of Q₀, and ∫_{F₀(x_j)}^{F_j}(Q₀(s) − x_j)ds at the inner edges.

        Q₀ is the monotone cubic through the edges, so that Newton sees no kinks. Levels are counted
        from the nearer end, which keeps the relative precision of both tails.
        """
        m, h, edge = np.exp(u), self.h, np.arange(1, len(u))
        F, R = np.cumsum(m)[:-1], np.cumsum(m[::-1])[::-1][1:]
        near, from_right = F <= R, len(m) - np.searchsorted(self.right[::-1], R)
        k = np.clip(np.where(near, np.searchsorted(self.left, F) - 1, from_right), *self.ends)
        cell, a, b = self.m0[k], self.rise[0, k], self.rise[1, k]
        s = np.where(near, (F - self.left[k]) / cell, 1 - (R - self.right[k + 1]) / cell)
        s = np.clip(s, 0, 1)
        c, e = 3 - 2 * a - b, a + b - 2
        shift = h * (k - edge + s * (a + s * (c + s * e)))
        slope = h / cell * (a + s * (2 * c + 3 * s * e))
        area = h * (k * s + s * s * (a / 2 + s * (c / 3 + s * e / 4)))
        level = self.left[k] - self.left[edge] + cell * s
        return shift, slope, self.moment[k] + cell * area - self.moment[edge] - h * edge * level

    def objective(self, u: Array) -> float:
        """Transport over τ plus free energy of the masses e^u, of total one."""
        energy = np.exp(u) @ (self.U + self.nu * (u - math.log(self.h)))
        return float(self.pull * self.quantiles(u)[2].sum() + energy)

    def newton(self, u: Array) -> tuple[Array, float, float]:
        """Newton direction in u, its gain of the objective, and the residual at u.

        The linear system is solved for the cumulative mass, where it is tridiagonal, and log m is
        summed up from the equation itself: differences of the solution would lose the tails.
        """
        m = np.exp(u)
        shift, slope, _ = self.quantiles(u)
        error = self.nu * np.diff(u) + np.diff(self.U) - self.pull * shift
        dF = _chain_solution(np.maximum(m, 1e-290) / self.nu, self.pull * slope, error)
        du = np.concatenate([[0.0], np.cumsum((self.pull * slope * dF - error) / self.nu)])
        unit = self.nu + self.pull * self.h
        return du - m @ du, float(error @ dF), float(np.abs(error).max() / unit)

    def solved(self, tolerance: float, most: int) -> tuple[Array, float, int]:
        """Damped Newton: u, its residual and the iterations.

        A step counts if it lowers the objective by Armijo's rule or, since rounding hides the last
        gains of the objective, the residual in proportion.
        """
        u, iterations = self.first_guess(), 0
        du, gain, residual = self.newton(u)
        while residual > tolerance and iterations < most:
            value, length, iterations = self.objective(u), 2.0, iterations + 1
            accepted = False
            while not accepted and length > 1e-8:
                length /= 2
                with np.errstate(over="ignore", invalid="ignore"):
                    moved = _normalised(u + length * du)
                    ahead = self.newton(moved)
                    lower = self.objective(moved) <= value - 1e-4 * length * gain
                accepted = lower or ahead[2] <= (1 - length / 4) * residual
            if not accepted:
                break
            u, (du, gain, residual) = moved, ahead
        return u, residual, iterations


def _chain_solution(r: Array, w: Array, current: Array) -> Array:
    """Potentials of a chain of resistors r, grounded at both ends, with conductances w to ground.

    Gaussian elimination of the tridiagonal system without a single subtraction: exact in each
    entry however the resistances vary.
    """
    n, carry, to_ground = len(w), 0.0, float(r[0])
    passed, shares, answer = np.empty(n), np.empty(n), np.empty(n)
    for j in range(n):
        to_ground /= 1 + w[j] * to_ground
        shares[j] = to_ground / (to_ground + r[j + 1])
        passed[j] = current[j] + carry
        carry = passed[j] * shares[j]
        to_ground += r[j + 1]
    behind = 0.0
    for j in reversed(range(n)):
        behind = shares[j] * (r[j + 1] * passed[j] + behind)
        answer[j] = behind
    return answer


def _normalised(u: Array) -> Array:
    top = u.max()
    shifted: Array = u - (top + np.log(np.exp(u - top).sum()))
    return shifted
