r"""A transformer whose residual connections and norms can be left out, beside `MasterEquation`.

$$
v = r\,u + \mathrm{Attn}(u), \qquad u' = r\,v + \mathrm{FFN}(v), \qquad r \in \{0, 1\} .
$$

Source 001 compares a transformer with a simulator that differs in norm, leak, stabiliser and
diffusion at once. Here two networks can differ in one of them alone.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.pde.branches import AttentionBranch, FeedForwardBranch

__all__ = ["AblatedTransformer"]

Field = Float[Tensor, "batch N d"]


class AblatedTransformer(nn.Module):
    """Blocks of attention, then feed-forward, with or without residual and norm.

    Parameters
    ----------
    width, heads
        Features, and heads, which must divide them.
    blocks
        Number of blocks.
    residual
        Whether each branch is added to its input; otherwise it replaces the input.
    norm
        ``"layer"`` puts LayerNorm in front of each branch, ``"none"`` nothing.
    causal
        Whether a token sees only earlier ones.

    Raises
    ------
    InvalidInputError
        For a size that is not positive, or heads that do not divide the width.

    Examples
    --------
    >>> model = AblatedTransformer(width=8, heads=2, blocks=6)
    >>> _ = [weight.data.zero_() for name, weight in model.named_parameters() if "output" in name]
    >>> model(torch.ones(1, 3, 8))[0, 0, 0].item()  # zero weights leave the stream alone
    1.0
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        blocks: int,
        residual: bool = True,
        norm: Literal["layer", "none"] = "layer",
        causal: bool = False,
    ) -> None:
        super().__init__()
        if width < 1 or blocks < 1 or heads < 1 or width % heads:
            raise InvalidInputError(
                "width and blocks must be positive and heads must divide the width; got "
                f"width {width}, blocks {blocks}, heads {heads}."
            )
        self.blocks, self.residual = blocks, residual
        self.attentions = nn.ModuleList(
            AttentionBranch(width, heads, norm=norm, causal=causal) for _ in range(blocks)
        )
        self.perceptrons = nn.ModuleList(FeedForwardBranch(width, norm=norm) for _ in range(blocks))

    def forward(self, u: Field) -> Field:
        """The states after all blocks."""
        for index in range(self.blocks):
            u = self.step(u, index)
        return u

    def path(self, u: Field) -> Float[Tensor, "blocks+1 batch N d"]:
        """The states before the first block and after every one."""
        states = [u]
        for index in range(self.blocks):
            states.append(self.step(states[-1], index))
        return torch.stack(states)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.blocks

    def step(self, u: Field, index: int) -> Field:
        """One block."""
        for branch in (self.attentions[index], self.perceptrons[index]):
            u = u + branch(u) if self.residual else branch(u)
        return u
