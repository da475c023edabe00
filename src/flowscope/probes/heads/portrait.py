"""The portrait of every head on one short sentence: kernel, currents, law, two embeddings."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import FlowscopeError
from flowscope.markov import (
    currents,
    damped_kernel,
    diffusion_map,
    magnetic_map,
    quasi_stationary,
    stationary_distribution,
)
from flowscope.probes.heads.chain_probe import self_attention
from flowscope.probes.heads.chains import ChainKind, HeadLogits, head_logits
from flowscope.probes.reducer import Arrays
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, Chain, Tap

__all__ = ["portrait"]

_LONGEST = 64
_PARTS = ("kernel", "current", "law", "diffusion", "magnetic")


@torch.no_grad()
def portrait(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    chain: ChainKind,
    damping: float,
    charge: float,
) -> Arrays | Unavailable:
    """Everything there is to see of every head on the first sequence of a batch.

    Parameters
    ----------
    model, inputs
        One pass; its first sequence is read, whole.
    chain, damping
        Which kernel walks, and the damping of the damped one.
    charge
        Of the magnetic Laplacian, per unit of the logits.

    Returns
    -------
    Arrays or Unavailable
        ``kernel`` and ``current`` ``[L, H, n, n]``, ``law`` ``[L, H, n]``, ``diffusion`` and
        ``magnetic`` ``[L, H, n, 2]`` (the latter real and imaginary part of the lowest
        eigenvector), float32, NaN where a head has none; or why there is nothing.
    """
    layers: dict[int, dict[str, Tensor]] = {}
    too_long: list[int] = []
    with Tap(model) as tap:

        def listen(call: AttentionCall) -> None:
            depth = tap.anatomy.depth
            known = isinstance(depth, Chain) and call.site.chain == depth.name
            if not known or call.site.index in layers or self_attention(call):
                return
            if call.q.shape[-2] > _LONGEST:
                too_long.append(call.q.shape[-2])
                return
            parts = [_drawn(part, chain, damping, charge) for part in head_logits(call, 0)]
            layers[call.site.index] = {n: torch.cat([p[n] for p in parts]) for n in _PARTS}

        tap.on_attention(listen)
        model(**inputs)
        depth = tap.anatomy.depth
    if too_long:
        found = f"this input has {too_long[0]}"
        return Unavailable(f"a portrait shows up to {_LONGEST} tokens; {found}")
    if not layers or not isinstance(depth, Chain):
        return Unavailable("no self-attention call was seen on the chain of blocks")
    return _stacked(layers, len(depth))


def _stacked(layers: dict[int, dict[str, Tensor]], depth: int) -> Arrays:
    some = next(iter(layers.values()))
    heads = max(len(parts["law"]) for parts in layers.values())
    found = {}
    for name in _PARTS:
        whole = np.full((depth, heads, *some[name].shape[1:]), np.nan, np.float32)
        for layer, parts in layers.items():
            values = parts[name].float().cpu().numpy()
            whole[layer, : len(values)] = values
        found[name] = whole
    return found


def _drawn(part: HeadLogits, chain: ChainKind, damping: float, charge: float) -> dict[str, Tensor]:
    """Kernel, current, law and embeddings of some heads; NaN where there is no such thing."""
    heads, n = part.free.shape[:2]
    law = part.free.new_full((heads, n), torch.nan)
    square, flat = law[..., None].expand(-1, -1, n), law[..., None].expand(-1, -1, 2)
    found = {"kernel": square, "current": square, "law": law, "diffusion": flat, "magnetic": flat}
    logits = part.of_chain(chain)
    if isinstance(logits, Unavailable):
        return found
    kernel = torch.softmax(logits.double(), -1)
    try:
        if chain == "quasi-stationary":
            found |= {"kernel": kernel, "law": quasi_stationary(kernel).law}
        else:
            kernel = damped_kernel(kernel, damping) if chain == "damped" else kernel
            law = stationary_distribution(kernel)
            found |= {"kernel": kernel, "law": law, "current": currents(kernel, law)}
    except FlowscopeError:
        found |= {"kernel": kernel}
    if part.mutual or not part.biased:
        scores = (part.own if part.mutual else part.free).double()
        drawn = [_planes(head, charge) for head in scores]
        found["diffusion"], found["magnetic"] = (torch.stack(p) for p in zip(*drawn, strict=True))
    return found


def _planes(scores: Float[Tensor, "n n"], charge: float) -> tuple[Tensor, Tensor]:
    """Diffusion and magnetic map of one head; NaN where its scores have none."""
    try:
        turned = magnetic_map(scores, charge=charge, coordinates=1).vectors[..., 0]
        return _plane(scores), torch.stack([turned.real, turned.imag], -1)
    except FlowscopeError:
        absent = scores.new_full((len(scores), 2), torch.nan)
        return absent, absent


def _plane(scores: Tensor) -> Tensor:
    """Two coordinates of the diffusion map; two tokens have only one, the other is zero."""
    wanted = min(2, scores.shape[-1] - 1)
    found = diffusion_map(scores, coordinates=wanted).coordinates
    return torch.nn.functional.pad(found, (0, 2 - wanted))
