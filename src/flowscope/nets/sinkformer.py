r"""Sinkformer layers: transformers whose attention is a coupling of queries and keys.

$$
Y = X + \Pi(X)\,X W_V^\top W_O^\top, \qquad
\Pi = \mathrm{Sinkhorn}_k\bigl(X W_Q^\top W_K X^\top / \sqrt{d_h}\bigr) ,
$$

with $k$ column and row steps from the row softmax (`flowscope.transport.iterations`): $k = 0$ is an
ordinary transformer, $k \to \infty$ a doubly stochastic attention, for which depth is a Wasserstein
gradient flow when $W_Q^\top W_K = W_K^\top W_Q = -W_V$ (Sander, Ablin, Blondel, Peyré: Sinkformers,
2022, Proposition 2). Gradients go through the iterations.

Attention here is bidirectional: under a causal mask equal columns leave the identity alone.

`flowscope.Tap` does not see these layers: it reads torch's fused softmax kernel, through which
another normalisation cannot go. `SinkhornAttention.kernel` gives their attention instead.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.transport.iterations import sinkhorn_attention

__all__ = ["Sinkformer", "SinkhornAttention"]

Tokens = Float[Tensor, "batch n d"]
Padding = Bool[Tensor, "batch n"] | None


class SinkhornAttention(nn.Module):
    r"""Multi-head attention whose rows sum to one and whose columns are drawn to one.

    Parameters
    ----------
    width
        Features $d$ of a token; a multiple of ``heads``.
    heads
        Number of heads.
    iterations
        Column and row steps $k$; 0 is softmax attention.
    bias
        Whether the projections have a bias.
    """

    def __init__(self, width: int, heads: int, iterations: int = 3, *, bias: bool = True) -> None:
        super().__init__()
        if heads < 1 or width < 1 or width % heads:
            raise InvalidInputError(
                f"width must be a multiple of heads, both positive; got {width} and {heads}."
            )
        if iterations < 0:
            raise InvalidInputError(f"iterations must be zero or more; got {iterations}.")
        self.heads, self.iterations = heads, iterations
        self.queries, self.keys, self.values, self.output = (
            nn.Linear(width, width, bias=bias) for _ in range(4)
        )

    def kernel(self, x: Tokens, padding: Padding = None) -> Float[Tensor, "batch heads n n"]:
        """The attention $Π$ of tokens ``x``, float32 or better.

        Parameters
        ----------
        x
            Tokens.
        padding
            True where a token is padding: it gets no mass and counts in no column.
        """
        q, k = self._split(self.queries(x)), self._split(self.keys(x))
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(q.dtype, torch.float32)
            logits = q.to(wide) @ k.to(wide).mT * q.shape[-1] ** -0.5
            if padding is None:
                return sinkhorn_attention(logits, self.iterations)
            logits = logits.masked_fill(padding[:, None, None, :], -torch.inf)
            live = ~padding[:, None, :].expand(logits.shape[:-1])
            return sinkhorn_attention(logits, self.iterations, queries=live)

    def forward(self, x: Tokens, padding: Padding = None) -> Tokens:
        """Attention applied to values, heads joined again."""
        values = self._split(self.values(x))
        mixed = self.kernel(x, padding).to(values.dtype) @ values
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return joined

    def extra_repr(self) -> str:
        """What the projections do not show."""
        return f"heads={self.heads}, iterations={self.iterations}"

    def _split(self, x: Tokens) -> Float[Tensor, "batch heads n d_h"]:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class Sinkformer(nn.Module):
    r"""A transformer block with Sinkhorn attention: pre-norm, two residual additions.

    $$
    Y = X + \mathrm{Attention}(\mathrm{LN}\,X), \qquad Z = Y + \mathrm{MLP}(\mathrm{LN}\,Y) .
    $$

    Parameters
    ----------
    width, heads, iterations
        As for `SinkhornAttention`, which is the block without norm and residual.
    hidden
        Width of the feed-forward part; four times ``width`` by default, 0 leaves that part out.

    Examples
    --------
    Tokens learn to be sorted: one step lowers the loss.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(Sinkformer(8, 2), Sinkformer(8, 2), nn.Linear(8, 1))
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    >>> x = torch.randn(16, 5, 8)
    >>> goal = x[..., :1].argsort(1).argsort(1).float()
    >>> losses = []
    >>> for _ in range(2):
    ...     loss = (model(x) - goal).square().mean()
    ...     optimiser.zero_grad()
    ...     loss.backward()
    ...     optimiser.step()
    ...     losses.append(loss.item())
    >>> losses[1] < losses[0]
    True
    """

    def __init__(
        self, width: int, heads: int, iterations: int = 3, *, hidden: int | None = None
    ) -> None:
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SinkhornAttention(width, heads, iterations)
        self.feed_forward: nn.Module | None = None
        if hidden:
            self.feed_forward = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
            )

    def forward(self, x: Tokens, padding: Padding = None) -> Tokens:
        """The block applied to tokens; ``padding`` is True where a token is none."""
        x = x + self.attention(self.attention_norm(x), padding)
        return x if self.feed_forward is None else x + self.feed_forward(x)
