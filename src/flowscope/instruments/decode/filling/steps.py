"""One pass as a policy sees it, and the plain order in which positions are filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.decode.filling.laws import Laws

__all__ = ["Order", "Plan", "Step", "advanced", "best_positions", "order_scores", "planned_passes"]

Order = Literal["confidence", "margin", "entropy", "random"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Order and rate of the reference; a policy falls back on it.

    Attributes
    ----------
    order
        What is filled first: the most confident position, the one with the largest margin or the
        smallest entropy, or one at random.
    tokens
        Positions filled in a pass.
    block
        Blanks in a block; a block is filled before the next begins. 0 makes one block of all.
    temperature
        0 fills in the leading token; above, tokens are drawn.
    eos
        Token that ends an answer: once it stands with nothing masked before it, the rest of the
        blanks become it too. None ends nothing.
    seed
        Of the random order and of drawn tokens.
    """

    order: Order = "confidence"
    tokens: int = 1
    block: int = 0
    temperature: float = 0.0
    eos: int | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """What a policy knows when it decides.

    Attributes
    ----------
    trail
        Laws of the last passes, the present one last.
    masked, region
        Positions not filled yet, and blanks that count as the answer, ``[rows, positions]``.
    open
        Masked positions of the present block.
    best
        What the reference would fill now.
    score
        Order of the reference: larger is filled first.
    passes, planned
        Passes made, this one among them, and passes that the reference makes, for each row.
    """

    trail: Sequence[Laws]
    masked: Bool[Tensor, "rows positions"]
    region: Bool[Tensor, "rows positions"]
    open: Bool[Tensor, "rows positions"]
    best: Bool[Tensor, "rows positions"]
    score: Float[Tensor, "rows positions"]
    passes: Int[Tensor, "rows"]
    planned: Int[Tensor, "rows"]

    @property
    def laws(self) -> Laws:
        """Laws of this pass."""
        return self.trail[-1]

    @property
    def progress(self) -> Float[Tensor, "rows"]:
        """Share of the reference's passes that were made before this one."""
        return (self.passes - 1) / self.planned

    @property
    def waiting(self) -> Bool[Tensor, "rows positions"]:
        """Masked positions of the answer; all masked ones where none of the answer is left."""
        asked = self.masked & self.region
        return torch.where(asked.any(1, keepdim=True), asked, self.masked)


def order_scores(
    laws: Laws, plan: Plan, numbers: NDArray[np.int64]
) -> Float[Tensor, "rows positions"]:
    """Order of the masked positions of each row: larger is filled first, −∞ elsewhere."""
    if plan.order == "confidence":
        score = laws.first
    elif plan.order == "margin":
        score = laws.margin
    elif plan.order == "entropy":
        score = -laws.entropy
    else:
        keys = [
            np.random.default_rng([plan.seed, int(number)]).random(laws.top.shape[1])
            for number in numbers
        ]
        score = torch.as_tensor(np.stack(keys), device=laws.top.device)
    return score.masked_fill(laws.top < 0, -torch.inf)


def blocks_of(blank: Tensor, size: int) -> Tensor:
    """Number of the block of each blank, from 0."""
    rank = blank.long().cumsum(1) - 1
    return rank // size if size else torch.zeros_like(rank)


def open_positions(masked: Tensor, blank: Tensor, size: int) -> Tensor:
    """Masked positions of the first block that has some."""
    if not size:
        return masked
    block = blocks_of(blank, size).masked_fill(~masked, torch.iinfo(torch.long).max)
    return masked & (block == block.amin(1, keepdim=True))


def best_positions(
    score: Float[Tensor, "rows positions"], open: Bool[Tensor, "rows positions"], count: int
) -> Bool[Tensor, "rows positions"]:
    """The first few open positions by score; of equal scores the leftmost."""
    ranked = score.masked_fill(~open, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    chosen = torch.zeros_like(open)
    chosen.scatter_(1, ranked[:, :count], True)
    return chosen & open


def planned_passes(blank: Bool[Tensor, "rows positions"], plan: Plan) -> Int[Tensor, "rows"]:
    """Passes that the reference makes for each row if no end-of-text token comes early."""
    block = blocks_of(blank, plan.block)
    total = torch.zeros(len(blank), dtype=torch.long, device=blank.device)
    for number in range(int(block.max()) + 1):
        size = ((block == number) & blank).sum(1)
        total += -(-size // plan.tokens)
    return total


def advanced(
    ids: Int[Tensor, "rows positions"],
    masked: Bool[Tensor, "rows positions"],
    chosen: Bool[Tensor, "rows positions"],
    top: Int[Tensor, "rows positions"],
    plan: Plan,
) -> tuple[Int[Tensor, "rows positions"], Bool[Tensor, "rows positions"]]:
    """Sequences and masks after some positions are filled; an answer that has ended is closed."""
    ids, masked = ids.where(~chosen, top), masked & ~chosen
    if plan.eos is None or not bool((chosen & (top == plan.eos)).any()):
        return ids, masked
    first = torch.where(masked.any(1), masked.long().argmax(1), masked.shape[1])
    place = torch.arange(ids.shape[1], device=ids.device)
    ended = ((ids == plan.eos) & chosen & (place < first[:, None])).any(1, keepdim=True)
    rest = masked & ended
    return ids.masked_fill(rest, plan.eos), masked & ~rest
