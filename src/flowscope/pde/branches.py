"""The two branches of a block, attention and feed-forward, each with or without a norm in front."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["AttentionBranch", "FeedForwardBranch"]

Field = Float[Tensor, "batch N d"]


class AttentionBranch(nn.Module):
    """What attention writes; no residual is added.

    Parameters
    ----------
    width, heads
        Features, and heads, which must divide them.
    norm
        ``"layer"`` puts LayerNorm in front, ``"none"`` nothing.
    causal
        Whether a token sees only earlier ones.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        norm: Literal["layer", "none"] = "layer",
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm == "layer" else nn.Identity()
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self._heads, self._causal = heads, causal

    def forward(self, u: Field) -> Field:
        """What the branch writes."""
        q, k, v = self._projections(u)
        read = F.scaled_dot_product_attention(q, k, v, is_causal=self._causal)
        written: Tensor = self.output(read.transpose(-2, -3).flatten(-2))
        return written

    def kernel(self, u: Field) -> Float[Tensor, "batch heads N N"]:
        """Rows of attention of every head at a state."""
        q, k, _ = self._projections(u)
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self._causal:
            later = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
            logits = logits.masked_fill(later, -torch.inf)
        rows: Tensor = logits.softmax(-1)
        return rows

    def _projections(self, u: Field) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.inputs(self.norm(u)).unflatten(-1, (3, self._heads, -1)).unbind(-3)
        return q.transpose(-2, -3), k.transpose(-2, -3), v.transpose(-2, -3)


class FeedForwardBranch(nn.Module):
    """What the pointwise network writes; no residual is added.

    Parameters
    ----------
    width, expansion
        Features, and width of the hidden layer in units of them.
    norm
        ``"layer"`` puts LayerNorm in front, ``"none"`` nothing.
    """

    def __init__(
        self, width: int, expansion: int = 4, *, norm: Literal["layer", "none"] = "layer"
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm == "layer" else nn.Identity()
        self.inputs = nn.Linear(width, expansion * width)
        self.output = nn.Linear(expansion * width, width)

    def forward(self, u: Field) -> Field:
        """What the branch writes."""
        written: Tensor = self.output(F.gelu(self.inputs(self.norm(u))))
        return written
