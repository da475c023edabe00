r"""Attention of a block beside attention of particles on a sphere, as sums over tokens.

With $x_i=h_i/\lVert h_i\rVert$ the direction of a token before the block, the particle model says
that attention logits are $\beta\langle x_i,x_j\rangle$ and that the transport part of the write,

$$ t_i = \frac1{\lVert h_i\rVert}\,O\sum_jP_{ij}(v_j-v_i), \qquad\text{is}\qquad
   v\,m_i = v\sum_j\bar P_{ij}(x_j-x_i), $$

both taken tangent to the sphere, $\bar P$ the mean over heads. Sinks (the first token, special and
massive tokens) are no particles: neither rows nor keys. Slopes and shares of all prompts follow
from the sums that the probe keeps.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.probes.field.cloud import first_tokens, massive_tokens, widened
from flowscope.probes.field.output_path import output_path
from flowscope.probes.inputs import AttentionInputs
from flowscope.probes.tap_loop import Hears, InputBatch, Piece, TapProbe
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, BlockPass, Write

__all__ = ["DEALS", "PARTICLE_SUMS", "ParticleProbe"]

DEALS = 4
"""Deals of the tokens to the weights, which tell what any tokens would give."""

PARTICLE_SUMS = (
    "tokens", "score_cosine", "cosine_square", "score_square",
    "write_flow", "flow_square", "write_square",
    *(f"dealt_write_flow_{deal}" for deal in range(DEALS)),
    *(f"dealt_flow_square_{deal}" for deal in range(DEALS)),
    "step_flow", "step_square",
    "cosine", "cosine_after_attention", "cosine_after_feed_forward", "cosine_after",
    "cosine_slope",
)  # fmt: skip
"""What is kept of every prompt and block; NaN where a block does not have it."""

_LEAST = 4  # tokens of a prompt below which it says nothing
_CHUNK = 128  # rows of logits formed at a time


class ParticleProbe(TapProbe):
    """Sums of every prompt and block; one piece per batch.

    A piece has ``prompt`` ``[rows]``, ``sums`` ``[rows, blocks, columns]`` in the order of
    `PARTICLE_SUMS`, and ``followed`` ``[rows, blocks]``: 1 where the transport part of the write is
    known, 0 where the whole write of attention stands for it.

    Parameters
    ----------
    model
        The model that is read; its output projections are looked for below its blocks.
    seed
        Of the dealt tokens.
    """

    hears: ClassVar[tuple[Hears, ...]] = ("attention", "blocks")
    purpose: ClassVar[str] = "residual stream to read"
    prefix: ClassVar[str | None] = "particles-"

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._seed = seed
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._counted = torch.zeros(0, 0, dtype=torch.bool)
        self._call: AttentionCall | None = None
        self._sums: list[NDArray[np.float64]] = []
        self._followed: list[float] = []

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""
        self._prompts, self._counted = batch.prompts, batch.mask.bool()
        self._call, self._sums, self._followed = None, [], []

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> Tensor | None:
        """Keep the first self-attention call of a block until the block has ended."""
        if not call.cross and call.site.call == 0 and self._call is None:
            self._call = call
        return None

    def block(self, event: BlockPass) -> None:
        """Sum over the tokens of one block."""
        before, after = widened(event.hidden_in), widened(event.hidden_out)
        if before.ndim != 3 or not bool(after.isfinite().all()):
            raise InvalidInputError(
                f"the state after block {event.site.index + 1} must be [batch, tokens, width] and "
                f"finite; found shape {tuple(after.shape)}. Load the model in a wider precision."
            )
        counted = self._counted.to(before.device)
        if counted.shape != before.shape[:2]:
            counted = torch.ones(before.shape[:2], dtype=torch.bool, device=before.device)
        used = counted & ~first_tokens(counted) & ~massive_tokens(counted, before, after)
        sums = torch.full((len(before), len(PARTICLE_SUMS)), torch.nan, dtype=torch.float64)
        sums[:, 0] = used.sum(1)
        call, self._call = self._call, None
        if call is not None and _square(call):
            self._read(event, call, used, sums)
        else:
            self._followed.append(0.0)
        _likeness(event, used, sums)
        sums[sums[:, 0] < _LEAST, 1:] = torch.nan
        self._sums.append(sums.numpy())

    def end(self) -> Piece:
        """Return the sums of the batch."""
        followed = np.tile(np.array(self._followed), (len(self._prompts), 1))
        piece = Piece(
            arrays={
                "prompt": np.asarray(self._prompts),
                "sums": np.stack(self._sums, 1),
                "followed": followed,
            }
        )
        self._sums, self._followed = [], []
        return piece

    def _read(
        self, event: BlockPass, call: AttentionCall, used: Bool[Tensor, "batch L"], sums: Tensor
    ) -> None:
        """Fill in what attention has: logits against cosines, write against particles."""
        before, after = widened(event.hidden_in), widened(event.hidden_out)
        lengths = before.norm(dim=-1, keepdim=True)
        x = before / lengths.clamp_min(torch.finfo(before.dtype).tiny)
        step = _unit(after) - x
        mean, carried = _attention(call, x, used, sums)
        write = _attention_write(event.writes)
        followed = False
        if write is not None:
            part = self._transport(event, call, carried, mean, used, write)
            followed = part is not None
            write = (part if part is not None else write) / lengths.clamp_min(1e-30)
        self._followed.append(float(followed))
        generator = torch.Generator().manual_seed(
            int(
                np.random.SeedSequence(
                    [self._seed, event.site.index, int(self._prompts[0])]
                ).generate_state(1)[0]
            )
        )
        for row in range(len(x)):
            chosen = used[row].nonzero()[:, 0]
            if len(chosen) >= _LEAST:
                P, points = mean[row][chosen][:, chosen].double(), x[row][chosen].double()
                w = None if write is None else write[row][chosen].double()
                _flow_sums(P, points, w, step[row][chosen].double(), sums[row], generator)

    def _transport(
        self,
        event: BlockPass,
        call: AttentionCall,
        carried: Float[Tensor, "batch H L dv"],
        mean: Tensor,
        used: Tensor,
        write: Float[Tensor, "batch L d"],
    ) -> Float[Tensor, "batch L d"] | None:
        """The part of the write from other tokens, less the same weights times the token's own."""
        if call.q.ndim != 4:
            return None
        scope = self._root.get_submodule(event.site.path)
        path = output_path(scope, widened(call.output()).to(write.dtype), write)
        if isinstance(path, Unavailable):
            return None
        part: Tensor = path(carried.to(path.token_scale.dtype))
        return part


def _square(call: AttentionCall) -> bool:
    return call.q.ndim == 4 and call.q.shape[-2] == call.k.shape[-2]


def _attention(
    call: AttentionCall,
    x: Float[Tensor, "batch L d"],
    used: Bool[Tensor, "batch L"],
    sums: Tensor,
) -> tuple[Float[Tensor, "batch L L"], Float[Tensor, "batch H L dv"]]:
    """Mean probabilities among particles, and Σ P (v_j − v_i) of every head; sums of logits."""
    values = widened(call.v)
    heads = call.q.shape[-3]
    if values.shape[-3] != heads:
        values = values.repeat_interleave(heads // values.shape[-3], -3)
    cosines = x @ x.mT
    totals = torch.zeros(len(x), 3, dtype=torch.float64)
    means, carried = [], []
    for start in range(0, x.shape[1], _CHUNK):
        rows = slice(start, min(start + _CHUNK, x.shape[1]))
        z = call.logits(rows)
        pairs = (z > -torch.inf) & used[:, None, rows, None] & used[:, None, None, :]
        totals += _row_sums(z, cosines[:, None, rows], pairs).cpu()
        P = call.probabilities(rows).to(values.dtype) * used[:, None, None, :]
        means.append(P.mean(1))
        carried.append(P @ values - P.sum(-1, keepdim=True) * values[..., rows, :])
    sums[:, 1:4] = totals
    return torch.cat(means, 1), torch.cat(carried, -2)


def _row_sums(z: Tensor, cosines: Tensor, pairs: Tensor) -> Float[Tensor, "batch 3"]:
    """Σ zc, Σ c², Σ z² of logits and cosines centred within each row of each head."""
    count = pairs.sum(-1, keepdim=True).clamp_min(1)
    centred = []
    for one in (z, cosines.expand_as(z)):
        kept = torch.where(pairs, one, 0.0).double()
        centred.append(torch.where(pairs, kept - kept.sum(-1, keepdim=True) / count, 0.0))
    a, c = centred
    products = ((a * c), c.square(), a.square())
    return torch.stack([product.sum((1, 2, 3)) for product in products], 1)


def _flow_sums(
    P: Float[Tensor, "n n"],
    x: Float[Tensor, "n d"],
    write: Float[Tensor, "n d"] | None,
    step: Float[Tensor, "n d"],
    sums: Float[Tensor, "columns"],
    generator: torch.Generator,
) -> None:
    """Products of the particles' velocity with the write and the whole step."""
    m = _velocity(P, x, x)
    n = len(x)
    place = PARTICLE_SUMS.index
    sums[place("flow_square")] = float(m.square().sum())
    sums[place("step_flow")] = float((_tangent(step, x) * m).sum())
    sums[place("step_square")] = float(_tangent(step, x).square().sum())
    # d/dv of the mean cosine of pairs, at v = 0
    total = 2 * float((x.sum(0) * m.sum(0)).sum() - (x * m).sum())
    sums[place("cosine_slope")] = total / (n * (n - 1))
    if write is None:
        return
    w = _tangent(write, x)
    sums[place("write_flow")] = float((w * m).sum())
    sums[place("write_square")] = float(w.square().sum())
    for deal in range(DEALS):
        dealt = _velocity(P, x, x[torch.randperm(n, generator=generator).to(x.device)])
        sums[place(f"dealt_write_flow_{deal}")] = float((w * dealt).sum())
        sums[place(f"dealt_flow_square_{deal}")] = float(dealt.square().sum())


def _velocity(P: Tensor, x: Tensor, seen: Tensor) -> Tensor:
    """Tangent part of Σ_j P_ij (y_j − x_i) for the tokens that are seen."""
    return _tangent(P @ seen, x)


def _tangent(u: Tensor, x: Tensor) -> Tensor:
    part: Tensor = u - (u * x).sum(-1, keepdim=True) * x
    return part


def _unit(state: Tensor) -> Tensor:
    lengths = state.norm(dim=-1, keepdim=True)
    unit: Tensor = state / lengths.clamp_min(torch.finfo(state.dtype).tiny)
    return unit


def _attention_write(writes: Sequence[Write]) -> Tensor | None:
    """The write of self-attention; None where it cannot be told from others."""
    if any(write.kind in ("mixed", "external") for write in writes):
        return None
    found = [widened(write.tensor) for write in writes if write.kind == "attention"]
    return found[0] if len(found) == 1 else None


def _likeness(event: BlockPass, used: Bool[Tensor, "batch L"], sums: Tensor) -> None:
    """Mean cosine of pairs before the block, after each write in turn, and after the block."""
    before, after = widened(event.hidden_in), widened(event.hidden_out)
    states: dict[str, Tensor] = {"cosine": before, "cosine_after": after}
    kinds = [write.kind for write in event.writes]
    if kinds == ["attention", "feed_forward"]:
        states["cosine_after_attention"] = before + widened(event.writes[0].tensor)
        states["cosine_after_feed_forward"] = after
    for name, state in states.items():
        unit = torch.where(used[..., None], _unit(state), 0.0).double()
        n = used.sum(1)
        pairs = unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))
        sums[:, PARTICLE_SUMS.index(name)] = (pairs / (n * (n - 1)).clamp_min(1)).cpu()
