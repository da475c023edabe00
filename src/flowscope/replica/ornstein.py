r"""Two coupled Ornstein–Uhlenbeck replicas: two models that share a name (source 004 §2.1, E88).

Unit clock, one coordinate, $t$ the time of the forward process; replicas $x^A, x^B$ and their
modes, common $u=(x^A+x^B)/\sqrt2$ and difference $v=(x^A-x^B)/\sqrt2$. Reverse runs go from $t=T$
down.

**Joint forward.** The coupling is part of the forward process, the score is that of the joint law:

$$
dx^A = -\bigl(x^A + g(x^A-x^B)\bigr)dt + \sqrt2\,dW^A, \quad\text{and } A\leftrightarrow B .
$$

The modes have the rates $\lambda = 1$ and $\lambda = 1+2g$, and data of variance $s^2$ the variance

$$
v_\lambda(t) = s^2e^{-2\lambda t} + \frac{1-e^{-2\lambda t}}\lambda .
$$

Its reverse run gives the data back. With data $\pm m$ of variance $s^2$ a mode has two valleys from
$v_\lambda = m^2e^{-2\lambda t}$ on, at

$$
t_\lambda = \frac{\log\bigl(1+\lambda(m^2-s^2)\bigr)}{2\lambda},
$$

the common mode, slower, at the larger $t$, so earlier in the reverse run.

**Additive coupling.** The forward process is that of single replicas; the coupling is added by hand
to the reverse drift (eqs 4–5). There $+g(x^A-x^B)\,dt$ stands with $dt<0$: in the direction of the
run it is $-g(x^A-x^B)$, and pulls together. For Gaussian data the modes are drawn to zero at the
rates

$$
-1 + \frac2{v_1(t)} \quad\text{and}\quad -1 + \frac2{v_1(t)} + 2g ,
$$

which at the start, $v_1\approx1$, are $1$ and $1+2g$, as above; later they are not those of the
joint model, and the run does not end in the data: the difference mode comes out too narrow.

**Exact runs.** With $k(t) = -\lambda + 2/v_\lambda(t) + \kappa$ the rate of a mode ($\kappa = 0$,
or $2g$ by hand), a deviation at time $r$ is carried to $t<r$ by

$$
\Phi_{r\to t} = \frac{v_\lambda(t)e^{\lambda t}}{v_\lambda(r)e^{\lambda r}}e^{-\kappa(r-t)}, \qquad
V(t) = \Phi_{T\to t}^2V(T) + 2\int_t^T\Phi_{r\to t}^2\,dr ,
$$

the integral elementary for $\kappa=0$ and a hypergeometric function for $\lambda=1$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import hyp2f1

from flowscope.errors import InvalidInputError

__all__ = [
    "AdditiveCoupling",
    "JointForward",
    "ModeMoments",
    "ModePair",
    "ModeSpeciation",
    "SynchronizationGap",
    "mode_speciation",
    "mode_variance",
]

Array = NDArray[np.float64]


class ModePair(NamedTuple):
    """One number for the common and one for the difference mode."""

    common: float
    difference: float


class ModeMoments(NamedTuple):
    """Means and variances of both modes."""

    mean: ModePair
    variance: ModePair


@dataclass(frozen=True, kw_only=True, eq=False)
class ModeSpeciation:
    r"""When a mode gets two valleys: ``time`` is $t_\lambda$, or NaN and ``because`` says why."""

    rate: float
    time: float
    status: Literal["ok", "abstains"]
    because: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SynchronizationGap:
    r"""Lead of the common mode, ``value`` $= t_{\rm common} - t_{\rm difference}$.

    Positive: the common mode decides first in the reverse run. NaN if a mode does not speciate.
    """

    value: float
    common: ModeSpeciation
    difference: ModeSpeciation
    status: Literal["ok", "abstains"]
    because: str


def mode_variance(t: float, rate: float, s2: float) -> float:
    r"""Variance $v_\lambda(t)$ of the mode $dx = -\lambda x\,dt + \sqrt2\,dW$.

    Parameters
    ----------
    t, rate, s2
        Time, $\lambda > 0$, and the variance $s^2 \ge 0$ at time 0.

    Raises
    ------
    InvalidInputError
        If one of them is out of range.

    Examples
    --------
    >>> mode_variance(0.0, 2.0, 0.25), mode_variance(50.0, 2.0, 0.25)
    (0.25, 0.5)
    """
    if not (0 <= t < math.inf and 0 < rate < math.inf and 0 <= s2 < math.inf):
        raise InvalidInputError(
            f"a mode needs t ≥ 0, a rate > 0 and s2 ≥ 0, all finite; got {t}, {rate} and {s2}."
        )
    return s2 * math.exp(-2 * rate * t) - math.expm1(-2 * rate * t) / rate


def mode_speciation(rate: float, m2: float, s2: float) -> ModeSpeciation:
    r"""Time at which a mode with data $\pm m$ of variance $s^2$ gets its two valleys.

    $$ t_\lambda = \log\bigl(1+\lambda(m^2-s^2)\bigr)/(2\lambda) $$

    Parameters
    ----------
    rate, m2, s2
        $\lambda > 0$, $m^2 \ge 0$, $s^2 \ge 0$.

    Notes
    -----
    Abstains for $m^2\le s^2$: the data itself has one valley, and no noise splits it.

    Raises
    ------
    InvalidInputError
        If one of them is out of range.

    Examples
    --------
    >>> round(mode_speciation(1.0, 4.0, 0.25).time, 6)
    0.779072
    >>> mode_speciation(1.0, 0.2, 0.25).status
    'abstains'
    """
    if not (0 < rate < math.inf and 0 <= m2 < math.inf and 0 <= s2 < math.inf):
        raise InvalidInputError(
            f"a mode needs a rate > 0, m2 ≥ 0 and s2 ≥ 0, all finite; got {rate}, {m2} and {s2}."
        )
    split = rate * (m2 - s2)
    if split <= 0:
        why = f"no speciation: the arms are closer than they are wide, m² = {m2:g} ≤ s² = {s2:g}"
        return ModeSpeciation(rate=rate, time=math.nan, status="abstains", because=why)
    time = math.log1p(split) / (2 * rate)
    return ModeSpeciation(rate=rate, time=time, status="ok", because="")


@dataclass(frozen=True)
class JointForward:
    r"""The coupled forward process with its joint score.

    Parameters
    ----------
    g
        Coupling, at least 0.

    Examples
    --------
    >>> JointForward(0.5).rates
    ModePair(common=1.0, difference=2.0)
    >>> round(JointForward(0.5).reverse_moments(3.0, 0.25).variance.difference, 6)
    0.25
    """

    g: float

    def __post_init__(self) -> None:
        _check_coupling(self.g)

    @property
    def rates(self) -> ModePair:
        """Rates of the forward modes, 1 and 1 + 2g."""
        return ModePair(1.0, 1.0 + 2.0 * self.g)

    def variances(self, t: float, s2: float | ModePair) -> ModePair:
        """Variances of the modes at time t, from data of variance s²."""
        return ModePair(*(map(mode_variance, (t, t), self.rates, _both(s2))))

    def reverse_rates(self, t: float, s2: float | ModePair) -> ModePair:
        r"""Rates $-\lambda + 2/v_\lambda(t)$ at which the reverse run draws the modes to zero."""
        return ModePair(
            *(-rate + 2 / v for rate, v in zip(self.rates, self.variances(t, s2), strict=True))
        )

    def reverse_moments(
        self, horizon: float, s2: float | ModePair, t: float = 0.0, start: ModeMoments | None = None
    ) -> ModeMoments:
        """Moments at time t of the reverse run from the horizon, for centred Gaussian data.

        Without a ``start`` it begins in the exact marginal, and then ends in the data.
        """
        return _run(horizon, t, self.rates, _both(s2), ModePair(0.0, 0.0), start)

    def speciation(self, m2: float | ModePair, s2: float | ModePair) -> tuple[ModeSpeciation, ...]:
        """Speciation of the common and of the difference mode; data ±m of variance s² in each."""
        return tuple(map(mode_speciation, self.rates, _both(m2), _both(s2)))

    def synchronization_gap(self, m2: float | ModePair, s2: float | ModePair) -> SynchronizationGap:
        """Lead of the common over the difference mode; 0 at g = 0 when the modes have one law."""
        common, difference = self.speciation(m2, s2)
        named = (("common", common), ("difference", difference))
        missing = [f"{name} mode: {one.because}" for name, one in named if one.status != "ok"]
        return SynchronizationGap(
            value=common.time - difference.time,
            common=common,
            difference=difference,
            status="abstains" if missing else "ok",
            because="; ".join(missing),
        )

    def score(
        self, a: ArrayLike, b: ArrayLike, t: float, *, means: ModePair, s2: float | ModePair
    ) -> tuple[Array, Array]:
        r"""Score of the joint law at time t, with respect to $x^A$ and to $x^B$.

        Data is the symmetric mixture $\pm(m_u, m_v)$ of variance $s^2$ around each arm; zero means
        are Gaussian data. With $C = \mathrm{diag}(v_u, v_v)$ and $\mu$ the means at time t,
        $\nabla\log p = -C^{-1}x + C^{-1}\mu\tanh(\mu^\top C^{-1}x)$ in the modes.
        """
        x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        modes = (x + y) / math.sqrt(2), (x - y) / math.sqrt(2)
        v = self.variances(t, s2)
        if not min(v) > 0:
            raise InvalidInputError(f"a score needs noise: variances are {tuple(v)} at t = {t}.")
        arm = [m * math.exp(-rate * t) for m, rate in zip(means, self.rates, strict=True)]
        side = np.tanh(arm[0] / v[0] * modes[0] + arm[1] / v[1] * modes[1])
        u, w = ((arm[k] * side - modes[k]) / v[k] for k in range(2))
        return np.asarray((u + w) / math.sqrt(2)), np.asarray((u - w) / math.sqrt(2))


@dataclass(frozen=True)
class AdditiveCoupling:
    r"""Single forward processes, and a coupling added to the reverse drift by hand (eqs 4–5).

    Parameters
    ----------
    g
        Coupling, at least 0.

    Examples
    --------
    >>> AdditiveCoupling(0.5).reverse_rates(0.0, 1.0)
    ModePair(common=1.0, difference=2.0)
    >>> round(AdditiveCoupling(0.5).reverse_moments(3.0, 0.25).variance.difference, 4)
    0.1793
    """

    g: float

    def __post_init__(self) -> None:
        _check_coupling(self.g)

    def reverse_rates(self, t: float, s2: float) -> ModePair:
        r"""Rates $-1+2/v_1(t)$ and $2g$ more, at which the reverse run draws the modes to zero."""
        single = -1 + 2 / mode_variance(t, 1.0, s2)
        return ModePair(single, single + 2 * self.g)

    def reverse_moments(
        self, horizon: float, s2: float, t: float = 0.0, start: ModeMoments | None = None
    ) -> ModeMoments:
        """Moments at time t of the reverse run from the horizon, for centred Gaussian data.

        Without a ``start`` both modes begin in the exact marginal of a single replica.
        """
        added = ModePair(0.0, 2 * self.g)
        return _run(horizon, t, ModePair(1.0, 1.0), _both(s2), added, start)


def _run(
    horizon: float,
    t: float,
    rates: ModePair,
    s2: ModePair,
    added: ModePair,
    start: ModeMoments | None,
) -> ModeMoments:
    if not 0 <= t <= horizon < math.inf or not min(s2) > 0:
        raise InvalidInputError(
            "a reverse run goes from a finite horizon to 0 ≤ t ≤ horizon with s2 > 0; got horizon "
            f"{horizon}, t {t} and s2 {tuple(s2)}."
        )
    means, variances = [], []
    for k in range(2):
        rate, then = rates[k], mode_variance(horizon, rates[k], s2[k])
        now = mode_variance(t, rate, s2[k])
        carried = now / then * math.exp(-(rate + added[k]) * (horizon - t))
        mean, variance = (0.0, then) if start is None else (start.mean[k], start.variance[k])
        fresh = now - carried**2 * then
        if added[k] > 0:
            fresh = _noise_by_hand(horizon, t, s2[k], added[k])
        means.append(carried * mean)
        variances.append(carried**2 * variance + fresh)
    return ModeMoments(ModePair(*means), ModePair(*variances))


def _noise_by_hand(horizon: float, t: float, s2: float, added: float) -> float:
    r"""Noise gathered between horizon and t, $2\int_t^T\Phi^2dr$, for λ = 1 and a coupling by hand.

    With $y = e^{-2r}$ the integrand is $y^\kappa/(1-(1-s^2)y)^2$, relative to its value at t.
    """
    c, top, power = 1 - s2, math.exp(-2 * t), added + 1

    def primitive(y: float) -> float:
        share = y / top
        return float(share**power * top / power * hyp2f1(2.0, power, power + 1, c * y))

    whole = primitive(top) - primitive(math.exp(-2 * horizon))
    return mode_variance(t, 1.0, s2) ** 2 * whole / top


def _both(value: float | ModePair) -> ModePair:
    return value if isinstance(value, ModePair) else ModePair(float(value), float(value))


def _check_coupling(g: float) -> None:
    if not 0 <= g < math.inf:
        raise InvalidInputError(f"the coupling g must be finite and at least 0; got {g}.")
