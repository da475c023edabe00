r"""How far tokens lie apart, and which write draws them together.

The spread $V = \frac12\sum_i\lVert x_i-\bar x\rVert^2$ changes under writes $w = \sum_k w_k$ by

$$
\Delta V = \sum_k \bigl\langle C(x+\tfrac12 w),\,C w_k\bigr\rangle, \qquad
C = I - \tfrac1N\mathbf 1\mathbf 1^\top ,
$$

each term the share of one write; a negative share is diffusion. Tokens *collapse* where their
directions become one: the mean cosine tends to 1 and the effective rank of the centred directions
falls. The rank is taken *centred*: uncentred it falls wherever a common offset grows, which a norm
or a bias removes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.pde.states import as_states, as_writes, directions, mean_cosine, several_tokens
from flowscope.simplex.probability import ArrayLike, within_range

__all__ = ["Collapse", "SpreadBalance", "collapse", "spread_balance"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SpreadBalance:
    """Spread and mean cosine of the tokens, and what each write does to them.

    Attributes
    ----------
    spread
        V before the writes.
    shares
        Share of each write in the change of V; they sum to it.
    cosine
        Mean cosine over pairs of tokens before the writes.
    cosine_changes
        Change of the mean cosine when one write alone is added; these do not sum.
    """

    spread: Float[Tensor, "*batch"]
    shares: Float[Tensor, "K *batch"]
    cosine: Float[Tensor, "*batch"]
    cosine_changes: Float[Tensor, "K *batch"]


def spread_balance(
    x: Float[Tensor, "*batch N d"] | ArrayLike,
    writes: Sequence[Float[Tensor, "*batch N d"] | ArrayLike],
) -> SpreadBalance:
    """Shares of writes in the change of the tokens' spread.

    Parameters
    ----------
    x
        States before the writes.
    writes
        Parts of what is added, in any order.

    Raises
    ------
    InvalidInputError
        If there are fewer than two tokens or no write, shapes differ, or a state is zero.

    Examples
    --------
    >>> balance = spread_balance([[1.0, 1.0], [1.0, -1.0]], [[[0.0, -0.5], [0.0, 0.5]]])
    >>> balance.spread.item(), balance.shares.item()
    (1.0, -0.75)
    """
    state = as_states(x, "x")
    several_tokens(state, "x")
    added = as_writes(writes, state)
    middle = _centred(state + 0.5 * added.sum(0))
    cosine = mean_cosine(directions(state, "a state"))
    alone = mean_cosine(directions(state + added, "a state with one write"))
    return SpreadBalance(
        spread=within_range(
            0.5 * _centred(state).square().sum((-1, -2)), "the spread", infinite=True
        ),
        shares=within_range(
            (middle * _centred(added)).sum((-1, -2)), "a share of the spread", infinite=True
        ),
        cosine=cosine,
        cosine_changes=alone - cosine,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Collapse:
    """How alike tokens are.

    Attributes
    ----------
    mean_cosine
        Over pairs of different tokens; 1 where all point one way.
    centred_share
        ‖X − 1x̄ᵀ‖/‖X‖, between 0 (all equal) and 1 (no common part).
    effective_rank
        Exponential of the entropy of the squared singular values, of *centred* unit directions;
        1 where all directions are equal.
    """

    mean_cosine: Float[Tensor, "*batch"]
    centred_share: Float[Tensor, "*batch"]
    effective_rank: Float[Tensor, "*batch"]


def collapse(x: Float[Tensor, "*batch N d"] | ArrayLike) -> Collapse:
    """Mean cosine, centred share and effective rank of a cloud of tokens.

    Parameters
    ----------
    x
        States of the tokens.

    Raises
    ------
    InvalidInputError
        If there are fewer than two tokens, or a state is zero or not finite.

    Examples
    --------
    >>> found = collapse([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(found.effective_rank.item(), 9), round(found.mean_cosine.item(), 9)
    (2.0, -0.333333333)
    """
    state = as_states(x, "x")
    several_tokens(state, "x")
    unit = directions(state, "a state")
    scaled = state / state.abs().amax((-1, -2), keepdim=True)
    return Collapse(
        mean_cosine=mean_cosine(unit),
        centred_share=_centred(scaled).norm(dim=(-1, -2)) / scaled.norm(dim=(-1, -2)),
        effective_rank=_effective_rank(_centred(unit)),
    )


def _effective_rank(x: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch"]:
    small = x if x.shape[-2] <= x.shape[-1] else x.mT
    energies = torch.linalg.eigvalsh((small @ small.mT).double()).clamp_min(0)
    total = energies.sum(-1, keepdim=True)
    # what rounding leaves of equal directions is no direction
    flat = total <= (torch.finfo(x.dtype).eps ** 2) * max(x.shape[-2:]) * x.shape[-2]
    shares = torch.where(flat, 0.0, energies / total.clamp_min(torch.finfo(torch.float64).tiny))
    entropy: Tensor = torch.special.entr(shares).sum(-1)
    return entropy.exp().to(x.dtype)


def _centred(x: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch N d"]:
    return x - x.mean(-2, keepdim=True)
