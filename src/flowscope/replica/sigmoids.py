r"""Sigmoids by least squares, many curves at a time.

$$
f(x) = a + (b - a)\,\sigma\Bigl(\frac{x-\tau}{w}\Bigr), \qquad \sigma(u) = \frac1{1+e^{-u}},
$$

$a$ the level before, $b$ the level after, $\tau$ the midpoint, $w$ the width. Given $(\tau, w)$ the
levels are linear, so only these two are searched (variable projection): first over a grid of
$\tau\in[x_1-\frac12L, x_n+\frac12L]$ and $w\in[\frac14h, L]$, $L$ the range scanned and $h$ the
median spacing, so fine that no basin lies between its points; then, from the best of the narrow and
of the wide ones, by damped Newton steps. What is left of a curve, $r$, has the slopes

$$
\frac{\partial r}{\partial\theta} = -(b-a)\,P_\perp\frac{\partial\sigma}{\partial\theta},
\qquad \theta\in\{\tau, \log w\},
$$

up to a part that $r$ does not see,
$P_\perp$ the projection that takes out $1$ and $\sigma$.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from flowscope.errors import InvalidInputError

__all__ = ["SigmoidFit", "sigmoid_fit"]

Array = NDArray[np.float64]

_WIDTHS = 16  # of the grid
_ITERATIONS, _SETTLED, _NUDGE = 40, 1e-6, 1e-5
_FEWEST_STEPS = 6


class SigmoidFit(NamedTuple):
    r"""A fitted curve $f(x) = a + (b-a)\sigma((x-\tau)/w)$.

    ``before`` is $a$, ``after`` $b$, ``midpoint`` $\tau$, ``width`` $w$, ``residual`` the root mean
    square of what is left.
    """

    before: float
    after: float
    midpoint: float
    width: float
    residual: float

    def __call__(self, x: ArrayLike) -> Array:
        """The curve at x."""
        u = (np.asarray(x, dtype=np.float64) - self.midpoint) / self.width
        return np.asarray(self.before + (self.after - self.before) * expit(u))


def sigmoid_fit(
    x: Float[NDArray[np.floating], "steps"], y: Float[NDArray[np.floating], "steps"]
) -> SigmoidFit:
    r"""Least-squares sigmoid through a curve that rises or falls.

    $$
    \min_{a,b,\tau,w}\sum_j\bigl(y_j - a - (b-a)\,\sigma((x_j-\tau)/w)\bigr)^2
    $$

    Parameters
    ----------
    x
        Steps, increasing, six at least.
    y
        Values.

    Raises
    ------
    InvalidInputError
        If there are too few steps, they do not increase, or a value is not finite.

    Notes
    -----
    $\tau$ may leave the range scanned by half of its length, $w$ lies between a quarter of the
    spacing and the length; a step sharper than that is put near the middle of two steps. A constant
    curve has every midpoint; one of them is returned, with $a=b$.

    Examples
    --------
    >>> x = np.linspace(0, 10, 21)
    >>> fit = sigmoid_fit(x, 1 - 0.5 / (1 + np.exp(-(x - 4) / 0.8)))
    >>> round(fit.midpoint, 6), round(fit.width, 6), round(fit.after - fit.before, 6)
    (4.0, 0.8, -0.5)
    """
    steps, curve = checked_curves(x, np.asarray(y, dtype=np.float64)[None])
    return SigmoidFit(*fitted_parameters(steps, curve)[0].tolist())


def fitted_parameters(
    x: Float[NDArray[np.float64], "steps"], curves: Float[NDArray[np.float64], "curves steps"]
) -> Float[NDArray[np.float64], "curves 5"]:
    """Columns a, b, τ, w and the root mean square of what is left, a row per curve."""
    length = x[-1] - x[0]
    u = (x - x[0]) / length  # both searched parameters are then of order one
    starts = np.concatenate(_best_of_grid(u, curves))
    ends = np.split(_descended(u, np.tile(curves, (2, 1)), starts), 2)
    costs = [_projection(u, curves, end)[3] for end in ends]
    point = np.where((costs[0] <= costs[1])[:, None], *ends)
    s, slope, _, cost = _projection(u, curves, point)
    before = curves.mean(1) - slope * s.mean(1)
    tau, width = x[0] + length * point[:, 0], length * np.exp(point[:, 1])
    return np.stack([before, before + slope, tau, width, np.sqrt(cost / len(x))], 1)


def _bounds(u: Array) -> tuple[Array, Array]:
    """Lowest and highest (τ, log w), in units of the scanned range."""
    return np.array([-0.5, np.log(np.median(np.diff(u)) / 4)]), np.array([1.5, 0.0])


def _best_of_grid(u: Array, curves: Array) -> tuple[Array, Array]:
    """Best points (τ, log w) with a narrow and with a wide sigmoid."""
    low, high = _bounds(u)
    finest = np.exp(low[1])
    logs = np.linspace(low[1], high[1], _WIDTHS)
    out = []
    for half in np.split(logs, 2):
        grid = np.concatenate(
            [
                np.stack([middles, np.full(len(middles), log)], 1)
                for log in half
                for middles in [np.arange(low[0], high[0], max(np.exp(log) / 2, finest))]
            ]
        )
        s = expit((u - grid[:, :1]) / np.exp(grid[:, 1:]))
        s -= s.mean(1, keepdims=True)
        size = np.linalg.norm(s, axis=1)
        # A shape that is flat over the scanned range explains nothing.
        s /= np.where(size > 1e-6, size, np.inf)[:, None]
        panel = max(1, 2**22 // len(grid))
        best = [
            ((curves[k : k + panel] @ s.T) ** 2).argmax(1) for k in range(0, len(curves), panel)
        ]
        out.append(grid[np.concatenate(best)])
    return out[0], out[1]


def _descended(u: Array, curves: Array, start: Array) -> Array:
    """Damped Newton steps from a start per curve, inside the bounds; settled curves are left."""
    low, high = _bounds(u)
    point = start.copy()
    damping = np.full(len(curves), 1e-2)
    active = np.arange(len(curves))
    for _ in range(_ITERATIONS):
        y, here = curves[active], point[active]
        cost, slopes, H = _expansion(u, y, here)
        # A parameter that is pressed against its bound stays there; the other moves alone.
        pressed = ((here <= low) & (slopes > 0)) | ((here >= high) & (slopes < 0))
        free = ~pressed
        slopes = np.where(free, slopes, 0.0)
        H = np.where(free[:, None, :] & free[:, :, None], H, 0.0)
        diagonal = np.einsum("cii->ci", H)
        lift = damping[active, None] * diagonal + 1e-12 * diagonal.max(1, keepdims=True) + 1e-300
        move = -np.linalg.solve(H + lift[:, None, :] * np.eye(2), slopes[..., None])[..., 0]
        trial = np.clip(here + np.clip(move, -0.5, 0.5), low, high)
        better = _projection(u, y, trial)[3] < cost
        point[active] = np.where(better[:, None], trial, here)
        damping[active] *= np.where(better, 0.1, 10.0)
        done = (np.abs(trial - here).max(1) < _SETTLED) | (damping[active] > 1e6)
        active = active[~done]
        if not len(active):
            break
    return point


def _expansion(u: Array, curves: Array, point: Array) -> tuple[Array, Array, Array]:
    """Cost, and the slopes and bends of half of it in τ and log w.

    Bends are differences of slopes; where they do not describe a valley, those of Gauss–Newton.
    """
    s, slope, left, cost = _projection(u, curves, point)
    J = _slopes(u, point, s, slope)
    here = np.einsum("cxi,cx->ci", J, left)
    columns = []
    for k in range(2):
        shifted = point + _NUDGE * np.eye(2)[k]
        s, slope, left, _ = _projection(u, curves, shifted)
        there = np.einsum("cxi,cx->ci", _slopes(u, shifted, s, slope), left)
        columns.append((there - here) / _NUDGE)
    H = np.stack(columns, -1)
    H = (H + H.mT) / 2
    valley = (H[:, 0, 0] > 0) & (H[:, 0, 0] * H[:, 1, 1] > H[:, 0, 1] ** 2)
    return cost, here, np.where(valley[:, None, None], H, np.einsum("cxi,cxj->cij", J, J))


def _projection(u: Array, curves: Array, point: Array) -> tuple[Array, Array, Array, Array]:
    """Shape σ, best b − a, what is left of each curve, and the sum of its squares."""
    s = expit((u - point[:, :1]) / np.exp(point[:, 1:]))
    centred = s - s.mean(1, keepdims=True)
    size = (centred**2).sum(1)
    slope = (centred * curves).sum(1) / np.where(size > 1e-12, size, np.inf)
    left = curves - curves.mean(1, keepdims=True) - slope[:, None] * centred
    return s, slope, left, (left**2).sum(1)


def _slopes(u: Array, point: Array, s: Array, slope: Array) -> Float[NDArray[np.float64], "c x 2"]:
    """Slopes of what is left in τ and log w, with 1 and σ taken out."""
    bend = s * (1 - s)
    width = np.exp(point[:, 1:])
    D = np.stack([-bend / width, -bend * (u - point[:, :1]) / width], -1)
    D -= D.mean(1, keepdims=True)
    centred = s - s.mean(1, keepdims=True)
    size = (centred**2).sum(1)
    share = np.einsum("cx,cxi->ci", centred, D) / np.where(size > 1e-12, size, np.inf)[:, None]
    return np.asarray(-slope[:, None, None] * (D - centred[..., None] * share[:, None, :]))


def checked_curves(steps: ArrayLike, values: Array) -> tuple[Array, Array]:
    x = np.asarray(steps, dtype=np.float64)
    if x.ndim != 1 or values.ndim != 2 or values.shape[1] != len(x) or len(x) < _FEWEST_STEPS:
        raise InvalidInputError(
            f"a curve needs {_FEWEST_STEPS} steps or more and a value at each; found steps of "
            f"shape {x.shape} and values of shape {values.shape}."
        )
    if not (np.isfinite(x).all() and (np.diff(x) > 0).all()):
        raise InvalidInputError("steps must be finite and increase. Sort them with their values.")
    if not np.isfinite(values).all():
        pair, step = np.argwhere(~np.isfinite(values))[0]
        raise InvalidInputError(
            f"values must be finite; found {values[pair, step]} for pair {pair} at step "
            f"{x[step]:g}. Leave such pairs out and say so."
        )
    return x, values
