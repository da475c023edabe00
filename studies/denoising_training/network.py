"""The network of the bundled denoiser: a Llama that sees both ways, laid out for fast training.

The weights of all layers lie in a few stacked tensors, so that one batched product serves the
optimiser; texts of several lengths go through the layers as one stream of tokens and part only for
attention. `exported` writes the same numbers as a plain ``LlamaForCausalLM``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Denoiser", "Sizes", "denoiser_of", "state_of_llama"]


@dataclass(frozen=True)
class Sizes:
    """What decides the shape of the network; ``periods`` are those of the rotary positions."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    feed_forward: int
    periods: tuple[float, ...]
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads


class Denoiser(nn.Module):
    """Tokens to logits at every position, each position reading all others."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.sizes = sizes
        draw = torch.Generator().manual_seed(seed)
        layers, d, f = sizes.layers, sizes.width, sizes.feed_forward

        def normal(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=draw) * scale)

        self.embedding = normal(sizes.vocabulary, d, scale=0.5)
        self.reading = normal(layers, 3 * d, d, scale=1 / math.sqrt(d))
        self.entering = normal(layers, 2 * f, d, scale=1 / math.sqrt(d))
        # What a block writes starts small, and so do the logits.
        self.writing = normal(layers, d, d, scale=0.1 / math.sqrt(d))
        self.leaving = normal(layers, d, f, scale=0.1 / math.sqrt(f))
        self.head = normal(sizes.vocabulary, d, scale=0.1 / math.sqrt(d))
        self.gains = nn.Parameter(torch.ones(2 * layers + 1, d))

    def matrices(self) -> list[nn.Parameter]:
        """Stacked matrices of the blocks, for the optimiser of matrices."""
        return [self.reading, self.entering, self.writing, self.leaving]

    def others(self) -> list[nn.Parameter]:
        """Embedding, output and gains."""
        return [self.embedding, self.head, self.gains]

    def rotations(self, lengths: Sequence[int], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every token of a stream, as Llama rotates."""
        place = torch.cat([torch.arange(n).repeat(b) for n, b in zip(lengths, counts, strict=True)])
        speed = 2 * math.pi / torch.tensor(self.sizes.periods, dtype=torch.float64)
        angle = (place.double()[:, None] * speed).repeat(1, 2)[:, None]
        device = self.embedding.device
        return angle.cos().float().to(device), angle.sin().float().to(device)

    def forward(self, parts: list[Tensor], cosine: Tensor, sine: Tensor) -> list[Tensor]:
        """Logits of every part, ``[rows, tokens, vocabulary]``."""
        sizes = self.sizes
        tokens = torch.cat([part.flatten() for part in parts])
        # A product: the gradient of a lookup would add up many thousand rows at a few addresses.
        x = (F.one_hot(tokens, sizes.vocabulary).to(self.embedding.dtype) @ self.embedding).float()
        gains = self.gains.unbind(0)
        layers = zip(
            self.reading.unbind(0), self.writing.unbind(0), self.entering.unbind(0),
            self.leaving.unbind(0), gains[::2], gains[1::2], strict=False,
        )  # fmt: skip
        for reading, writing, entering, leaving, before, between in layers:
            heads = F.linear(_normed(x, before, sizes.epsilon), reading)
            q, k, v = heads.view(len(x), 3, sizes.heads, sizes.head).unbind(1)
            q, k = _rotated(q, cosine, sine), _rotated(k, cosine, sine)
            x = x + F.linear(_attended(q, k, v, parts), writing)
            gate, up = F.linear(_normed(x, between, sizes.epsilon), entering).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, leaving)
        logits = F.linear(_normed(x, gains[-1], sizes.epsilon), self.head)
        split = logits.split([part.numel() for part in parts])
        return [s.view(*part.shape, -1) for s, part in zip(split, parts, strict=True)]


def _normed(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gain


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return (x * cosine + torch.cat([-second, first], -1) * sine).to(x.dtype)


def _attended(q: Tensor, k: Tensor, v: Tensor, parts: list[Tensor]) -> Tensor:
    """Attention within each text."""
    found, start = [], 0
    for part in parts:
        rows = slice(start, start + part.numel())
        heads = [x[rows].view(*part.shape, *x.shape[1:]).transpose(1, 2) for x in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*heads)
        found.append(mixed.transpose(1, 2).reshape(part.numel(), -1))
        start += part.numel()
    return torch.cat(found)


def state_of_llama(model: Denoiser) -> dict[str, Tensor]:
    """The weights under the names of ``LlamaForCausalLM``."""
    named = _named(model)
    return {name: weight.detach().cpu().contiguous() for name, weight in named.items()}


@torch.no_grad()
def denoiser_of(state: dict[str, Tensor], sizes: Sizes) -> Denoiser:
    """The network that has these weights of a ``LlamaForCausalLM``."""
    model = Denoiser(sizes, seed=0)
    named = _named(model)
    if named.keys() != state.keys():
        raise ValueError(f"Weights of other layers: {sorted(named.keys() ^ state.keys())[:4]} …")
    for name, weight in named.items():
        weight.copy_(state[name])
    return model


def _named(model: Denoiser) -> dict[str, Tensor]:
    """Views of the stacked weights by their names in a Llama."""
    found: dict[str, Tensor] = {
        "model.embed_tokens.weight": model.embedding,
        "model.norm.weight": model.gains[-1],
        "lm_head.weight": model.head,
    }
    for layer in range(model.sizes.layers):
        q, k, v = model.reading[layer].chunk(3)
        gate, up = model.entering[layer].chunk(2)
        names = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v,
            "self_attn.o_proj": model.writing[layer], "mlp.gate_proj": gate, "mlp.up_proj": up,
            "mlp.down_proj": model.leaving[layer], "input_layernorm": model.gains[2 * layer],
            "post_attention_layernorm": model.gains[2 * layer + 1],
        }  # fmt: skip
        found |= {f"model.layers.{layer}.{name}.weight": w for name, w in names.items()}
    return found
