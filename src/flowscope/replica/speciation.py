r"""When a difference between replicas commits to a branch: one mode of a two-component mixture.

Along a mode the difference $a$ is taken to come from $\tfrac12 N(m, c) + \tfrac12 N(-m, c)$, and a
block to add a share $\gamma$ of the score to what it transports (004 eqs 34–36):

$$
f(a) = \eta\,a + \gamma\Bigl[-\frac ac + \frac mc\tanh\frac{ma}{c}\Bigr] .
$$

With $u = ma/c$ its fixed points are those of

$$
u = \kappa\tanh u, \qquad \kappa = \frac{\gamma m^2}{c\,\bigl((1-\eta)c + \gamma\bigr)} ,
$$

zero alone up to $\kappa = 1$ and a pair $\pm u$ beyond, $u^2 = 3\epsilon + \tfrac{18}5\epsilon^2 +
O(\epsilon^3)$ with $\epsilon = 1 - 1/\kappa$. The onset is where the slope of $f$ at zero, which is
what a derivative of the live block measures, is one:

$$
\kappa = 1 \iff \eta - \gamma\Lambda_{\rm eff} = 1, \qquad
\Lambda_{\rm eff} = \frac1c - \frac{m^2}{c^2} .
$$

Putting the measured slope in the place of $\eta$ counts the score twice (E84). What $m$, $c$ and
$\gamma$ of a live block are, `flowscope.replica.mixture` reads from data. The "signal-to-noise
ratio" of 004 eq 53 is $\kappa/\gamma$ and not a fixed number at onset (E83).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from flowscope.errors import InvalidInputError

__all__ = [
    "live_gain",
    "mixture_amplitude",
    "mixture_step",
    "speciation_parameter",
]

# Series of 1 − tanh(u)/u in u², for arguments at which the difference would lose digits.
_SERIES = (1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925)
_SERIES_BELOW = 0.03


def speciation_parameter(gamma: float, *, m2: float, c: float, eta: float) -> float:
    r"""Speciation parameter $\kappa = \gamma m^2 / \bigl(c((1-\eta)c+\gamma)\bigr)$; onset at 1.

    Parameters
    ----------
    gamma
        Score gain γ > 0.
    m2, c
        m² ≥ 0 and c > 0 of the mixture.
    eta
        Gain η of the block *without* its score; not the slope of the live block (`live_gain`).

    Raises
    ------
    InvalidInputError
        If a number is out of range, or $(1-\eta)c + \gamma \le 0$: then the block amplifies the
        mode whatever the score does, and there is no κ.

    Notes
    -----
    Source 004 eq 50.

    Examples
    --------
    >>> speciation_parameter(0.4, m2=0.6875, c=0.5, eta=0.7)
    1.0
    """
    _refuse_numbers(gamma, m2, c, eta)
    pull = (1 - eta) * c + gamma
    if pull <= 0:
        raise InvalidInputError(
            f"the block amplifies this mode by itself: (1 − η)c + γ = {pull:.4g} must be positive "
            f"for a speciation parameter (η = {eta:.4g}, c = {c:.4g}, γ = {gamma:.4g}). Report the "
            "slope of the block instead."
        )
    return gamma * m2 / (c * pull)


def live_gain(gamma: float, *, m2: float, c: float, eta: float) -> float:
    r"""Slope $\eta - \gamma\Lambda_{\rm eff}$ of the block at zero: what its derivative measures.

    Parameters
    ----------
    gamma, m2, c, eta
        As for `speciation_parameter`.

    Raises
    ------
    InvalidInputError
        If a number is out of range.

    Notes
    -----
    Source 004 eqs 38–39, one mode.

    Examples
    --------
    >>> live_gain(0.4, m2=0.6875, c=0.5, eta=0.7)
    1.0
    """
    _refuse_numbers(gamma, m2, c, eta)
    return eta - gamma * (1 / c - m2 / c**2)


def mixture_step(
    a: ArrayLike, gamma: float, *, m2: float, c: float, eta: float
) -> Float[NDArray[np.float64], "*shape"]:
    r"""One block along one mode, $f(a)$ of the module.

    Parameters
    ----------
    a
        Amplitudes of the difference.
    gamma, m2, c, eta
        As for `speciation_parameter`.

    Raises
    ------
    InvalidInputError
        If a number is out of range.

    Notes
    -----
    Source 004 eq 36, one mode.

    Examples
    --------
    >>> float(mixture_step(0.5, 1.0, m2=0.0, c=2.0, eta=1.0))
    0.25
    """
    _refuse_numbers(gamma, m2, c, eta)
    x, m = np.asarray(a, dtype=np.float64), math.sqrt(m2)
    if not np.isfinite(x).all():
        raise InvalidInputError("a must be finite; found NaN or infinity. Look for the overflow.")
    return np.asarray(eta * x + gamma * (-x / c + (m / c) * np.tanh(m * x / c)))


def mixture_amplitude(kappa: float) -> float:
    r"""The branch $u \ge 0$ of $u = \kappa\tanh u$: zero up to $\kappa = 1$, positive beyond.

    Parameters
    ----------
    kappa
        κ ≥ 0. The amplitude of the difference itself is $a = uc/m$.

    Raises
    ------
    InvalidInputError
        If κ is negative or not finite.

    Notes
    -----
    Bracketed between $\sqrt{3\epsilon}$ and κ, then Brent's method on $1 - \tanh(u)/u = \epsilon$,
    which keeps its digits at the onset. Source 004 eq 49.

    Examples
    --------
    >>> mixture_amplitude(0.9), round(mixture_amplitude(1.01), 5)
    (0.0, 0.17338)
    """
    if not 0 <= kappa < math.inf:
        raise InvalidInputError(f"κ must be finite and not negative; got {kappa!r}.")
    if kappa <= 1:
        return 0.0
    excess = (kappa - 1) / kappa
    low = math.sqrt(3 * excess)
    if kappa - low <= 1e-15 * kappa:  # the bracket is empty to rounding
        return kappa
    return float(brentq(lambda u: _lag(u) - excess, 0.5 * low, kappa, xtol=1e-300, rtol=1e-14))


def _lag(u: float) -> float:
    """1 − tanh(u)/u, without cancellation."""
    if u > _SERIES_BELOW:
        return 1 - math.tanh(u) / u
    square = u * u
    return square * sum(factor * square**power for power, factor in enumerate(_SERIES))


def _refuse_numbers(gamma: float, m2: float, c: float, eta: float) -> None:
    if not (0 < gamma < math.inf and 0 <= m2 < math.inf and 0 < c < math.inf):
        raise InvalidInputError(
            "a mixture step has γ > 0, m² ≥ 0 and c > 0, all finite; got "
            f"γ = {gamma!r}, m² = {m2!r}, c = {c!r}."
        )
    if not math.isfinite(eta):
        raise InvalidInputError(f"the gain η must be finite; got {eta!r}.")
