r"""How fast attention clusters particles on a sphere, in closed form.

Particles $x_i\in S^{d-1}$ move by softmax attention with $Q=K=V=I$. Around the uniform law a
perturbation of spherical degree $\ell$ grows as $e^{\lambda_\ell t}$,

$$
\lambda_\ell = \frac{\ell(\ell+d-2)}{\beta}\,\frac{I_{\ell+d/2-1}(\beta)}{I_{d/2-1}(\beta)},
$$

and $n$ orthonormal particles keep one common cosine $\gamma$, with

$$
\dot\gamma = \frac{2e^{\beta\gamma}(1-\gamma)((n-1)\gamma+1)}{e^\beta+(n-1)e^{\beta\gamma}}.
$$
"""

import math
from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, ive, logsumexp

from flowscope.errors import InvalidInputError

__all__ = [
    "critical_beta",
    "critical_coupling",
    "critical_noise",
    "equiangular",
    "fastest_degree",
    "growth_rate",
    "read_beta",
    "time_to_cosine",
]

LARGEST_BETA = 1e6
LARGEST_EXPONENT = 700.0
SMALLEST_BESSEL = 1e-280


def growth_rate(beta: float, degree: int, dim: int) -> float:
    r"""Rate $\lambda_\ell$ at which a perturbation of one degree of the uniform law grows.

    Parameters
    ----------
    beta
        Inverse temperature of the softmax, above 0.
    degree
        Degree $\ell\ge0$ of the spherical harmonic; on the circle, the number of bumps.
    dim
        Dimension $d\ge2$ of the space: 2 is the circle.

    Raises
    ------
    InvalidInputError
        If ``beta`` is not above 0, ``degree`` is negative or ``dim`` is below 2.

    Examples
    --------
    >>> round(growth_rate(9.0, 4, 2), 6)
    0.704497
    """
    beta, dim = read_beta(beta), _whole("dim", dim, 2)
    degree = _whole("degree", degree, 0)
    order = 0.5 * dim - 1
    ratio = math.exp(_log_bessel(order + degree, beta) - _log_bessel(order, beta))
    return degree * (degree + dim - 2) * ratio / beta


def fastest_degree(beta: float, dim: int) -> int:
    r"""Degree that grows fastest: on the circle, the number of clusters to expect first.

    The rate has one peak in $\ell$: $\lambda_{\ell+1}/\lambda_\ell$ falls with $\ell$, because
    $I_{\nu+1}/I_\nu$ falls with $\nu$. The search therefore stops at the first fall.

    Raises
    ------
    InvalidInputError
        If ``beta`` lies outside (0, 1e6] or ``dim`` is below 2.

    Examples
    --------
    >>> fastest_degree(9.0, 2), fastest_degree(4.0, 3)
    (4, 2)
    """
    degree, rate = 1, growth_rate(beta, 1, dim)
    while (following := growth_rate(beta, degree + 1, dim)) > rate:
        degree, rate = degree + 1, following
    return degree


def critical_coupling(beta: float, dim: int) -> float:
    r"""Coupling above which the uniform law of the noisy particles is unstable in degree 1.

    $$ \kappa = \frac{\beta^{d/2}}{2^{d/2}\,\Gamma(d/2)\,I_{d/2}(\beta)}, $$

    which is $\beta/2I_1(\beta)$ on the circle and tends to $d/2$ as $\beta\to0$. The model is
    unnormalised attention times $\kappa$ with Brownian noise (generator $\tfrac12\Delta$), which
    damps degree 1 at the rate $(d-1)/2$. Every higher degree needs a larger coupling.

    Raises
    ------
    InvalidInputError
        If ``beta`` lies outside (0, 1e6] or ``dim`` is below 2.

    Examples
    --------
    >>> round(critical_coupling(1e-6, 2), 6), round(critical_coupling(1e-6, 3), 6)
    (1.0, 1.5)
    """
    beta, half = read_beta(beta), 0.5 * _whole("dim", dim, 2)
    log_power = half * math.log(0.5 * beta)
    return math.exp(log_power - float(gammaln(half)) - _log_bessel(half, beta))


def critical_noise(beta: float, dim: int) -> float:
    r"""Variance $\sigma^2$ of the noise above which softmax attention leaves the law uniform.

    $$ \sigma_c^2 = \frac{2\lambda_1}{d-1}
                  = \frac2\beta\,\frac{I_{d/2}(\beta)}{I_{d/2-1}(\beta)}, $$

    where the damping of degree 1, $\tfrac12\sigma^2(d-1)$, equals its growth rate. A degree
    $\ell>1$ has $\lambda_\ell/\ell(\ell+d-2)$ below that of degree 1, so it is damped first.

    Raises
    ------
    InvalidInputError
        If ``beta`` lies outside (0, 1e6] or ``dim`` is below 2.

    Examples
    --------
    >>> round(critical_noise(1e-6, 3), 6), round(critical_noise(9.0, 2), 4)
    (0.666667, 0.2095)
    """
    return 2 * growth_rate(beta, 1, dim) / (_whole("dim", dim, 2) - 1)


def critical_beta(dim: int) -> float:
    r"""Inverse temperature $\beta$ at which $I_{d/2+1}(\beta)/I_{d/2}(\beta) = 1/d$.

    On the circle the law of the noisy particles leaves the uniform one continuously below this
    $\beta$ and by a jump above it. The ratio rises with $\beta$; it is
    below $1/d$ at 1 and above it at 4 for every $d\ge2$.

    Raises
    ------
    InvalidInputError
        If ``dim`` is below 2.

    Examples
    --------
    >>> round(critical_beta(2), 6), round(critical_beta(3), 6)
    (2.446918, 1.816155)
    """
    dim = _whole("dim", dim, 2)
    half = 0.5 * dim

    def excess(beta: float) -> float:
        return _log_bessel(half + 1, beta) - _log_bessel(half, beta) + math.log(dim)

    return float(brentq(excess, 1.0, 4.0, xtol=1e-13))


def equiangular(n: int, beta: float, t: float) -> float:
    r"""Common cosine $\gamma(t)$ of ``n`` particles that start orthonormal.

    With $u=\log\frac{(n-1)\gamma+1}{1-\gamma}$ the equation is
    $\dot u = 2n/(e^{\beta(1-\gamma)}+n-1)$; its time is an integral, which is inverted here.

    Raises
    ------
    InvalidInputError
        If ``n`` is below 2, ``beta`` lies outside (0, 700] or ``t`` is negative or not finite.

    Examples
    --------
    >>> round(equiangular(6, 2.0, 1.0), 6)
    0.249395
    """
    n, beta = _whole("n", n, 2), _read_exponent(beta)
    if not (math.isfinite(t) and t >= 0):
        raise InvalidInputError(f"t is a time of 0 or more; found {t}.")
    if t == 0:
        return 0.0
    last = math.log(n) + 80  # 1 - cosine is below the rounding of a float there
    if 2 * t > last and _time(n, beta, last) <= t:
        return 1.0
    ends, xtol = (0.0, min(2 * t, last)), 1e-14 * min(t, 1.0)
    u = float(brentq(lambda u: _time(n, beta, u) - t, *ends, xtol=xtol))
    return -math.expm1(-u) / (1 + (n - 1) * math.exp(-u))


def time_to_cosine(n: int, beta: float, cosine: float) -> float:
    """Time after which ``n`` particles that start orthonormal have a common cosine.

    Raises
    ------
    InvalidInputError
        If ``n`` is below 2, ``beta`` lies outside (0, 700] or ``cosine`` outside [0, 1).

    Examples
    --------
    >>> round(time_to_cosine(128, 8.0, 0.5), 5)
    31.90868
    """
    n, beta = _whole("n", n, 2), _read_exponent(beta)
    if not 0 <= cosine < 1:
        raise InvalidInputError(
            f"cosine lies in [0, 1), as 1 is reached only in the limit; found {cosine}."
        )
    return _time(n, beta, math.log1p((n - 1) * cosine) - math.log1p(-cosine))


def _time(n: int, beta: float, u: float) -> float:
    """Time to reach ``u``: u/2 and what self-attention holds back."""

    def delay(v: float) -> float:
        distance = n * math.exp(-v) / (1 + (n - 1) * math.exp(-v))
        return math.expm1(beta * distance) / (2 * n)

    # Beyond `last` what is left of the integral is below the rounding of a float.
    knee = math.log(n)
    last = knee + 40 + math.log1p(beta)
    ends = sorted({0.0, *(min(u, end) for end in (1 / beta, 0.5 * knee, knee, knee + 4, last))})
    pieces = (quad(delay, a, b, epsabs=0.0, epsrel=1e-12, limit=200)[0] for a, b in pairwise(ends))
    return 0.5 * u + float(sum(pieces))


def _log_bessel(order: float, x: float) -> float:
    """Logarithm of the modified Bessel function; a series where the function underflows."""
    scaled = float(ive(order, x))
    if scaled > SMALLEST_BESSEL:
        return math.log(scaled) + x
    k = np.arange(int(x) + 64)
    terms = (order + 2 * k) * math.log(0.5 * x) - gammaln(k + 1) - gammaln(order + k + 1)
    return float(logsumexp(terms))


def read_beta(beta: float) -> float:
    """The inverse temperature as a float, refused unless it lies in (0, 1e6]."""
    if not 0 < beta <= LARGEST_BETA:
        raise InvalidInputError(
            f"beta is an inverse temperature above 0 and at most {LARGEST_BETA:g}; found {beta}."
        )
    return float(beta)


def _read_exponent(beta: float) -> float:
    if read_beta(beta) > LARGEST_EXPONENT:
        raise InvalidInputError(
            f"beta is at most {LARGEST_EXPONENT:g} here, as times grow like exp(beta); "
            f"found {beta}."
        )
    return float(beta)


def _whole(name: str, value: int, least: int) -> int:
    if not (math.isfinite(value) and int(value) == value and value >= least):
        raise InvalidInputError(f"{name} is a whole number of {least} or more; found {value}.")
    return int(value)
