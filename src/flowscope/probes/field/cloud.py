"""Which tokens of a prompt count, and what the cloud of them has as a whole.

The first token and *massive* tokens (longer than 20 times the median) are left out: they would
decide every sum.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.pde import collapse, token_spectrum

__all__ = [
    "LEAST",
    "attempted",
    "cloud",
    "first_tokens",
    "massive_tokens",
    "median",
    "only_share",
    "spread_out",
    "widened",
]

T = TypeVar("T")
_MASSIVE = 20.0
_ROUNDINGS = 64
LEAST = 4
"""Tokens that are left, below which a prompt says nothing."""


def cloud(x: Float[Tensor, "n d"]) -> dict[str, float]:
    """Median length, likeness, effective rank and high frequencies of the tokens that count."""
    found = {"norm": median(x.norm(dim=-1))}
    alike = attempted(lambda: collapse(x))
    if alike is not None:
        found |= {
            "mean_cosine": float(alike.mean_cosine),
            "centred_share": float(alike.centred_share),
            "effective_rank": float(alike.effective_rank),
        }
    spectrum = attempted(lambda: token_spectrum(x))
    if spectrum is not None:
        found["high_frequency_stream"] = float(spectrum.high_frequency)
    return found


def spread_out(x: Float[Tensor, "n d"]) -> bool:
    """Whether tokens lie further apart than rounding puts equal ones."""
    apart = (x - x.mean(0)).norm()
    return bool(apart > _ROUNDINGS * torch.finfo(x.dtype).eps * x.norm())


def only_share(state: Float[Tensor, "n d"], write: Float[Tensor, "n d"]) -> float | None:
    """Change of the spread by one write, as a share of it; None of equal tokens.

    That of `flowscope.pde.spread_balance`, without its cosines.
    """
    if not spread_out(state):
        return None
    apart, moved = (x - x.mean(0) for x in (state, write))
    return float(((apart + 0.5 * moved) * moved).sum() / (0.5 * apart.square().sum()))


def massive_tokens(
    counted: Bool[Tensor, "batch L"], *states: Float[Tensor, "batch L d"]
) -> Bool[Tensor, "batch L"]:
    """Tokens that are massive in any of these states."""
    found = torch.zeros_like(counted)
    for state in states:
        lengths = state.norm(dim=-1)
        middle = torch.where(counted, lengths, torch.nan).nanmedian(-1, keepdim=True).values
        found |= counted & (lengths > _MASSIVE * middle)
    return found


def first_tokens(counted: Bool[Tensor, "batch L"]) -> Bool[Tensor, "batch L"]:
    """The first token of every row that counts."""
    return counted & (counted.cumsum(-1) == 1)


def widened(x: Tensor) -> Tensor:
    """A tensor without its graph, in single precision at least."""
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def median(x: Tensor) -> float:
    """Median of numbers; NaN of none."""
    return float(np.median(x.double().cpu().numpy())) if len(x) else float("nan")


def attempted(make: Callable[[], T]) -> T | None:
    """What a balance returns, or None where its tokens have none (all equal, or zero)."""
    try:
        return make()
    except FlowscopeError:
        return None
