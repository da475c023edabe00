r"""The internal gap between leading and trailing modes, with nulls that hold (004 eqs 78–80, E86).

$$
\mathcal G_{\rm int} = \frac{\bar\lambda_{\rm trail}}{\bar\lambda_{\rm lead}}, \qquad
\bar\lambda_{\rm band} = \frac1{|\mathcal K|}\sum_{k\in\mathcal K}\lambda_k(s)
$$

Modes that are fitted to $V_0$ and then measured on the same $V_0$ make $\mathcal G_{\rm int}$
differ from 1 when nothing has changed. Two answers, both from $\Gamma$ of `stacked_gram`:

**Split halves.** Modes from the pairs $I$; energies, at $s$ *and* at 0, from the other pairs $J$:

$$
T_{IJ} = \log\frac{\sum_{k\in\rm trail}\lambda_k}{\sum_{k\in\rm lead}\lambda_k}
         - \log\frac{|\mathcal K_{\rm trail}|}{|\mathcal K_{\rm lead}|}, \qquad
\lambda_k = \frac{\sum_{i\in J}(V_sr_k)_i^2}{\sum_{i\in J}(V_0r_k)_i^2},
\qquad T = \frac1{2S}\sum_{\rm splits}(T_{IJ}+T_{JI}) .
$$

Given the modes, numerator and denominator have one law when nothing has changed, for every basis,
so $T$ is about 0. Its interval is a jackknife over pairs *in the role of measured pair only*: with
$T_{(-i)}$ the same average, pair $i$ left out of $J$ wherever it is there, $n=M/2$,

$$
\operatorname{se}^2 = \frac{n-1}n\sum_{i=1}^M\bigl(T_{(-i)}-\overline{T_{(\cdot)}}\bigr)^2,
\qquad T\pm t_{M-1}\operatorname{se} .
$$

Which pairs made the basis adds no variance as long as $\mathbb E[T_{IJ}\mid I]$ is the same for all
$I$, as it is without a gap. Leaving the pair out of the basis too doubles the error (a single row
turns trailing modes freely), and a bootstrap puts copies of one pair in both halves, which brings
the bias back and takes modes away.

**Exchange.** If nothing has changed, $(V_0, V_s/\text{scale})$ may be swapped in any pair,
$\text{scale} = \Vert V_s\Vert_F/\Vert V_0\Vert_F$. Draws of $T$ under random swaps are its null,
whatever the correlation of $V_0$ and $V_s$; a permutation of all rows would destroy that.

"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import t as student
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.replica.layer_mean import jackknife_error
from flowscope.replica.modes import checked_gram, mode_energies, projected

__all__ = [
    "ExchangeNull",
    "SplitHalfGap",
    "exchange_null",
    "naive_gap",
    "split_half_gap",
]

Array = NDArray[np.float64]
Gram = Tensor | NDArray[np.floating]


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitHalfGap:
    """Split-half log ratio T of trailing over leading energies, 0 without a gap.

    ``interval`` and the standard ``error`` are over pairs; ``level`` is the coverage. ``left_out``
    is how much T changes without each pair among those that are measured.
    """

    value: float
    interval: tuple[float, float]
    error: float
    pairs: int
    splits: int
    level: float
    left_out: Float[NDArray[np.float64], "pairs"]

    @property
    def ratio(self) -> float:
        """The gap as a ratio of energies."""
        return float(np.exp(self.value))


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeNull:
    """What the split-half log ratio would be if nothing had changed.

    Attributes
    ----------
    observed
        T of `split_half_gap` with the same seed and splits.
    draws
        T after random swaps within pairs.
    p_value
        Two-sided: twice the smaller tail, the observed value counted in.
    band, level
        Central quantiles of the draws, and the share between them.
    scale
        Norm of V_s over that of V_0, taken out before swapping.
    """

    observed: float
    draws: Float[NDArray[np.float64], "draws"]
    p_value: float
    band: tuple[float, float]
    level: float
    scale: float


def naive_gap(gram: Gram, lead: int, trail: int) -> float:
    r"""004's ratio $\mathcal G_{\rm int}$ (eq 80): modes and energies from the same pairs.

    Without a change it is not 1 (E86); never to be read without `exchange_null` beside it.

    Parameters
    ----------
    gram
        $\Gamma$, from `stacked_gram`.
    lead, trail
        How many modes the leading and the trailing band have: the first, and the last that are
        present.

    Raises
    ------
    InvalidInputError
        If fewer modes are present than both bands need.

    Examples
    --------
    >>> naive_gap(np.block([[np.eye(2), 3 * np.eye(2)], [3 * np.eye(2), 9 * np.eye(2)]]), 1, 1)
    1.0
    """
    G = checked_gram(gram)
    found = mode_energies(G)
    _refuse_few(len(G) // 2, lead, trail, found.count, "pairs")
    _refuse_merged(G)
    kept = found.energies[found.present]
    leading = float(kept[:lead].mean())
    if not leading > 0:
        raise InvalidInputError(
            f"the leading modes must have energy now to be compared with; found {leading:.3g}. "
            "Take another step, or more leading modes."
        )
    return float(kept[-trail:].mean() / leading)


def split_half_gap(
    gram: Gram, lead: int, trail: int, *, splits: int = 2, level: float = 0.95, seed: int = 0
) -> SplitHalfGap:
    r"""Log ratio of trailing over leading energies, modes and energies from different pairs.

    Parameters
    ----------
    gram
        $\Gamma$, from `stacked_gram`.
    lead, trail
        How many modes each band has, of those that half of the pairs can make.
    splits
        $S$ random halvings, each used in both directions.
    level
        Coverage of the interval.
    seed
        Of the halvings.

    Raises
    ------
    InvalidInputError
        If half of the pairs makes fewer modes than both bands need.

    Notes
    -----
    $2S$ eigendecompositions of $M/2\times M/2$. At a nominal 95 % the interval holds 0 in 92 to
    96 % of cases without a gap; with one its mean in 93 to 97 %, but 85 % where pairs correlate by
    .99 (``benchmarks/replica_null.py``). More splits narrow the interval more than $T$.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> V0, noise = rng.standard_normal((2, 32, 64)) / np.arange(1, 65)
    >>> Vs = V0 * np.where(np.arange(64) < 4, 1.0, 3.0) + 0.1 * noise
    >>> rows = np.vstack([V0, Vs])
    >>> found = split_half_gap(rows @ rows.T, 4, 8)
    >>> found.interval[0] > 0
    True
    """
    G = _prepared(gram, lead, trail, splits, level)
    pairs = len(G) // 2
    rows = np.arange(pairs)
    total, without = 0.0, np.zeros(pairs)
    for basis, other in _halvings(pairs, splits, seed):
        now, then, present = _squares(G, rows, rows + pairs, basis, other, lead, trail)
        value = float(_log_ratio(now.sum(0), then.sum(0), present, lead, trail))
        left_out = _log_ratio(now.sum(0) - now, then.sum(0) - then, present, lead, trail)
        total += value / (2 * splits)
        without[other] += (left_out - value) / (2 * splits)
    error = jackknife_error(without)
    reach = error * float(student.ppf((1 + level) / 2, pairs - 1))
    return SplitHalfGap(
        value=total,
        interval=(total - reach, total + reach),
        error=error,
        pairs=pairs,
        splits=splits,
        level=level,
        left_out=without,
    )


def exchange_null(
    gram: Gram,
    lead: int,
    trail: int,
    *,
    draws: int = 199,
    splits: int = 2,
    level: float = 0.95,
    seed: int = 0,
) -> ExchangeNull:
    r"""Null of the split-half log ratio by swapping $V_0$ and $V_s/\text{scale}$ within pairs.

    Parameters
    ----------
    gram, lead, trail, splits, seed
        As for `split_half_gap`; the same seed gives the same halvings.
    draws
        Random patterns of swaps, at least 39 for a level of 5 %.
    level
        Coverage of the band.

    Raises
    ------
    InvalidInputError
        If half of the pairs makes too few modes, in the data or after a swap.

    Notes
    -----
    $2S$ batched eigendecompositions of `draws` matrices $M/2\times M/2$: below .1 s for 199 draws
    of 32 pairs. The smallest p value is $2/(1+\text{draws})$.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((32, 50))
    >>> exchange_null(rows @ rows.T, 3, 3).p_value > 0.05
    True
    """
    G = _prepared(gram, lead, trail, splits, level)
    if draws < 39:
        raise InvalidInputError(f"draws must be at least 39 for a level of 5 %; got {draws}.")
    pairs = len(G) // 2
    squares = G.diagonal()
    scale = float(np.sqrt(squares[pairs:].sum() / squares[:pairs].sum()))
    weights = np.repeat([1.0, 1 / scale], pairs)
    G = G * weights * weights[:, None]
    swapped = np.random.default_rng([seed, 1]).random((draws + 1, pairs)) < 0.5
    swapped[0] = False
    rows = np.arange(pairs)
    then_rows = np.where(swapped, rows + pairs, rows)
    now_rows = np.where(swapped, rows, rows + pairs)
    values = np.zeros(draws + 1)
    for basis, other in _halvings(pairs, splits, seed):
        now, then, present = _squares(G, then_rows, now_rows, basis, other, lead, trail)
        values += _log_ratio(now.sum(-2), then.sum(-2), present, lead, trail) / (2 * splits)
    observed, null = float(values[0]), values[1:]
    # Rounding must not tell apart patterns that give the same value.
    slack = 1e-9 * (1 + abs(observed))
    tails = (null <= observed + slack).sum(), (null >= observed - slack).sum()
    low, high = np.quantile(null, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return ExchangeNull(
        observed=observed,
        draws=null,
        p_value=float(min(1.0, 2 * (1 + min(tails)) / (1 + draws))),
        band=(low, high),
        level=level,
        scale=scale,
    )


def _halvings(
    pairs: int, splits: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Random halves, each in both roles: (basis, measured)."""
    generator = np.random.default_rng([seed, 0])
    for _ in range(splits):
        order = generator.permutation(pairs)
        first, second = order[: pairs // 2], order[pairs // 2 :]
        yield first, second
        yield second, first


def _squares(
    G: Array,
    then_rows: Int[NDArray[np.int64], "*draws M"],
    now_rows: Int[NDArray[np.int64], "*draws M"],
    basis: NDArray[np.int64],
    other: NDArray[np.int64],
    lead: int,
    trail: int,
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Squared projections of the measured pairs, now and then, and which modes are present."""
    _, now, then, present = projected(
        G, then_rows[..., basis], then_rows[..., other], now_rows[..., other]
    )
    _refuse_few(G.shape[0] // 2, lead, trail, int(present.sum(-1).min()), "pairs, halved,")
    return now, then, present


def _log_ratio(
    now: Float[NDArray[np.float64], "*draws K"],
    then: Float[NDArray[np.float64], "*draws K"],
    present: NDArray[np.bool_],
    lead: int,
    trail: int,
) -> Array:
    """Log of the mean energy of the last present modes over that of the first."""
    # Present modes come first, in their order, so that bands are slices.
    order = np.argsort(~present, axis=-1, kind="stable")
    count = present.sum(-1, keepdims=True)
    first = order[..., :lead]
    last = np.take_along_axis(order, count - trail + np.arange(trail), -1)
    means = []
    for band in (first, last):
        band = np.broadcast_to(band, (*now.shape[:-1], band.shape[-1]))
        energies = np.take_along_axis(now, band, -1) / np.take_along_axis(then, band, -1)
        means.append(energies.mean(-1))
    return np.asarray(np.log(means[1] / means[0]))


def _prepared(gram: Gram, lead: int, trail: int, splits: int, level: float) -> Array:
    G = checked_gram(gram)
    if splits < 1 or not 0 < level < 1:
        raise InvalidInputError(
            f"splits must be at least 1 and level lie in (0, 1); got {splits} and {level}."
        )
    pairs = len(G) // 2
    _refuse_few(pairs, lead, trail, pairs // 2, "pairs, halved,")
    _refuse_merged(G)
    return G


def _refuse_few(pairs: int, lead: int, trail: int, modes: int, what: str) -> None:
    if lead < 1 or trail < 1:
        raise InvalidInputError(f"each band needs at least one mode; got {lead} and {trail}.")
    if modes < lead + trail:
        raise InvalidInputError(
            f"bands of {lead} leading and {trail} trailing modes need {lead + trail} modes; "
            f"{pairs} {what} give {modes}. Take more pairs or smaller bands."
        )


def _refuse_merged(G: Array) -> None:
    if not G.diagonal()[len(G) // 2 :].any():
        raise InvalidInputError(
            "Vs is zero for every pair: the replicas have merged and no energy is left to compare. "
            "Take an earlier step."
        )
