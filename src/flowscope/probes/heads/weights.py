r"""The directed part of a head's weights, $R_{qk}$.

$$ R_{qk} = \lVert\mathrm{antisym}\,B\rVert / \lVert\mathrm{sym}\,B\rVert, \qquad
B = W_Q^\top W_K . $$

The number is defined where queries and keys are linear functions of one input. Whether they are is
not asked of names but of the numbers of a pass: among the linear maps inside the module that calls
attention, those are taken whose output on the module's input *is* the queries, or the keys (whole,
or a part of a fused map). Rotary embeddings and query–key norms stand between, so no map is found
there: $x_i^\top B x_j$ is then not the score, and the number is not defined. Biases of the maps add
terms of one token alone to the scores; $B$ does not hold them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.markov import weight_ratio
from flowscope.probes.heads.chain_probe import self_attention
from flowscope.probes.inputs import AttentionInputs
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, Chain, Tap

__all__ = ["weight_ratios"]

_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@torch.no_grad()
def weight_ratios(
    model: nn.Module, inputs: Mapping[str, Any]
) -> dict[int, Float[Tensor, " H"] | Unavailable]:
    """$R_{qk}$ of every head, by position in depth (from 0), or why a layer has none.

    Parameters
    ----------
    model, inputs
        One pass is run; what it does to the inputs is not looked at beyond the projections.
    """
    found: dict[int, Tensor | Unavailable] = {}
    with Tap(model) as tap:
        given = AttentionInputs(model, tap)

        def listen(call: AttentionCall) -> None:
            chain, layer = tap.anatomy.depth, call.site.index
            known = isinstance(chain, Chain) and call.site.chain == chain.name
            if known and not call.cross and layer not in found:
                found[layer] = _ratio(model, call, given.of(call))

        tap.on_attention(listen)
        with given:
            model(**inputs)
    return found


def _ratio(model: nn.Module, call: AttentionCall, x: Tensor | Unavailable) -> Tensor | Unavailable:
    refused = self_attention(call)
    if refused:
        return Unavailable(refused)
    if isinstance(x, Unavailable):
        return x
    root: nn.Module = getattr(model, "_orig_mod", model)
    module = root.get_submodule(call.site.path)
    maps = [_projection(module, x, y) for y in (call.q, call.k)]
    query, key = maps
    if query is None or key is None:
        which = "queries" if query is None else "keys"
        return Unavailable(
            f"the {which} are no linear function of what the layer reads: a rotary embedding or a "
            "norm stands between, and the scores are no bilinear form of the weights"
        )
    key = key.repeat_interleave(len(query) // len(key), 0)
    return weight_ratio(query.double(), key.double())


def _projection(module: nn.Module, x: Tensor, y: Tensor) -> Float[Tensor, "H d m"] | None:
    """The weight that takes x to y, by head, or None."""
    wanted = y.transpose(1, 2)  # [batch, length, heads, d]
    scale = wanted.abs().amax()
    for linear, weight in _linear_maps(module, x.shape[-1]):
        made = linear(x.to(weight.dtype))
        for part, rows in _parts(made, weight, wanted.shape[-2], wanted.shape[-1]):
            close = _CLOSE.get(y.dtype, 1e-4) * scale
            if part.shape == wanted.shape and bool(((part - wanted).abs() <= close).all()):
                return rows
    return None


def _linear_maps(module: nn.Module, width: int) -> Iterator[tuple[nn.Module, Tensor]]:
    """Linear maps inside a module that read ``width`` numbers, each with its [out, in] weight."""
    for inner in module.modules():
        weight = getattr(inner, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or isinstance(inner, nn.Embedding):
            continue
        if type(inner).__name__ == "Conv1D":  # transformers: [in, out]
            weight = weight.T
        if weight.shape[1] == width:
            yield inner, weight


def _parts(made: Tensor, weight: Tensor, heads: int, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of a map's output that could be heads × width: blocks, or interleaved by head."""
    size, total = heads * width, made.shape[-1]
    if total % size:
        return
    fused = total // size
    outer, inner = made.shape[:-1], weight.shape[-1]
    blocks = made.reshape(*outer, fused, heads, width), weight.reshape(fused, heads, width, inner)
    for k in range(fused):
        yield blocks[0][..., k, :, :], blocks[1][k]
    woven = made.reshape(*outer, heads, fused, width), weight.reshape(heads, fused, width, inner)
    for k in range(fused if fused > 1 else 0):
        yield woven[0][..., k, :], woven[1][:, k]
