r"""The internal gap of a whole network: the mean over layers, beyond what its input shows.

$T_\ell$ is the split-half log ratio of layer $\ell$, $m_\ell$ the middle of its exchange null, and
layer 0 is the latents before any block. The network's own share is

$$
S = \frac1L\sum_{\ell\ge1}(T_\ell - m_\ell) - (T_0 - m_0) .
$$

All layers are exchanged by the same patterns and halved in the same way, so $S$ has draws under
its null and a jackknife over pairs, and what layers have in common is in both. The interval is
the union of two: the jackknife's $S\pm t_{M-1}\operatorname{se}$, and $S$ less the quantiles of its
null draws, which excludes 0 where the exchange test rejects.

**Twins.** A network whose weights are in random order has an $S$ of its own, which need not be 0:
random layers with large weights keep weak modes better too. Twins $k = 1 \dots K$ are read on the
same noise, exchanged and halved by the same patterns, and where training made no difference the
model is one more of them. The distance $D = S - \bar S_k$ has draws and a jackknife as $S$ has.
With $s$ the deviation of the $S_k$ and $[l, u]$ the union of both intervals of $D$,

$$
D \pm \sqrt{(D-l)^2 + t_{K-1}^2\,s^2(1 + 1/K)}
$$

and likewise with $u$ above.

**Smallest detectable gap.** With quantiles $q$ of the null draws, a gap that shifts $T$ by $\delta$
is seen at level $\alpha$ with power $\beta$ if

$$
\delta \ge \max\bigl(q_{1-\alpha/2}-q_{1-\beta},\; q_{\beta}-q_{\alpha/2}\bigr) .
$$
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import t as student

from flowscope.errors import InvalidInputError

__all__ = [
    "LayerGaps",
    "MeanGap",
    "gap_beyond_twins",
    "jackknife_error",
    "mean_gap",
    "smallest_detectable_gap",
]

Array = NDArray[np.float64]

_POWERED = 1.43  # half an interval times this is seen in 80 % of cases: 2.80 over 1.96 deviations


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanGap:
    """Mean log ratio over layers beyond that of the latents.

    Attributes
    ----------
    value, interval
        S, and the union of the intervals by jackknife and by exchange.
    p_value
        Two-sided, of the exchange.
    detectable
        Smallest log ratio that would have been seen with power .8.
    """

    value: float
    interval: tuple[float, float]
    p_value: float
    detectable: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerGaps:
    """Split-half log ratios of one network, the latents first.

    Attributes
    ----------
    observed, draws, left_out
        As for `mean_gap`.
    """

    observed: Float[NDArray[np.floating], "layers"]
    draws: Float[NDArray[np.floating], "layers draws"]
    left_out: Float[NDArray[np.floating], "layers pairs"]


def mean_gap(
    observed: Float[NDArray[np.floating], "layers"],
    draws: Float[NDArray[np.floating], "layers draws"],
    left_out: Float[NDArray[np.floating], "layers pairs"],
    *,
    level: float = 0.95,
) -> MeanGap:
    """Mean gap of layers 1, 2, … beyond that of layer 0, with its interval and its p value.

    Parameters
    ----------
    observed
        Split-half log ratio of each layer, the latents first.
    draws
        Of `exchange_null`, by the same patterns in every layer.
    left_out
        Of `split_half_gap`, with the same halvings in every layer.
    level
        Coverage of the interval.

    Raises
    ------
    InvalidInputError
        If there is no layer beside the latents, or shapes disagree.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = mean_gap(np.array([0.0, 0.5, 0.7]), 0.1 * rng.standard_normal((3, 199)),
    ...                  0.005 * rng.standard_normal((3, 32)))
    >>> found.interval[0] > 0, found.p_value
    (True, 0.01)
    """
    value, drawn, without = _share(LayerGaps(observed=observed, draws=draws, left_out=left_out))
    return _judged(value, drawn, without, level)


def gap_beyond_twins(
    model: LayerGaps, twins: Sequence[LayerGaps], *, level: float = 0.95
) -> MeanGap:
    """Distance of a network's mean gap from that of twins with shuffled weights.

    Parameters
    ----------
    model, twins
        Readings of the same pairs, with the same exchanges and halvings; two twins or more.
    level
        Coverage of the interval.

    Raises
    ------
    InvalidInputError
        If there are fewer than two twins, or shapes disagree.

    Notes
    -----
    The p value is that of the exchange alone: it does not know the spread of twins.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def reading(gap):
    ...     return LayerGaps(observed=np.array([0.0, gap, gap]),
    ...                      draws=0.1 * rng.standard_normal((3, 199)),
    ...                      left_out=0.002 * rng.standard_normal((3, 32)))
    >>> found = gap_beyond_twins(reading(0.9), [reading(0.1), reading(0.12), reading(0.08)])
    >>> found.interval[0] > 0
    True
    """
    if len(twins) < 2:
        raise InvalidInputError(
            f"the spread of twins needs two of them or more; got {len(twins)}. Take more twins."
        )
    value, drawn, without = _share(model)
    values, draws, left_out = zip(*(_share(twin) for twin in twins), strict=True)
    distance = _judged(
        value - float(np.mean(values)), drawn - np.mean(draws, 0), without - np.mean(left_out, 0),
        level,
    )  # fmt: skip
    number = len(twins)
    quantile = float(student.ppf((1 + level) / 2, number - 1))
    reach = quantile * float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / number)
    low, high = distance.interval
    return MeanGap(
        value=distance.value,
        interval=(
            distance.value - float(np.hypot(distance.value - low, reach)),
            distance.value + float(np.hypot(high - distance.value, reach)),
        ),
        p_value=distance.p_value,
        detectable=float(np.hypot(distance.detectable, _POWERED * reach)),
    )


def _share(gaps: LayerGaps) -> tuple[float, Array, Array]:
    """S, its draws under the exchange, and its changes without each pair."""
    parts = (gaps.observed, gaps.draws, gaps.left_out)
    T, null, without = (np.asarray(x, dtype=np.float64) for x in parts)
    if len(T) < 2 or len(null) != len(T) or len(without) != len(T):
        raise InvalidInputError(
            "a mean gap needs the latents and at least one layer in observed, draws and left_out; "
            f"got {T.shape}, {null.shape} and {without.shape}."
        )
    if not all(np.isfinite(x).all() for x in (T, null, without)):
        raise InvalidInputError(
            "observed, draws and left_out must be finite; found NaN or infinity. Leave a layer "
            "that has no gap out."
        )
    middle = np.median(null, axis=1)
    return float(_beyond(T - middle)), _beyond(null - middle[:, None]), _beyond(without)


def _judged(value: float, drawn: Array, without: Array, level: float) -> MeanGap:
    """A number with the union of its intervals, its p value and what could have been seen."""
    slack = 1e-9 * (1 + abs(value))
    tails = (drawn <= value + slack).sum(), (drawn >= value - slack).sum()
    reach = jackknife_error(without) * student.ppf((1 + level) / 2, len(without) - 1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return MeanGap(
        value=value,
        interval=(float(value - max(high, reach)), float(value - min(low, -reach))),
        p_value=float(min(1.0, 2 * (1 + min(tails)) / (1 + len(drawn)))),
        detectable=smallest_detectable_gap(drawn),
    )


def _beyond(layers: Array) -> Array:
    return np.asarray(layers[1:].mean(0) - layers[0])


def jackknife_error(left_out: Float[NDArray[np.float64], "pairs"]) -> float:
    """Standard error from changes without each pair in the role of measured pair."""
    half = len(left_out) / 2
    return float(np.sqrt((half - 1) / half * np.sum((left_out - left_out.mean()) ** 2)))


def smallest_detectable_gap(
    draws: Float[NDArray[np.floating], "draws"], *, level: float = 0.05, power: float = 0.8
) -> float:
    r"""Shift of the log ratio that would have been seen with the given power.

    $$
    \delta = \max\bigl(q_{1-\alpha/2}-q_{1-\beta},\; q_\beta-q_{\alpha/2}\bigr)
    $$

    Parameters
    ----------
    draws
        Null draws, from `exchange_null`; $q$ are their quantiles.
    level, power
        $\alpha$ of the two-sided test and $\beta$.

    Raises
    ------
    InvalidInputError
        If level or power lie outside (0, 1), or there are no draws.

    Notes
    -----
    Takes the spread under a gap for that of the null; 2.80 deviations of a normal null.

    Examples
    --------
    >>> round(smallest_detectable_gap(np.linspace(-1, 1, 2001)), 2)
    1.55
    """
    found = np.asarray(draws, dtype=np.float64)
    if not (0 < level < 1 and 0 < power < 1) or found.ndim != 1 or len(found) < 2:
        raise InvalidInputError(
            f"level and power must lie in (0, 1) and draws be a row of at least two; found "
            f"{level}, {power} and shape {found.shape}."
        )
    if not np.isfinite(found).all():
        raise InvalidInputError(
            "draws must be finite; found NaN or infinity. Leave such draws out."
        )
    q = np.quantile(found, [level / 2, 1 - level / 2, 1 - power, power])
    return float(max(q[1] - q[2], q[3] - q[0]))
