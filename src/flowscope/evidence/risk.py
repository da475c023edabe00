r"""The loosest setting of a rule whose risk is at most α, from what it did on calibration units.

``losses[i, j]`` is what setting j costs on unit i (a prompt, an image): units are exchangeable with
those that come later, settings are the columns, and ``order`` lists them from the strictest to the
loosest. The order must be fixed before the losses are seen.

*Learn then test* (Angelopoulos et al. 2021, arXiv:2110.01052) walks along the order and tests each
"the risk of this setting exceeds α" by the exact binomial test at level δ, until one is not
rejected. The setting before that one has

.. math:: P(\text{risk} \le \alpha) \ge 1 - \delta,

whatever the risks of the settings are: they need not rise along the order.

*Conformal risk control* (Angelopoulos et al. 2022, arXiv:2208.02814) takes the loosest setting
with (1 + Σ losses)/(n + 1) ≤ α. If the loss of every unit never falls along the order, the mean
risk over calibrations is at most α; one calibration may well exceed it.

Choosing the loosest setting whose *observed* risk is at most α has neither property: it exceeds α
about every second time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

__all__ = [
    "RiskControl",
    "RiskMethod",
    "least_units",
    "most_errors",
    "risk_control",
    "running_worst",
]

RiskMethod = Literal["learn_then_test", "conformal"]
_MOST_UNITS = 10_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class RiskControl:
    """The setting that was chosen, or why none was.

    Attributes
    ----------
    status
        ``"controlled"``, or ``"abstains"``: no setting can be given with the promise.
    index
        Column of the chosen setting, or the reason why there is none.
    p_values
        Of "the risk exceeds α" for every column, also of those that were not tested; for
        ``"conformal"`` the bound (1 + Σ losses)/(n + 1) that must not exceed α.
    risks
        Mean loss of every column.
    units, alpha, delta, method
        What it was decided with; delta is NaN for ``"conformal"``.
    needed
        Fewest units with which a setting could pass: at the observed risk of the strictest setting
        where it failed, without any loss otherwise; 0 where no number is enough.
    """

    status: Literal["controlled", "abstains"]
    index: int | Unavailable
    p_values: NDArray[np.float64]
    risks: NDArray[np.float64]
    units: int
    alpha: float
    delta: float
    method: RiskMethod
    needed: int

    @property
    def errors(self) -> float | Unavailable:
        """Sum of the losses of the chosen setting on the calibration units."""
        if isinstance(self.index, Unavailable):
            return self.index
        return float(self.risks[self.index] * self.units)


def most_errors(units: int, alpha: float, delta: float) -> int:
    """Most errors among ``units`` with which the risk is at most alpha at level delta; −1 if none.

    Examples
    --------
    >>> [most_errors(500, alpha, 0.05) for alpha in (0.05, 0.02, 0.01)]
    [16, 4, 1]
    """
    _refuse_levels(alpha, delta)
    most = int(binom.ppf(delta, units, alpha))
    while most >= 0 and binom.cdf(most, units, alpha) > delta:
        most -= 1
    return most


def least_units(alpha: float, delta: float | None = None) -> int:
    """Fewest units with which a setting that never errs passes; conformal without a delta.

    Examples
    --------
    >>> least_units(0.01, 0.05), least_units(0.05, 0.05), least_units(0.05)
    (299, 59, 19)
    """
    if delta is None:
        _refuse_levels(alpha, 0.5)
        return _whole(1 / alpha - 1)
    _refuse_levels(alpha, delta)
    return _whole(math.log(delta) / math.log1p(-alpha))


def _whole(bound: float) -> int:
    """Least whole number that is not below a bound, up to its rounding."""
    nearest = round(bound)
    return nearest if abs(bound - nearest) <= 1e-9 * max(1.0, bound) else math.ceil(bound)


def running_worst(
    losses: NDArray[np.float64] | Sequence[Sequence[float]], order: Sequence[int]
) -> NDArray[np.float64]:
    """Losses that never fall along the order: the worst of each setting and all stricter ones.

    Examples
    --------
    >>> running_worst([[0, 1, 0]], order=[0, 1, 2])
    array([[0., 1., 1.]])
    """
    table = _table(losses)
    places = _places(order, table.shape[1])
    worst = table.copy()
    worst[:, places] = np.maximum.accumulate(table[:, places], axis=1)
    return worst


def risk_control(
    losses: NDArray[np.float64] | Sequence[Sequence[float]],
    order: Sequence[int],
    alpha: float,
    delta: float = 0.05,
    method: RiskMethod = "learn_then_test",
) -> RiskControl:
    """Choose the loosest setting whose risk is controlled, or abstain and say what it would take.

    Parameters
    ----------
    losses
        Cost of each setting on each calibration unit, ``[units, settings]``: 0 or 1 for
        ``"learn_then_test"``, between 0 and 1 for ``"conformal"``.
    order
        Columns from the strictest setting to the loosest; it may leave columns out.
    alpha, delta
        Risk that is promised, and how probable a calibration without it may be at most
        (``"learn_then_test"`` only).
    method
        See the module.

    Raises
    ------
    InvalidInputError
        For losses out of range, an order that names a column twice, levels outside (0, 1), or
        losses that fall along the order (``"conformal"``; `running_worst` mends them).

    Examples
    --------
    >>> losses = np.zeros((500, 3)); losses[:10, 1] = 1; losses[:40, 2] = 1
    >>> found = risk_control(losses, order=[0, 1, 2], alpha=0.05, delta=0.05)
    >>> found.status, found.index, found.errors
    ('controlled', 1, 10.0)
    """
    table = _table(losses)
    places = _places(order, table.shape[1])
    units, risks = len(table), table.mean(0)
    if method == "conformal":
        _refuse_levels(alpha, 0.5)
        _refuse_falling(table, places)
        scores, passes = (1 + table.sum(0)) / (units + 1), alpha * (1 + 1e-12)
        fewest, delta = least_units(alpha), math.nan
    elif method == "learn_then_test":
        _refuse_levels(alpha, delta)
        _refuse_fractions(table)
        scores, passes = binom.cdf(table.sum(0), units, alpha), delta
        fewest = least_units(alpha, delta)
    else:
        raise InvalidInputError(
            f"method must be learn_then_test or conformal; found {method!r}. Choose one of them."
        )
    steps = np.flatnonzero(scores[places] > passes)
    last = int(steps[0]) if len(steps) else len(places)
    strictest = risks[places[0]]
    index: int | Unavailable = int(places[last - 1])
    needed = fewest
    if last == 0:
        needed = fewest if units < fewest else _needed(strictest, alpha, delta)
        index = Unavailable(_reason(units, fewest, needed, strictest, alpha))
    return RiskControl(
        status="controlled" if last else "abstains", index=index, p_values=scores, risks=risks,
        units=units, alpha=alpha, delta=delta, method=method, needed=needed,
    )  # fmt: skip


def _reason(units: int, fewest: int, needed: int, risk: float, alpha: float) -> str:
    if units < fewest:
        return (
            f"a risk of {alpha:g} needs at least {fewest} calibration prompts even without an "
            f"error; there are {units}"
        )
    seen = f"the strictest setting errs on {risk:.3g} of {units} calibration prompts"
    if not needed:
        return f"{seen}, and no number of prompts shows that this is at most {alpha:g}"
    return f"{seen}; at that rate about {needed} prompts would show that it is at most {alpha:g}"


def _needed(risk: float, alpha: float, delta: float) -> int:
    """Fewest units at which an observed risk passes; 0 if none does."""
    if risk >= alpha:
        return 0
    low, high = 1, 2
    while not _enough(high, risk, alpha, delta):
        low, high = high, 2 * high
        if high > _MOST_UNITS:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(middle, risk, alpha, delta) else (middle, high)
    return high


def _enough(units: int, risk: float, alpha: float, delta: float) -> bool:
    errors = math.ceil(risk * units - 1e-9)
    if math.isnan(delta):
        return (1 + risk * units) / (units + 1) <= alpha
    return bool(binom.cdf(errors, units, alpha) <= delta)


def _table(losses: NDArray[np.float64] | Sequence[Sequence[float]]) -> NDArray[np.float64]:
    table = np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise InvalidInputError(
            f"losses must be a table of units × settings; found shape {table.shape}. Give one row "
            "per calibration prompt and one column per setting."
        )
    if not bool(((table >= 0) & (table <= 1)).all()):
        raise InvalidInputError(
            "losses must lie between 0 and 1; found "
            f"{table[~((table >= 0) & (table <= 1))].flat[0]:.6g}. Divide by the largest loss."
        )
    return table


def _places(order: Sequence[int], settings: int) -> NDArray[np.intp]:
    places = np.asarray(order)
    known = places.ndim == 1 and places.size and places.dtype.kind in "iu"
    if not known or len(set(places.tolist())) != len(places) or not _within(places, settings):
        raise InvalidInputError(
            f"order must name columns 0 … {settings - 1} once each, the strictest setting first; "
            f"found {list(order)[:8]}."
        )
    return places.astype(np.intp)


def _within(places: NDArray[np.intp], settings: int) -> bool:
    return bool(places.min() >= 0 and places.max() < settings)


def _refuse_levels(alpha: float, delta: float) -> None:
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not 0 < value < 1:
            raise InvalidInputError(
                f"{name} must lie between 0 and 1, both ends left out; found {value:g}. "
                "A risk of 5 % is 0.05."
            )


def _refuse_fractions(table: NDArray[np.float64]) -> None:
    if not np.isin(table, (0.0, 1.0)).all():
        found = table[(table != 0) & (table != 1)].flat[0]
        raise InvalidInputError(
            f"learn_then_test counts errors, so that each loss must be 0 or 1; found {found:.6g}. "
            'Use method="conformal" for losses in between, or a loss that says whether there is an '
            "error."
        )


def _refuse_falling(table: NDArray[np.float64], places: NDArray[np.intp]) -> None:
    falls = np.argwhere(np.diff(table[:, places], axis=1) < 0)
    if len(falls):
        unit, step = falls[0]
        raise InvalidInputError(
            "conformal risk control needs losses that never fall from a strict to a loose setting; "
            f"on unit {unit} the loss falls from setting {places[step]} to {places[step + 1]}. "
            "Use running_worst(losses, order), or learn_then_test."
        )
