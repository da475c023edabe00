r"""The locking slope: whether nearly decided tokens move less than the steps of others would do.

For every token and step let x = log δ (the tail mass before the step) and y a logarithm that may
depend on it: of TV over the transplanted TV (:func:`log_response`), or of the size of the step. The
slope of y on x is taken within groups: tokens of one prompt at one layer are compared with each
other only. That is where donors come from, and a prompt that is more certain as a whole says
nothing.

.. math:: b = \frac{\sum_{u,\ell} S^{xy}_{u\ell}}{\sum_{u,\ell} S^{xx}_{u\ell}}, \qquad
          S^{xy}_{u\ell} = \sum_{i \in u} (x_{i\ell} - \bar x_{u\ell})(y_{i\ell} - \bar y_{u\ell})

The sums of a prompt u need no other prompt, so that tables of them are joined by putting one
below the other. How sure b is follows from its jackknife: leaving out prompt u gives
b − e_u / (S − S_u) with e_u = S^{xy}_u − b S^{xx}_u, and the pseudo-values

.. math:: b_u = b + (n - 1)\, \frac{e_u}{S^{xx} - S^{xx}_u}

are one number per prompt whose spread is n times the variance of b.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowscope.errors import InvalidInputError

__all__ = ["Slope", "SlopeSums", "common_slope", "joined_sums", "log_response", "slope_sums"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class SlopeSums:
    """Centred sums of every prompt and layer: all that a slope within groups needs.

    Attributes
    ----------
    prompt
        Number of the prompt of each row, ascending.
    count
        Tokens with finite x and y, ``[prompts, layers]``.
    decided
        How many of these have δ < ½.
    xx, xy
        Sums of squares and products, centred within prompt and layer.
    """

    prompt: NDArray[np.int64]
    count: Numbers
    decided: Numbers
    xx: Numbers
    xy: Numbers

    @property
    def shares(self) -> Numbers:
        """Share of decided tokens of each layer; NaN where a layer has none at all."""
        return _ratio(self.decided.sum(0), self.count.sum(0))

    def spread(self, layers: Sequence[int] | None = None) -> float:
        """Standard deviation of log δ within prompt and layer; NaN without two tokens anywhere."""
        here = slice(None) if layers is None else list(layers)
        freedom = np.maximum(self.count[:, here] - 1, 0).sum()
        return float(np.sqrt(_ratio(self.xx[:, here].sum(), freedom)))

    def share(self, layers: Sequence[int] | None = None) -> float:
        """Share of (token, step) with δ < ½; NaN without any."""
        here = slice(None) if layers is None else list(layers)
        return float(_ratio(self.decided[:, here].sum(), self.count[:, here].sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Slope:
    """A slope common to prompts and layers.

    Attributes
    ----------
    value
        b; NaN where x has no spread.
    pseudo_values
        One number per prompt with spread, the unit that intervals are taken over; their mean is b
        without its bias of order one over the number of prompts. Empty below two prompts.
    """

    value: float
    pseudo_values: Numbers

    @property
    def standard_error(self) -> float:
        """Jackknife standard error of b; NaN below two prompts."""
        n = len(self.pseudo_values)
        return float(np.std(self.pseudo_values, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def log_response(total_variation: ArrayLike, transplanted: ArrayLike) -> Numbers:
    r"""Log of TV over the geometric mean of the transplanted TVs; NaN where one of them is 0.

    .. math:: y = \log \mathrm{TV} - \tfrac1D \sum_d \log T_d

    The mean of logs, not the log of the mean: where own and transplanted steps are exchangeable
    the first has the mean 0 at every tail mass, the second is off by a curvature that depends on
    it.

    Parameters
    ----------
    total_variation
        TV of the own steps, of any shape.
    transplanted
        TV of the transplanted steps, with the donors on one more axis, the last.

    Examples
    --------
    >>> float(log_response(0.2, [0.1, 0.4]).round(3))
    0.0
    """
    moved, others = (np.asarray(a, np.float64) for a in (total_variation, transplanted))
    if others.shape[:-1] != moved.shape:
        raise InvalidInputError(
            "transplanted must have the shape of total_variation and an axis of donors; found "
            f"{others.shape} and {moved.shape}."
        )
    response: Numbers = _log(moved) - _log(others).mean(-1)
    return response


def slope_sums(prompt: ArrayLike, tail_mass: ArrayLike, response: ArrayLike) -> SlopeSums:
    """Sums of y against log δ within each prompt and layer.

    Parameters
    ----------
    prompt
        Number of the prompt of each token, ``[tokens]``.
    tail_mass
        δ before each step, ``[tokens, layers]``.
    response
        y, of the same shape. A token whose y or log δ is not finite is left out of its group.

    Raises
    ------
    InvalidInputError
        If the shapes do not fit.
    """
    number = np.asarray(prompt, np.int64)
    delta, y = (np.asarray(a, np.float64) for a in (tail_mass, response))
    if delta.ndim != 2 or delta.shape != y.shape or number.shape != delta.shape[:1]:
        raise InvalidInputError(
            "tail_mass and response must be tables [tokens, layers] with a prompt for every token; "
            f"found {delta.shape}, {y.shape} and {number.shape}."
        )
    x = _log(delta)
    valid = np.isfinite(x) & np.isfinite(y)
    prompts, group = np.unique(number, return_inverse=True)

    def summed(values: NDArray[Any]) -> Numbers:
        sums = np.zeros((len(prompts), delta.shape[1]))
        np.add.at(sums, group, np.where(valid, values, 0.0))
        return sums

    count = summed(valid)
    each = np.maximum(count, 1)
    x, y = (np.where(valid, a, 0.0) for a in (x, y))
    x, y = (a - (summed(a) / each)[group] for a in (x, y))
    return SlopeSums(
        prompt=prompts, count=count, decided=summed(delta < 0.5), xx=summed(x * x), xy=summed(x * y)
    )


def joined_sums(parts: Sequence[SlopeSums]) -> SlopeSums:
    """Sums of several sets of prompts as one, in the order of the prompts.

    Raises
    ------
    InvalidInputError
        If a prompt is in two of them: its tokens must be centred together.
    """
    prompt = np.concatenate([part.prompt for part in parts])
    order = np.argsort(prompt, kind="stable")
    twice = np.flatnonzero(np.diff(prompt[order]) == 0)
    if len(twice):
        raise InvalidInputError(
            f"Prompt {prompt[order][twice[0]]} is in two parts. Sum all tokens of a prompt at once."
        )

    def column(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    return SlopeSums(
        prompt=prompt[order],
        count=column("count"),
        decided=column("decided"),
        xx=column("xx"),
        xy=column("xy"),
    )


def common_slope(sums: SlopeSums, layers: Sequence[int] | None = None) -> Slope:
    """Slope of y on log δ within prompt and layer, common to all prompts and the layers named.

    Parameters
    ----------
    sums
        From :func:`slope_sums`.
    layers
        Which columns count; all by default.

    Examples
    --------
    >>> delta = np.exp([[-1.0], [-2.0], [-4.0], [-1.0], [-3.0], [-4.0]])
    >>> sums = slope_sums([0, 0, 0, 1, 1, 1], delta, 0.25 * np.log(delta) + 7)
    >>> round(common_slope(sums).value, 6)
    0.25
    """
    here = slice(None) if layers is None else list(layers)
    xx, xy = sums.xx[:, here].sum(1), sums.xy[:, here].sum(1)
    xx, xy = xx[xx > 0], xy[xx > 0]
    total, n = xx.sum(), len(xx)
    if not n:
        return Slope(value=float("nan"), pseudo_values=np.empty(0))
    value = xy.sum() / total
    if n < 2:
        return Slope(value=float(value), pseudo_values=np.empty(0))
    pseudo = value + (n - 1) * (xy - value * xx) / (total - xx)
    return Slope(value=float(value), pseudo_values=pseudo)


def _log(values: Numbers) -> Numbers:
    """Logarithm; NaN where there is none."""
    logs: Numbers = np.log(values, out=np.full_like(values, np.nan), where=values > 0)
    return logs


def _ratio(over: ArrayLike, under: ArrayLike) -> Numbers:
    """Quotient; NaN over zero."""
    a, b = np.asarray(over, np.float64), np.asarray(under, np.float64)
    quotient: Numbers = np.divide(a, b, out=np.full(np.broadcast(a, b).shape, np.nan), where=b > 0)
    return quotient
