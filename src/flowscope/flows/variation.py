r"""How much a path moves: in total, against its own size, evenly or at once, straight or not.

For states z⁰, …, zⁿ of a row with steps Δz^ℓ = z^ℓ − z^{ℓ−1}, every norm centred,

.. math:: \sum \|\Delta z\|, \quad S = \sum \|\Delta z\|^2, \quad
          \bar S = \frac{\sum_\ell \|\Delta z^\ell\|^2}{\sum_\ell \|z^\ell\|^2}, \quad
          \frac{n S}{(\sum \|\Delta z\|)^2} \in [1, n], \quad
          \frac{\sum \|\Delta z\|}{\|z^n - z^0\|} \ge 1 .

Source 000 §5.1 calls S bounded variation; it is quadratic variation, and says nothing about the
length of the path: a zigzag of steps L^{−3/4} has S → 0 and length → ∞. Nothing is estimated here:
each function reads the squared norms that :class:`flowscope.flows.StepStatistics` and
:class:`flowscope.flows.StateStatistics` hold, per token, steps on the last axis.

A path that stands still has length 0, S̄ = 0, concentration 1 (no step is larger than another) and
tortuosity 1 (it is its own chord). One that moves and has no size, or returns to its start, has
S̄ = ∞ or tortuosity ∞.
"""

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = [
    "concentration",
    "line_relative_variation",
    "path_length",
    "quadratic_variation",
    "relative_variation",
    "tortuosity",
]

Array: TypeAlias = NDArray[np.float64]

# Norms are sums over a vocabulary in float32, good to five digits or better.
_ROUNDING = 1e-4


def path_length(
    step_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
) -> Float64[np.ndarray, "*batch"]:
    r"""Length of the path: its total variation as a curve.

    .. math:: \sum_{\ell=1}^n \|\Delta z^\ell\|

    Parameters
    ----------
    step_sq : ‖Δz‖² of each step, steps on the last axis.

    Raises
    ------
    InvalidInputError
        If there is no step, or one is negative or not finite.

    Notes
    -----
    O(n). Not :func:`flowscope.simplex.total_variation`, the distance of two probability vectors.

    Examples
    --------
    >>> path_length([9.0, 16.0])
    np.float64(7.0)
    """
    return _total(np.sqrt(_squares(step_sq, "step_sq")))


def quadratic_variation(
    step_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
) -> Float64[np.ndarray, "*batch"]:
    r"""Quadratic variation of the path.

    .. math:: S = \sum_{\ell=1}^n \|\Delta z^\ell\|^2

    Parameters
    ----------
    step_sq : ‖Δz‖² of each step, steps on the last axis.

    Raises
    ------
    InvalidInputError
        If there is no step, or one is negative or not finite.

    Notes
    -----
    O(n). Source 000 §5.1, there named bounded variation.

    Examples
    --------
    >>> quadratic_variation([9.0, 16.0])
    np.float64(25.0)
    """
    return _total(_squares(step_sq, "step_sq"))


def relative_variation(
    step_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
    state_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
) -> Float64[np.ndarray, "*batch"]:
    r"""Quadratic variation over the squared size of the states: the gate statistic.

    .. math:: \bar S = \frac{\sum_{\ell=1}^n \|\Delta z^\ell\|^2}{\sum_{\ell=1}^n \|z^\ell\|^2}

    Parameters
    ----------
    step_sq : ‖Δz^ℓ‖² of each step.
    state_sq : ‖z^ℓ‖² of the state *after* each step; the start z⁰ does not count.

    Returns
    -------
    S̄ per row: 0 where nothing moves, ∞ where something moves and every state after it is zero.

    Raises
    ------
    InvalidInputError
        If the shapes differ, there is no step, or an entry is negative or not finite.

    Notes
    -----
    O(n). Source 000 N.6 names no normaliser; this one is scale-free and is ours.

    Examples
    --------
    >>> relative_variation([1.0, 1.0], [4.0, 6.0])
    np.float64(0.2)
    """
    steps, states = _squares(step_sq, "step_sq"), _squares(state_sq, "state_sq")
    if steps.shape != states.shape:
        raise InvalidInputError(
            "Each step must come with the state after it; found shapes "
            f"{steps.shape} and {states.shape}. Leave out the start."
        )
    return _ratio(_total(steps), _total(states), still=0.0)


def concentration(
    step_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
) -> Float64[np.ndarray, "*batch"]:
    r"""How unevenly the path moves: 1 for even steps, n for a single jump.

    .. math:: \frac{n \sum \|\Delta z\|^2}{(\sum \|\Delta z\|)^2} \in [1, n]

    Parameters
    ----------
    step_sq : ‖Δz‖² of each step, steps on the last axis.

    Returns
    -------
    The concentration per row; 1 where nothing moves.

    Raises
    ------
    InvalidInputError
        If there is no step, or one is negative or not finite.

    Notes
    -----
    O(n). One plus the squared coefficient of variation of the step lengths.

    Examples
    --------
    >>> concentration([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]])
    array([1., 3.])
    """
    steps = _squares(step_sq, "step_sq")
    lengths = np.sqrt(steps)
    # In units of the longest step, so that squares of lengths neither overflow nor vanish.
    longest = lengths.max(-1, keepdims=True)
    unit = np.divide(lengths, longest, out=np.ones_like(lengths), where=longest > 0)
    return np.asarray(steps.shape[-1] * _total(unit**2) / _total(unit) ** 2)[()]


def tortuosity(
    step_sq: Float64[np.ndarray, "*batch n"] | ArrayLike,
    chord: Float64[np.ndarray, "*batch"] | ArrayLike | float,
) -> Float64[np.ndarray, "*batch"]:
    r"""Length of the path over the distance of its ends.

    .. math:: \frac{\sum_{\ell=1}^n \|\Delta z^\ell\|}{\|z^n - z^0\|} \ge 1

    Parameters
    ----------
    step_sq : ‖Δz‖² of each step, steps on the last axis.
    chord : ‖zⁿ − z⁰‖, not squared.

    Returns
    -------
    The tortuosity per row; ∞ where a path returns to its start, 1 where it never left.

    Raises
    ------
    InvalidInputError
        If an entry is negative or not finite, the shapes do not match, or a chord is longer than
        its path by more than rounding.

    Notes
    -----
    O(n).

    Examples
    --------
    >>> tortuosity([9.0, 16.0], 5.0)
    np.float64(1.4)
    """
    length, distance = path_length(step_sq), np.asarray(chord, np.float64)
    _refuse(distance, "chord")
    if np.shape(distance) != np.shape(length):
        raise InvalidInputError(
            f"chord must have shape {np.shape(length)}, one per path; found {distance.shape}."
        )
    if np.any(distance > length * (1 + _ROUNDING)):
        worst = np.max(distance - length)
        raise InvalidInputError(
            f"A chord is no longer than the path; found one longer by {worst:.6g}. Pass its "
            "length, not the square, between the states before the first and after the last step."
        )
    return _ratio(length, distance, still=1.0)


def line_relative_variation(
    first_sq: Float[Tensor, "*batch"],
    last_sq: Float[Tensor, "*batch"],
    product: Float[Tensor, "*batch"],
    *,
    steps: int,
) -> Float64[Tensor, "*batch"]:
    r"""Relative variation of the straight line between two states: what S̄ would be at least.

    .. math:: \bar S = \frac{6\,\|b - a\|^2}
              {(n-1)(2n-1)\|a\|^2 + (n+1)(2n+1)\|b\|^2 + 2(n^2-1)\langle a, b\rangle}

    Parameters
    ----------
    first_sq, last_sq : ‖a‖² and ‖b‖² of the two ends, centred.
    product : ⟨a, b⟩, centred.
    steps : n, the number of equal steps.

    Returns
    -------
    S̄ per pair: 0 where the ends coincide, ∞ where one step leads to zero.

    Raises
    ------
    InvalidInputError
        If there is no step, or the product is larger than Cauchy–Schwarz allows.

    Notes
    -----
    The sum of ‖a + (k/n)(b − a)‖² over k = 1…n in closed form, O(1). ‖b − a‖² comes from the three
    numbers, so ends that nearly coincide lose digits. The control beside source 000 N.6.

    Examples
    --------
    >>> line_relative_variation(torch.tensor(0.0), torch.tensor(1.0), torch.tensor(0.0), steps=2)
    tensor(0.4000, dtype=torch.float64)
    """
    if steps < 1:
        raise InvalidInputError(f"A line needs at least one step; found {steps}.")
    first, last, inner = (
        as_reals(x, name).double()
        for x, name in [(first_sq, "first_sq"), (last_sq, "last_sq"), (product, "product")]
    )
    for x, name in ((first, "first_sq"), (last, "last_sq"), (inner, "product")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
    chord = first + last - 2 * inner
    if bool((chord < -_ROUNDING * (first + last)).any()):
        raise InvalidInputError(
            "product must obey Cauchy–Schwarz: 2⟨a, b⟩ ≤ ‖a‖² + ‖b‖²; found an excess of "
            f"{-chord.min().item():.6g}. Centre both ends before all three products."
        )
    moved = 6 * chord.clamp_min(0)  # below zero by rounding only
    n = steps
    size = (n - 1) * (2 * n - 1) * first + (n + 1) * (2 * n + 1) * last + 2 * (n**2 - 1) * inner
    away = torch.where(moved > 0, torch.inf, 0.0).double()
    return torch.where(size > 0, moved / size.where(size > 0, 1.0), away)


def _squares(x: ArrayLike, name: str) -> Array:
    found = np.asarray(x, np.float64)
    if found.ndim == 0 or found.shape[-1] == 0:
        raise InvalidInputError(
            f"{name} must have at least one step on its last axis; found shape {found.shape}."
        )
    _refuse(found, name)
    return found


def _refuse(x: Array, name: str) -> None:
    bad = x[~(np.isfinite(x) & (x >= 0))]
    if bad.size:
        raise InvalidInputError(
            f"{name} must be finite and not negative; found {bad.flat[0]:.6g}. Look for the state "
            "that made it."
        )


def _total(x: Array) -> Array:
    return np.asarray(x.sum(-1))[()]


def _ratio(above: Array, below: Array, *, still: float) -> Array:
    default = np.where(above > 0, np.inf, still)
    return np.divide(above, below, out=default, where=np.asarray(below) > 0)[()]
