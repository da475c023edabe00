r"""How much a path moves, in total and against its own size.

For states $z^0, …, z^n$ and steps $\Delta z^\ell = z^\ell - z^{\ell-1}$, gauge-fixed (centred),

$$
\mathrm{TV} = \sum \lVert\Delta z\rVert, \quad S = \sum \lVert\Delta z\rVert^2, \quad
\bar S = \frac{\sum_\ell \lVert\Delta z^\ell\rVert^2}{\sum_\ell \lVert z^\ell\rVert^2}, \quad
c = \frac{n S}{\mathrm{TV}^2} \in [1, n], \quad
\tau = \frac{\mathrm{TV}}{\lVert z^n - z^0\rVert} \ge 1 .
$$

Source 000 §5.1 calls $S$ bounded variation; it is quadratic variation. $\bar S$ is the gate
statistic: its denominator runs over the states *after* each step.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "centred_gram",
    "concentration",
    "line_relative_variation",
    "quadratic_variation_gram",
    "relative_variation",
    "tortuosity",
]

Array = NDArray[np.floating[Any]]


def relative_variation(
    step_sq: Float[Array, "*batch n"], state_sq: Float[Array, "*batch n"]
) -> Float[NDArray[np.float64], "*batch"]:
    """S̄: squared steps over squared states, summed apart; 0 where nothing moves.

    Parameters
    ----------
    step_sq
        Squared length of each step.
    state_sq
        Squared length of the state after each step.

    Raises
    ------
    InvalidInputError
        When the shapes differ, or a path moves without ever being anywhere.

    Examples
    --------
    >>> relative_variation(np.array([1.0, 1.0]), np.array([4.0, 6.0]))
    np.float64(0.2)
    """
    if np.shape(step_sq) != np.shape(state_sq):
        raise InvalidInputError(
            f"steps and the states after them must pair up; got {np.shape(step_sq)} and "
            f"{np.shape(state_sq)}."
        )
    moved, size = np.sum(step_sq, -1, dtype=np.float64), np.sum(state_sq, -1, dtype=np.float64)
    if np.any((size == 0) & (moved > 0)):
        raise InvalidInputError(
            "A path that moves ends at zero after every step: S̄ is undefined. Check the states."
        )
    return np.divide(moved, size, out=np.zeros_like(moved), where=size > 0)[()]


def concentration(step_sq: Float[Array, "*batch n"]) -> Float[NDArray[np.float64], "*batch"]:
    """C = n Σ‖Δz‖² / (Σ‖Δz‖)²: 1 for even steps, n for one jump; 1 where nothing moves.

    Examples
    --------
    >>> concentration(np.array([4.0, 0.0, 0.0])), concentration(np.array([1.0, 1.0]))
    (np.float64(3.0), np.float64(1.0))
    """
    steps = np.asarray(step_sq, np.float64)
    total = np.sqrt(steps).sum(-1)
    even = np.ones_like(total)
    np.divide(steps.shape[-1] * steps.sum(-1), total**2, out=even, where=total > 0)
    return np.asarray(even)[()]


def tortuosity(
    step_sq: Float[Array, "*batch n"], chord: Float[Array, "*batch"]
) -> Float[NDArray[np.float64], "*batch"]:
    """τ = Σ‖Δz‖ / ‖z^last − z^first‖: 1 for a straight path, ∞ for one that returns.

    A path that does not move at all is straight.

    Examples
    --------
    >>> tortuosity(np.array([1.0, 1.0]), np.array(2.0))
    np.float64(1.0)
    """
    total = np.sqrt(np.asarray(step_sq, np.float64)).sum(-1)
    length = np.asarray(chord, np.float64)
    away = np.where(total > 0, np.inf, 1.0)
    np.divide(total, length, out=away, where=length > 0)
    return away[()]


def line_relative_variation(
    first_sq: Float[Tensor, "*batch"],
    last_sq: Float[Tensor, "*batch"],
    product: Float[Tensor, "*batch"],
    *,
    steps: int,
) -> Float[Tensor, "*batch"]:
    r"""S̄ of the straight line between two states in equal steps, in closed form.

    With $a, b$ the ends and $n$ steps, $z^k = a + \tfrac{k}{n}(b-a)$ and

    $$ \bar S = \frac{\lVert b-a\rVert^2 / n}{\sum_{k=1}^n \lVert z^k\rVert^2} . $$

    Parameters
    ----------
    first_sq, last_sq, product
        ‖a‖², ‖b‖² and ⟨a, b⟩, centred.
    steps
        n.

    Examples
    --------
    >>> one = torch.tensor(1.0)
    >>> line_relative_variation(0 * one, one, 0 * one, steps=2)
    tensor(0.4000)
    """
    t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
    squares = ((1 - t).square().sum(), t.square().sum(), (2 * t * (1 - t)).sum())
    size = squares[0] * first_sq + squares[1] * last_sq + squares[2] * product
    chord = (first_sq + last_sq - 2 * product).clamp_min(0)
    return torch.where(size > 0, chord / (steps * size), 0.0).to(first_sq.dtype)


def centred_gram(weight: Float[Tensor, "V d"]) -> Float[Tensor, "d d"]:
    """G = UcᵀUc of an output matrix, centred over the vocabulary; form it once, O(V d²)."""
    centred = weight - weight.mean(0, keepdim=True)
    return centred.mT @ centred


def quadratic_variation_gram(
    states: Float[Tensor, "n d"], gram: Float[Tensor, "d d"]
) -> Float[Tensor, " steps"]:
    r"""Exact ‖UΔx‖² of the steps between states that a linear output multiplies, O(d²) each.

    $$ \lVert U_c \Delta x\rVert^2 = \Delta x^\top (U_c^\top U_c) \Delta x $$

    ``states`` are the *normed* states along depth (axis 0); a soft-cap after the product breaks
    the identity, then go through the logits.
    """
    steps = states[1:] - states[:-1]
    return ((steps @ gram) * steps).sum(-1)
