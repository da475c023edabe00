r"""Reverse steps of a variance-preserving diffusion: one family from ODE to SDE, on nested grids.

With $\bar\alpha$ the signal's share of the variance, $x = \sqrt{\bar\alpha}\,x_0 +
\sqrt{1-\bar\alpha}\,\varepsilon$ and a prediction $(\hat x_0, \hat\varepsilon)$ at the level
$\bar\alpha$, the member $\lambda$ steps to the level $\bar\alpha' > \bar\alpha$ by

$$
x' = \sqrt{\bar\alpha'}\,\hat x_0 + \sqrt{1-\bar\alpha'-\sigma^2}\,\hat\varepsilon + \sigma z,
\qquad \sigma^2 = \lambda^2\,\frac{1-\bar\alpha'}{1-\bar\alpha}
\Bigl(1-\frac{\bar\alpha}{\bar\alpha'}\Bigr) .
$$

This is DDIM with $\eta = \lambda$: the probability flow at 0, the noise of DDPM at 1. For small
steps it is the reverse family of the theory page, of first order in the step where
$\sqrt{1-\bar\alpha}$ is smooth along the grid: on a grid that is uniform in the unit clock
$t = -\tfrac12\log\bar\alpha$ down to $t = 0$ it is not (erratum E104).

Euler's step of the same family in the unit clock, $h = t - t'$, has the slope of first order from
fewer steps on, and needs more of them to be stable:

$$
x' = x + h\,\bigl(x - (1+\lambda^2)\,\hat\varepsilon/\sqrt{1-\bar\alpha}\bigr)
     + \lambda\sqrt{2h}\,z .
$$

Grids of K and 2K steps share their times, and their noise: what the fine grid draws within a coarse
step is summed with the weights of its Brownian increments, $\sqrt{t_j - t_{j+1}}$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "MergedNoise",
    "Prediction",
    "euler_step",
    "family_step",
    "log_snr",
    "nested_times",
    "unit_clock",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """What a model says of a noisy state: the clean one, and the noise in it."""

    clean: Float[Tensor, "n *shape"]
    noise: Float[Tensor, "n *shape"]


def unit_clock(level: float) -> float:
    r"""$t = -\tfrac12\log\bar\alpha$, the time of dX = −X dt + √2 dW with this signal.

    Examples
    --------
    >>> unit_clock(1.0), round(unit_clock(math.exp(-2.0)), 12)
    (0.0, 1.0)
    """
    if not 0 < level <= 1:
        raise InvalidInputError(f"A level must lie in (0, 1]; found {level:.6g}.")
    return max(0.0, -0.5 * math.log(level))


def log_snr(level: float) -> float:
    r"""$\log\bar\alpha/(1-\bar\alpha)$; infinite where there is no noise.

    Examples
    --------
    >>> log_snr(0.5)
    0.0
    """
    return math.inf if level >= 1 else math.log(level) - math.log1p(-level)


def nested_times(last: int, steps: int) -> list[int]:
    """Times from ``last`` down to 0 in nearly equal steps; those of K are among those of 2K.

    Raises
    ------
    InvalidInputError
        If there are more steps than times.

    Examples
    --------
    >>> nested_times(999, 4), nested_times(999, 2)
    ([999, 749, 500, 250, 0], [999, 500, 0])
    """
    if not 1 <= steps <= last:
        raise InvalidInputError(
            f"steps must lie between 1 and {last}, the times of the schedule; found {steps}."
        )
    return [(2 * last * (steps - k) + steps) // (2 * steps) for k in range(steps + 1)]


def family_step(
    x: Float[Tensor, "n *shape"],
    prediction: Prediction,
    now: float,
    then: float,
    lam: float,
    drawn: Float[Tensor, "n *shape"] | None = None,
) -> Float[Tensor, "n *shape"]:
    r"""One reverse step of the member $\lambda$, from the level ``now`` to the level ``then``.

    Parameters
    ----------
    x
        The state; only its prediction counts.
    prediction
        Of the model at x.
    now, then
        $\bar\alpha$ before and after; the signal grows.
    lam
        λ ∈ [0, 1].
    drawn
        Unit noise z; needed unless λ = 0.

    Raises
    ------
    InvalidInputError
        If λ is out of range, the signal does not grow, or noise is missing.

    Notes
    -----
    DDIM, Song et al. (2021), eq. 12 and 16.

    Examples
    --------
    >>> import torch
    >>> told = Prediction(clean=torch.ones(1, 1), noise=torch.zeros(1, 1))
    >>> family_step(torch.zeros(1, 1), told, 0.5, 1.0, 0.0)
    tensor([[1.]])
    """
    _check(x, now, then, lam, drawn)
    variance = lam**2 * (1 - then) / (1 - now) * (1 - now / then)
    kept = math.sqrt(max(0.0, 1 - then - variance))
    moved = math.sqrt(then) * prediction.clean + kept * prediction.noise
    return moved if drawn is None or not lam else moved + math.sqrt(variance) * drawn


def euler_step(
    x: Float[Tensor, "n *shape"],
    prediction: Prediction,
    now: float,
    then: float,
    lam: float,
    drawn: Float[Tensor, "n *shape"] | None = None,
) -> Float[Tensor, "n *shape"]:
    r"""One Euler step of the member $\lambda$ in the unit clock; arguments of `family_step`.

    Raises
    ------
    InvalidInputError
        As `family_step`.

    Examples
    --------
    >>> import torch
    >>> told = Prediction(clean=torch.zeros(1, 1), noise=torch.zeros(1, 1))
    >>> euler_step(torch.ones(1, 1), told, math.exp(-2.0), 1.0, 0.0)
    tensor([[2.]])
    """
    _check(x, now, then, lam, drawn)
    h = unit_clock(now) - unit_clock(then)
    moved = x + h * (x - (1 + lam**2) / math.sqrt(1 - now) * prediction.noise)
    return moved if drawn is None or not lam else moved + lam * math.sqrt(2 * h) * drawn


def _check(x: Tensor, now: float, then: float, lam: float, drawn: Tensor | None) -> None:
    if not 0 <= lam <= 1:
        raise InvalidInputError(f"lam must lie in [0, 1]; found {lam:.6g}.")
    if not 0 < now < then <= 1:
        raise InvalidInputError(
            f"A reverse step must raise the level within (0, 1]; found {now:.6g} to {then:.6g}."
        )
    if lam and (drawn is None or drawn.shape != x.shape):
        raise InvalidInputError("A step with lam > 0 needs unit noise of the shape of the state.")


class MergedNoise:
    """The noise of a coarse step from what a finer grid draws within it.

    Parameters
    ----------
    clock
        Unit clock of the fine grid, falling.
    """

    def __init__(self, clock: Sequence[float]) -> None:
        self._clock = clock
        self._sum: Tensor | None = None
        self._square = 0.0

    def add(self, place: int, drawn: Float[Tensor, "n *shape"]) -> None:
        """Noise of the fine step number ``place``."""
        weight = self._clock[place] - self._clock[place + 1]
        part = math.sqrt(weight) * drawn
        self._sum = part if self._sum is None else self._sum + part
        self._square += weight

    def taken(self) -> Float[Tensor, "n *shape"]:
        """Unit noise of the step that ends here; begins anew."""
        if self._sum is None:
            raise InvalidInputError("No noise was added since the last step.")
        found = self._sum / math.sqrt(self._square)
        self._sum, self._square = None, 0.0
        return found
