r"""The least move of a probability vector that can change its top outcome.

With p₁ ≥ p₂ the two largest entries, every law q whose top outcome is another one satisfies

.. math:: \mathrm{TV}(p, q) \ge \tfrac12 (p_1 - p_2), \qquad
          \mathrm{KL}(q \| p) \ge -\log\big(1 - (\sqrt{p_1} - \sqrt{p_2})^2\big), \qquad
          \mathrm{KL}(p \| q) \ge p_1 \log\tfrac{2 p_1}{p_1 + p_2}
          + p_2 \log\tfrac{2 p_2}{p_1 + p_2}, \qquad \operatorname{osc}(\Delta z) \ge \log(p_1/p_2)

and each bound is attained by a law in which the two tie. A guard by Pinsker's inequality asks for
KL < (p₁ − p₂)²/2: that is smaller by a factor 3.4 at (.99, .01) and without bound as p₁ → 1.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_probabilities

__all__ = ["FlipKind", "flip_radius"]

FlipKind = Literal["tv", "kl", "reverse_kl", "logit"]


@torch.no_grad()
def flip_radius(
    p: Float[Tensor, "*batch V"] | ArrayLike, kind: FlipKind = "tv"
) -> Float[Tensor, "*batch"]:
    r"""Least move from p to a law whose top outcome is another one; no slopes.

    .. math:: \min_q \{ D(p, q) : q_2 \ge q_1 \}

    Parameters
    ----------
    p : probability vectors, the outcomes on the last axis.
    kind : what D is: ``"tv"`` TV(p, q); ``"kl"`` KL(q‖p); ``"reverse_kl"`` KL(p‖q); ``"logit"``
        osc(Δz), the :func:`oscillation` of the step of the logits that leads from p to q.

    Returns
    -------
    The radius: 0 where two outcomes tie, +∞ (``"kl"``, ``"logit"``) where only one is possible.

    Raises
    ------
    InvalidInputError
        If p is not a family of probability vectors, or the kind is unknown.

    Notes
    -----
    From the two largest entries and the mass of the others, in float64; nothing cancels near a tie
    or a vertex. O(V). Source 000 §8.3 compares TV with the whole margin p₁ − p₂, which is twice
    the radius.

    Examples
    --------
    >>> flip_radius([[0.6, 0.3, 0.1], [0.99, 0.01, 0.0]], "kl")
    tensor([0.0528, 1.6145], dtype=torch.float64)
    """
    if kind not in get_args(FlipKind):
        known = ", ".join(get_args(FlipKind))
        raise InvalidInputError(f"kind must be one of {known}; found {kind!r}. Choose one of them.")
    x = as_probabilities(p, "p")
    top = x.topk(2, dim=-1)
    first, second = top.values.double().unbind(-1)
    if kind == "tv":
        radius = (first - second) / 2
    elif kind == "logit":
        radius = _logit_gap(first, second)
    elif kind == "kl":
        rest = x.scatter(-1, top.indices, 0.0).sum(-1, dtype=torch.float64)
        radius = _forward(first, second, rest)
    else:
        radius = _reverse(first, second)
    return radius.to(x.dtype)


def _logit_gap(first: Tensor, second: Tensor) -> Tensor:
    """log(p₁/p₂), exact near a tie."""
    near = second > first / 2
    return torch.where(
        near,
        torch.log1p((first - second) / second.where(near, 1.0)),
        first.log() - second.log(),
    )


def _forward(first: Tensor, second: Tensor, rest: Tensor) -> Tensor:
    """−log(1 − (√p₁ − √p₂)²), where 1 − (√p₁ − √p₂)² is also rest + 2√(p₁p₂)."""
    gap = ((first - second) / (first.sqrt() + second.sqrt())) ** 2
    near = gap <= 0.5
    return torch.where(
        near,
        -torch.log1p(-gap.where(near, 0.0)),
        -torch.log(rest + 2 * (first * second).sqrt()),
    )


def _reverse(first: Tensor, second: Tensor) -> Tensor:
    """KL from p to the law in which its two leading outcomes share their mass."""
    mass = first + second
    lean = (first - second) / mass
    near = lean <= 0.5
    inner = lean.where(near, 0.0)
    close = inner * (torch.log1p(inner) - torch.log1p(-inner)) + torch.log1p(-(inner**2))
    far = torch.xlogy(first, 2 * first / mass) + torch.xlogy(second, 2 * second / mass)
    return torch.where(near, mass / 2 * close, far)
