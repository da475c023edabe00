r"""The residual stream as a field: work, turning, spread and spectrum of every write.

Definitions are those of `flowscope.pde`. For every prompt and block the probe keeps one number of
each kind: medians over tokens of what each token has, and what the cloud of tokens has as a whole.
The first token and *massive* tokens (longer than 20 times the median, before or after the block)
are left out of all of them and listed: they would decide every sum. As keys of attention they
count as sinks, and so do special tokens: most models put the mass they do not need on the first
token that is there, which may be a BOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.pde import energy_balance, spread_balance, token_spectrum
from flowscope.probes.field.cloud import (
    LEAST,
    attempted,
    cloud,
    first_tokens,
    massive_tokens,
    median,
    only_share,
    spread_out,
    widened,
)
from flowscope.probes.field.output_path import OutputPath, output_path
from flowscope.probes.inputs import AttentionInputs
from flowscope.probes.tap_loop import Hears, InputBatch, Piece, TapProbe
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, BlockPass, Chain, Tail, Write

__all__ = ["COLUMNS", "FieldProbe"]

COLUMNS = (
    "tokens", "massive_tokens", "norm",
    "energy_attention", "energy_feed_forward",
    "radial_attention", "radial_feed_forward",
    "angular_attention", "angular_feed_forward",
    "part_self", "part_others", "part_sink", "leak",
    "spread_attention", "spread_feed_forward", "spread_alone", "spread_permuted",
    "cosine_attention", "cosine_feed_forward",
    "mean_cosine", "centred_share", "effective_rank",
    "high_frequency_stream", "high_frequency_attention", "high_frequency_feed_forward",
)  # fmt: skip
"""What is kept of every prompt and block; NaN where a block does not have it."""

_KINDS = {"attention": ("attention", "cross_attention"), "feed_forward": ("feed_forward",)}
_SELF = ("attention",)  # what is split into parts: queries and keys are the same tokens


class FieldProbe(TapProbe):
    """Balances of every block of a model; one piece per batch.

    A piece has ``prompt`` ``[rows]``; ``values`` ``[rows, 1 + blocks, columns]`` in the order of
    `COLUMNS`, first the state that enters the first block, which no write has reached;
    ``massive`` ``[found, 4]``: prompt, block, position, and length in medians; ``overflow``
    ``[found, 2]``: prompt, and the block after which its state is not finite, whose numbers and
    those of later blocks are NaN; and ``steps`` ``[found, 5]`` of the first prompt: block,
    position, angular steps of attention and feed-forward part, and whether the token is massive.

    Parameters
    ----------
    model
        The model that is read; its output projections are looked for below its blocks.
    seed
        Of the permuted keys.
    chunk
        Query rows whose probabilities are formed at a time.
    """

    hears: ClassVar[tuple[Hears, ...]] = ("attention", "blocks")
    purpose: ClassVar[str] = "residual stream to read"
    prefix: ClassVar[str | None] = "field-"

    def __init__(self, model: nn.Module, *, seed: int = 0, chunk: int = 128) -> None:
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._seed, self._chunk = seed, chunk
        self._layers = 0
        self._prompts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._counted = torch.zeros(0, 0, dtype=torch.bool)
        self._call: AttentionCall | None = None
        self._values: list[NDArray[np.float64]] = []
        self._massive: list[tuple[int, int, int, float]] = []
        self._overflow: dict[int, int] = {}
        self._steps: list[NDArray[np.float64]] = []
        self._paths: dict[int, Unavailable] = {}
        self._projections: dict[int, nn.Module] = {}

    @property
    def without_path(self) -> dict[int, str]:
        """Blocks whose attention could not be followed to its write, with the reason."""
        return {index: path.reason for index, path in self._paths.items()}

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Receive the chain of blocks."""
        self._layers = len(chain)

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""
        self._prompts, self._counted = batch.prompts, batch.mask.bool()
        self._call, self._values, self._massive = None, [], []
        self._overflow, self._steps = {}, []

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> Tensor | None:
        """Keep the first self-attention call of a block until the block has ended."""
        if not call.cross and call.site.call == 0:
            self._call = call
        return None

    def block(self, event: BlockPass) -> None:
        """Measure one block."""
        before, after = widened(event.hidden_in), widened(event.hidden_out)
        if before.ndim != 3:
            raise InvalidInputError(
                "the state of a block must be [batch, tokens, width]; found shape "
                f"{tuple(before.shape)}."
            )
        counted = _fitting(self._counted, before)
        finite = self._finite(event.site.index, after, counted)
        counted = counted & finite[:, None]
        massive = massive_tokens(counted, before, after)
        used = counted & ~massive & ~first_tokens(counted)
        writes = {kind: _sum_of(event.writes, kinds) for kind, kinds in _KINDS.items()}
        write = _sum_of(event.writes, _SELF)
        parts = self._parts(event, write, ~used) if bool(finite.all()) else None
        if event.site.index == 0:
            self._values.append(_start(before, used))
        rows = []
        for row in range(len(before)):
            chosen = used[row]
            found = dict.fromkeys(COLUMNS, float("nan"))
            found["tokens"] = float(chosen.sum())
            found["massive_tokens"] = float(massive[row].sum())
            if found["tokens"] >= LEAST:
                found |= cloud(after[row][chosen])
                found |= _balance(before[row], event.writes, row, chosen)
                found |= _spectra(writes, row, chosen)
                if parts is not None:
                    found |= parts.of(row, chosen, before[row], event.writes)
            rows.append([found[name] for name in COLUMNS])
            self._list_massive(row, event.site.index, massive[row], after[row], used[row])
            if self._prompts[row] == 0:
                self._steps.append(_steps(event, before, row, counted[row], massive[row]))
        self._values.append(np.array(rows))
        self._call = None

    def end(self) -> Piece:
        """Return the numbers of the batch."""
        piece = Piece(
            arrays={
                "prompt": np.asarray(self._prompts),
                "values": np.stack(self._values, 1),
                "massive": np.array(self._massive, dtype=np.float64).reshape(-1, 4),
                "overflow": np.array(list(self._overflow.items()), dtype=np.int64).reshape(-1, 2),
                "steps": np.concatenate([np.zeros((0, 5)), *self._steps]),
            }
        )
        self._values, self._massive, self._steps, self._call = [], [], [], None
        return piece

    def _finite(
        self, index: int, after: Float[Tensor, "batch L d"], counted: Bool[Tensor, "batch L"]
    ) -> Bool[Tensor, "batch"]:
        """Rows whose tokens have a length; the first block where one has none is kept for each."""
        finite: Tensor = (after.norm(dim=-1).isfinite() | ~counted).all(1)
        for row in (~finite).nonzero()[:, 0].tolist():
            self._overflow.setdefault(int(self._prompts[row]), index)
        return finite

    def _list_massive(
        self, row: int, index: int, massive: Tensor, after: Tensor, used: Tensor
    ) -> None:
        if not bool(massive.any()):
            return
        lengths = after.norm(dim=-1)
        middle = float(lengths[used].median()) if bool(used.any()) else float("nan")
        for position in massive.nonzero()[:, 0].tolist():
            ratio = float(lengths[position]) / middle
            self._massive.append((int(self._prompts[row]), index, position, ratio))

    def _parts(
        self, event: BlockPass, write: Tensor | None, sinks: Bool[Tensor, "batch L"]
    ) -> "_Parts | None":
        """Parts of attention's write in this block; None where it cannot be followed."""
        call = self._call
        if call is None or write is None or event.site.index in self._paths:
            return None
        if call.q.ndim != 4 or call.q.shape[-2] != call.k.shape[-2]:
            return None
        with torch._C.DisableTorchFunction():
            output = widened(call.output())
            scope = self._root.get_submodule(event.site.path)
            usual = self._projections.get(event.site.index)
            path = output_path(scope, output.to(write.dtype), write, usual)
            if isinstance(path, Unavailable):
                self._paths[event.site.index] = path
                return None
            self._projections[event.site.index] = path.module
            seed = [self._seed, event.site.index, int(self._prompts[0])]
            return _attention_parts(call, write, path, sinks, self._chunk, seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    """Parts of attention's write, tokens of a batch, and the write with keys permuted."""

    own: Float[Tensor, "batch L d"]
    others: Float[Tensor, "batch L d"]
    sink: Float[Tensor, "batch L d"]
    leak: Float[Tensor, "batch L"]
    permuted: Float[Tensor, "batch L d"]

    def of(
        self, row: int, chosen: Bool[Tensor, "L"], before: Tensor, writes: Sequence[Write]
    ) -> dict[str, float]:
        """Sizes relative to the write, and what permuted keys do to the spread."""
        whole = _sum_of(writes, _SELF)
        assert whole is not None
        size = whole[row][chosen].norm(dim=-1).clamp_min(torch.finfo(whole.dtype).tiny)
        sizes = {
            f"part_{name}": median(part[row][chosen].norm(dim=-1) / size)
            for name, part in (("self", self.own), ("others", self.others), ("sink", self.sink))
        }
        state = before[chosen]
        found = sizes | {"leak": median(self.leak[row][chosen])}
        for name, write in (("permuted", self.permuted), ("alone", whole)):
            share = only_share(state, write[row][chosen])
            if share is not None:
                found[f"spread_{name}"] = share
        return found


def _attention_parts(
    call: AttentionCall,
    write: Float[Tensor, "batch L d"],
    path: OutputPath,
    sinks: Bool[Tensor, "batch L"],
    chunk: int,
    seed: list[int],
) -> _Parts:
    """Parts of the write, from rows of attention formed a few at a time."""
    v = widened(call.v)
    heads = call.q.shape[-3]
    if v.shape[-3] != heads:
        v = v.repeat_interleave(heads // v.shape[-3], -3)
    is_sink = sinks[:, None, None, :].to(v.device)
    diagonal, sunk, leak, permuted = [], [], [], []
    generator = torch.Generator().manual_seed(
        int(np.random.SeedSequence(seed).generate_state(1)[0])
    )
    for start in range(0, call.q.shape[-2], chunk):
        stop = min(start + chunk, call.q.shape[-2])
        P = call.probabilities(slice(start, stop)).to(v.dtype)
        here = torch.arange(start, stop, device=P.device)
        diagonal.append(P[..., torch.arange(stop - start, device=P.device), here])
        sunk.append((P * is_sink) @ v)
        leak.append((P * is_sink).sum(-1).mean(-2))
        permuted.append(_shuffled(P, here, is_sink, generator) @ v)
    sink = torch.cat(sunk, -2)
    token_is_sink = is_sink[..., 0, :, None]
    own = torch.where(token_is_sink, 0.0, torch.cat(diagonal, -1)[..., None] * v)
    dtype = path.token_scale.dtype
    bias, own, sink = path.bias(sink.to(dtype)), path(own.to(dtype)), path(sink.to(dtype))
    return _Parts(
        own=own,
        others=write - bias - own - sink,  # so that the parts sum to the model's write
        sink=sink,
        leak=torch.cat(leak, -1),
        permuted=path(torch.cat(permuted, -2).to(dtype)) + bias,
    )


def _shuffled(
    P: Float[Tensor, "batch H rows L"],
    here: Tensor,
    is_sink: Bool[Tensor, "batch 1 1 L"],
    generator: torch.Generator,
) -> Float[Tensor, "batch H rows L"]:
    """Rows with their probabilities dealt anew to the keys they see.

    A token keeps its weight on itself, and sinks keep theirs: what goes to a sink is not read.
    """
    drawn = torch.rand(P.shape, generator=generator).to(P.device)
    hidden = P <= 0
    itself = torch.zeros_like(hidden)
    itself[..., torch.arange(len(here), device=P.device), here] = True
    fixed = hidden | itself | is_sink
    # fixed keys keep their place: they sort by themselves behind the others, in their order
    places = torch.arange(P.shape[-1], device=P.device).expand_as(P)
    ahead = (~fixed).cumsum(-1)
    rank = torch.where(fixed, ahead[..., -1:] + fixed.cumsum(-1), ahead) - 1
    to = torch.empty_like(places).scatter_(-1, rank, places)
    fro = _argsort(torch.where(fixed, 2.0 + places, drawn))
    return torch.zeros_like(P).scatter(-1, to, torch.gather(P, -1, fro))


def _argsort(x: Tensor) -> Tensor:
    """Order along the last axis; on the CPU by numpy, which is ten times as fast."""
    if x.device.type != "cpu":
        return x.argsort(-1)
    return torch.from_numpy(np.argsort(x.numpy(), axis=-1))


def _start(state: Float[Tensor, "batch L d"], used: Bool[Tensor, "batch L"]) -> NDArray[np.float64]:
    """Numbers of the state that enters the first block, with the tokens of that block."""
    rows = []
    for x, chosen in zip(state, used, strict=True):
        found = dict.fromkeys(COLUMNS, float("nan")) | {"tokens": float(chosen.sum())}
        if found["tokens"] >= LEAST:
            found |= cloud(x[chosen])
        rows.append([found[name] for name in COLUMNS])
    return np.array(rows)


def _balance(
    before: Float[Tensor, "L d"], writes: Sequence[Write], row: int, chosen: Bool[Tensor, "L"]
) -> dict[str, float]:
    """Work, radial share, angular step and spread of the writes of each kind."""
    if not writes or any(w.kind in ("mixed", "external") for w in writes):
        return {}
    state = before[chosen]
    added = [widened(w.tensor)[row][chosen] for w in writes]
    energy = attempted(lambda: energy_balance(state, added))
    spread = attempted(lambda: spread_balance(state, added))
    found: dict[str, float] = {}
    for name, kinds in _KINDS.items():
        places = [number for number, w in enumerate(writes) if w.kind in kinds]
        if places and energy is not None:
            first = places[0]
            found[f"energy_{name}"] = median(energy.work[places].sum(0) / energy.energy)
            found[f"radial_{name}"] = median(energy.radial[first])
            found[f"angular_{name}"] = median(energy.angular[first])
        if places and spread is not None and spread_out(state):
            found[f"spread_{name}"] = float(spread.shares[places].sum() / spread.spread)
            found[f"cosine_{name}"] = float(spread.cosine_changes[places].sum())
    return found


def _steps(
    event: BlockPass,
    before: Float[Tensor, "batch L d"],
    row: int,
    counted: Bool[Tensor, "L"],
    massive: Bool[Tensor, "L"],
) -> NDArray[np.float64]:
    """Angular steps of the tokens of a prompt in one block; NaN where a write has no place."""
    positions = counted.nonzero()[:, 0].cpu().numpy()
    rows = np.full((len(positions), 5), np.nan)
    rows[:, 0], rows[:, 1] = event.site.index, positions
    rows[:, 4] = massive[counted].cpu().numpy()
    if not event.writes or any(w.kind in ("mixed", "external") for w in event.writes):
        return rows
    state = before[row][counted]
    added = [widened(w.tensor)[row][counted] for w in event.writes]
    energy = attempted(lambda: energy_balance(state, added))
    for column, kinds in enumerate(_KINDS.values(), 2):
        places = [number for number, w in enumerate(event.writes) if w.kind in kinds]
        if places and energy is not None:
            rows[:, column] = energy.angular[places[0]].double().cpu().numpy()
    return rows


def _spectra(
    writes: dict[str, Tensor | None], row: int, chosen: Bool[Tensor, "L"]
) -> dict[str, float]:
    found = {}
    for name, write in writes.items():
        if write is not None:
            part = write[row][chosen]
            spectrum = attempted(partial(token_spectrum, part))
            if spectrum is not None:
                found[f"high_frequency_{name}"] = float(spectrum.high_frequency)
    return found


def _fitting(mask: Tensor, state: Tensor) -> Bool[Tensor, "batch L"]:
    if mask.shape != state.shape[:2]:
        mask = torch.ones(state.shape[:2], dtype=torch.bool)
    return mask.to(state.device)


def _sum_of(writes: Sequence[Write], kinds: Sequence[str]) -> Tensor | None:
    found = [widened(w.tensor) for w in writes if w.kind in kinds]
    return torch.stack(found).sum(0) if found else None
