r"""The numbers of a mixture along a mode, from data: separation, width, and the share of the score.

Projections $p$ of replica differences on a mode, taken as $\tfrac12N(m,c) + \tfrac12N(-m,c)$, give
$m$ and $c$ by moments. The gain $\gamma$ of the score inside a block
(`flowscope.replica.speciation`) cannot be told from the slope of the block, which contains it, only
from its bend (E84):

$$
f(a) = (\eta - \gamma\Lambda_{\rm eff})\,a - \frac{\gamma m^4}{3c^4}\,a^3 + O(a^5) .
$$
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError

__all__ = ["MixtureMoments", "ScoreGain", "mixture_moments", "score_gain"]

_TERMS = 4  # odd powers of the fit: 1, 3, 5, 7


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureMoments:
    """Separation and width of a symmetric two-component mixture, with intervals over seeds.

    Attributes
    ----------
    m2, c, m2_interval, c_interval
        By moments, and their percentile intervals.
    separation_interval
        Of $3E[p^2]^2 - E[p^4] = 2m^4$, reflected at the estimate; below 0 it says that tails are
        heavier than a Gaussian's. Its lower end above 0 is evidence of separation.
    """

    m2: float
    c: float
    m2_interval: tuple[float, float]
    c_interval: tuple[float, float]
    separation_interval: tuple[float, float]


def mixture_moments(
    p: Float[NDArray[np.floating], "seeds *draws"],
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> MixtureMoments:
    r"""Moments of a mixture $\tfrac12N(m,c) + \tfrac12N(-m,c)$ from projections on a mode.

    .. math:: m^4 = \tfrac12\bigl(3\,E[p^2]^2 - E[p^4]\bigr)_+, \qquad c = E[p^2] - m^2

    Parameters
    ----------
    p
        Projections, one row per seed; those of one seed are resampled together. Their mean is not
        taken off: swapping the replicas changes their sign.
    resamples, level
        Bootstrap over seeds.
    seed
        Of the resamples.

    Raises
    ------
    InvalidInputError
        If there are fewer than two seeds, a projection is not finite, or a level is not in (0, 1).

    Notes
    -----
    Where the fourth moment is that of a Gaussian or larger there is no separation to see, and
    $m = 0$. Near $m = 0$ the square root makes $m^2$ too large, and $m^2 > 0$ is no evidence of
    separation: of Gaussian draws 84 % have it at 8 seeds and 60 % at 64. The lower end of
    ``separation_interval`` at 95 % is above 0 in 0 to 2 % of them up to 64 seeds and in 6 % at 256.
    With m² = 4, c = 1 it is in 12 % at 8 seeds, 24 % at 16 and 99 % at 64. Intervals of c are too
    short for few seeds: at a nominal 95 % they then cover 64 % at 8, 80 % at 32 and 90 % at 256;
    those of m² cover 90 to 96 % (``benchmarks/replica_mixture.py``, 400 repeats).

    Examples
    --------
    >>> import numpy as np
    >>> found = mixture_moments(np.array([2.0, -2.0, 2.0, -2.0]))
    >>> found.m2, found.c
    (4.0, 0.0)
    """
    values = np.asarray(p, dtype=np.float64)
    if values.ndim < 1 or len(values) < 2 or not values.size:
        raise InvalidInputError(
            f"moments of a mixture need projections of at least two seeds; got {values.shape}."
        )
    if not np.isfinite(values).all():
        raise InvalidInputError("projections must be finite; there is NaN or ∞ among them.")
    if not 0 < level < 1 or resamples < 2:
        raise InvalidInputError(
            f"level must lie in (0, 1) and resamples be at least 2; got {level} and {resamples}."
        )
    rows = values.reshape(len(values), -1)
    means = np.stack([(rows**2).mean(1), (rows**4).mean(1)])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(rows), (resamples, len(rows)))
    here, again = means.mean(1), means[:, drawn].mean(2)
    m2, c = _separated(*here)
    ends = [(1 - level) / 2, (1 + level) / 2]
    m2_ends, c_ends = (np.quantile(x, ends) for x in _separated(*again))
    low, high = np.quantile(_below_gaussian(*again), ends)
    twice = 2 * _below_gaussian(*here)
    return MixtureMoments(
        m2=float(m2),
        c=float(c),
        m2_interval=(float(m2_ends[0]), float(m2_ends[1])),
        c_interval=(float(c_ends[0]), float(c_ends[1])),
        separation_interval=(float(twice - high), float(twice - low)),
    )


def _below_gaussian(
    second: NDArray[np.float64], fourth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What the fourth moment lacks to that of a Gaussian of the same variance: 2m⁴."""
    return 3 * second**2 - fourth


def _separated(
    second: NDArray[np.float64], fourth: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """m² and c from the second and fourth moment."""
    # E[p⁴] ≥ E[p²]², so that m² ≤ E[p²] but for rounding.
    m2 = np.minimum(np.sqrt(np.maximum(_below_gaussian(second, fourth), 0) / 2), second)
    return m2, second - m2


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreGain:
    r"""Score gain of a block along a mode, from the bend of its response.

    Attributes
    ----------
    slope
        Coefficient of $a$: the live gain $\eta - \gamma\Lambda_{\rm eff}$.
    cubic, cubic_error
        Coefficient of $a^3$ and its error: two standard errors of the fit and the change between
        fits to $a^5$ and to $a^7$.
    gamma, gamma_error
        $\gamma = -3\,\text{cubic}\;c^4/m^4$ and its error at given m², c; None where not told.
    eta
        Gain without the score, $\text{slope} + \gamma\Lambda_{\rm eff}$; None where γ is.
    reason
        Why γ is not told; None where it is.
    """

    slope: float
    cubic: float
    cubic_error: float
    gamma: float | None
    gamma_error: float | None
    eta: float | None
    reason: str | None


def score_gain(
    response: Float[NDArray[np.floating], "n"],
    amplitudes: Float[NDArray[np.floating], "n"],
    *,
    m2: float,
    c: float,
) -> ScoreGain:
    r"""Score gain γ from the cubic part of a block's response at finite amplitude.

    .. math:: \tfrac12\bigl(f(a) - f(-a)\bigr) =
              (\eta - \gamma\Lambda_{\rm eff})\,a - \frac{\gamma m^4}{3c^4}\,a^3 + O(a^5)

    Parameters
    ----------
    response
        f(a): the block's image of the mode with amplitude a, projected on the mode. Even parts and
        a constant drop out.
    amplitudes
        a, with both signs of each; at least six of either. Take them up to about a third of c/m:
        larger ones need more powers, smaller ones lose the cubic in rounding.
    m2, c
        Of the mixture at this block and step (`mixture_moments`).

    Raises
    ------
    InvalidInputError
        If lengths differ, an amplitude lacks its partner, there are too few, or c is not positive.

    Notes
    -----
    Least squares on odd powers up to 7. It abstains, with the reason, where the cubic part is
    within its error, has the sign of a response that stiffens, or m² is zero. The error does not
    contain that of m² and c, of which γ takes the second and fourth power. Source 004 leaves γ
    unmeasured; E84.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.linspace(-0.2, 0.2, 13)
    >>> from flowscope.replica import mixture_step
    >>> f = mixture_step(a, 0.4, m2=0.9, c=0.5, eta=0.7)
    >>> found = score_gain(f, a, m2=0.9, c=0.5)
    >>> round(found.gamma, 3), round(found.eta, 3)
    (0.4, 0.7)
    """
    if not 0 < c < math.inf or not 0 <= m2 < math.inf:
        raise InvalidInputError(f"a mixture has c > 0 and m² ≥ 0; got c = {c!r} and m² = {m2!r}.")
    a, odd = _odd_part(response, amplitudes)
    slope, cubic, error = _cubic(a, odd)
    reason = None
    if m2 == 0:
        reason = "the mixture has no separation, m² = 0, so that a score would not bend the block"
    elif abs(cubic) <= error:
        reason = f"the cubic part {cubic:.3g} is within its error {error:.3g}"
    elif cubic > 0:
        reason = f"the cubic part {cubic:.3g} has the wrong sign: the response stiffens"
    if reason is not None:
        return ScoreGain(slope=slope, cubic=cubic, cubic_error=error, gamma=None,
                         gamma_error=None, eta=None, reason=reason)  # fmt: skip
    factor = 3 * c**4 / m2**2
    gamma = -factor * cubic
    eta = slope + gamma * (1 / c - m2 / c**2)
    return ScoreGain(slope=slope, cubic=cubic, cubic_error=error, gamma=gamma,
                     gamma_error=factor * error, eta=eta, reason=None)  # fmt: skip


def _odd_part(
    response: NDArray[np.floating], amplitudes: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positive amplitudes and the odd part of the response there."""
    a, f = (np.asarray(x, dtype=np.float64) for x in (amplitudes, response))
    if a.ndim != 1 or a.shape != f.shape or not np.isfinite(a).all() or not np.isfinite(f).all():
        raise InvalidInputError(
            f"response and amplitudes must be finite rows of one length; got {f.shape} and "
            f"{a.shape}."
        )
    order = np.argsort(a)
    a, f = a[order], f[order]
    if not np.allclose(a, -a[::-1], rtol=1e-9, atol=1e-12 * np.abs(a).max(initial=0)):
        raise InvalidInputError(
            "amplitudes must come with both signs: the odd part of a response is (f(a) − f(−a))/2."
        )
    positive = a > 0
    if len(np.unique(a[positive])) < _TERMS + 2:
        raise InvalidInputError(
            f"a cubic part with its error needs at least {_TERMS + 2} amplitudes of either sign; "
            f"got {len(np.unique(a[positive]))}."
        )
    return a[positive], ((f - f[::-1]) / 2)[positive]


def _cubic(a: NDArray[np.float64], odd: NDArray[np.float64]) -> tuple[float, float, float]:
    """Coefficients of a and a³ by least squares on odd powers, and the error of the second."""
    unit = float(a.max())
    powers = (a[:, None] / unit) ** (2 * np.arange(_TERMS) + 1)
    inverse = np.linalg.pinv(powers)
    found, fewer = inverse @ odd, np.linalg.pinv(powers[:, :-1]) @ odd
    left = odd - powers @ found
    spread = math.sqrt(float(left @ left) / (len(a) - _TERMS))
    row = float(np.linalg.norm(inverse[1]))
    error = 2 * spread * row + abs(float(found[1] - fewer[1]))
    return float(found[0]) / unit, float(found[1]) / unit**3, error / unit**3
