"""The residual streams of one block, followed through the additions made to them."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flowscope.errors import TapError
from flowscope.records import Unavailable
from flowscope.tap.anatomy import Block, Chain
from flowscope.tap.events import BlockPass, Write, WriteKind, event
from flowscope.tap.state import version
from flowscope.tap.trace import ModuleCall, Op, Ref, Trace, outputs_in

__all__ = ["ADDITIONS", "NORMS", "RESHAPES", "Followed", "OpenBlock"]

ADDITIONS = frozenset(
    {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__}
)


# They show the same numbers in the same order: a stream stays a stream through them.
RESHAPES = frozenset(
    {Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.contiguous}
    | {Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze}
)


# Functions that post-norm blocks apply to the stream itself.
NORMS = frozenset({F.layer_norm, torch.layer_norm, F.rms_norm, torch.rms_norm})


class Followed:
    """What one traced block did to its residual streams.

    A value belongs to a stream when it is the block's input or a sum of such a value and another
    one; the other one is a write. A write is followed back to the streams and attention calls that
    it came from, which gives its kind. With ``through_norms`` a normed stream is a stream, as in
    post-norm blocks, whose output is no sum.
    """

    def __init__(
        self, trace: Trace, call: ModuleCall, streams: list[str], *, through_norms: bool = False
    ) -> None:
        self._trace, self._range = trace, call.ops
        self._maps = RESHAPES | NORMS if through_norms else RESHAPES
        self._attention = {a.op: a for a in trace.attentions}
        self._stream = {call.inputs[s].value: s for s in streams}
        self._added: dict[int, tuple[int, ...]] = {call.inputs[s].value: () for s in streams}
        for number in call.ops:
            self._follow(trace.ops[number])

    def _follow(self, op: Op) -> None:
        if op.func in self._maps and op.inputs[0] in self._added:
            self._stream[op.outputs[0]] = self._stream[op.inputs[0]]
            self._added[op.outputs[0]] = self._added[op.inputs[0]]
            return
        if op.func not in ADDITIONS or len(op.inputs) != 2 or len(op.outputs) != 1:
            return
        a, b = op.inputs
        if (a in self._added) == (b in self._added):
            return
        stream, write = (a, b) if a in self._added else (b, a)
        if op.kwargs.get("alpha", 1) != 1 and Ref(stream) != op.args[0]:
            return  # alpha scales the second operand: the stream itself is not carried on
        self._added[op.outputs[0]] = (*self._added[stream], write)
        self._stream[op.outputs[0]] = self._stream[stream]

    def _sources(self, value: int, *, past_attention: bool) -> tuple[set[str], set[WriteKind]]:
        """Streams and attention calls that a value came from inside the block."""
        streams: set[str] = set()
        attentions: set[WriteKind] = set()
        seen, todo = {value}, [value]
        while todo:
            current = todo.pop()
            if current in self._stream:
                streams.add(self._stream[current])
                continue
            producer = self._trace.producer[current]
            if producer not in self._range:
                continue
            attention = self._attention.get(producer)
            if attention is not None and not past_attention:
                attentions.add("attention" if self.streams_of(attention.key) else "cross_attention")
                continue
            fresh = [v for v in self._trace.ops[producer].inputs if v not in seen]
            seen.update(fresh)
            todo.extend(fresh)
        return streams, attentions

    def streams_of(self, value: int) -> list[str]:
        """Streams that a value came from, in the order of the block's arguments."""
        found, _ = self._sources(value, past_attention=True)
        return [s for s in dict.fromkeys(self._stream.values()) if s in found]

    def writes(self, stream: str, out: int) -> tuple[WriteKind, ...] | Unavailable:
        """Kinds of the additions that lead from a stream's input to ``out``."""
        if self._stream.get(out) != stream:
            return Unavailable(
                "its output is not its input plus additions (a norm or another map follows them)"
            )
        return tuple(self._kind(write) for write in self._added[out])

    def _kind(self, write: int) -> WriteKind:
        streams, attentions = self._sources(write, past_attention=False)
        if not attentions:
            return "feed_forward" if streams else "external"
        return "mixed" if streams or len(attentions) > 1 else attentions.pop()


@dataclass(eq=False)
class OpenBlock:
    """A block that is running: its streams so far and, where followed, the additions made to them.

    Attributes
    ----------
    chain, block
        Where it is in the model.
    hidden_in
        The state of each stream that entered it.
    follows
        Whether additions are followed.
    """

    chain: Chain
    block: Block
    hidden_in: dict[str, Tensor]
    follows: bool
    carried: dict[int, tuple[Tensor, str, tuple[Tensor, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stream, tensor in self.hidden_in.items() if self.follows else ():
            if not isinstance(self.block.writes.get(stream), Unavailable):
                self.carried[id(tensor)] = (tensor, stream, ())
        for stream in self.block.overwritten.intersection(self.hidden_in):
            self.hidden_in[stream] = self.hidden_in[stream].clone()
        self._versions = [version(tensor) for tensor in self.hidden_in.values()]

    def add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Run an addition; when one side is a stream, the other is a write to it."""
        first, second = args[0], args[1] if len(args) > 1 else kwargs.get("other")
        on_first, on_second = id(first) in self.carried, id(second) in self.carried
        alpha = kwargs.get("alpha", 1)
        if on_first == on_second or (on_second and alpha != 1):
            result: Tensor = func(*args, **kwargs)
            return result
        carrier, write = (first, second) if on_first else (second, first)
        _, stream, writes = self.carried[id(carrier)]
        result = func(*args, **kwargs)
        if isinstance(write, Tensor):
            scaled = write if alpha == 1 else alpha * write
            self.carried[id(result)] = (result, stream, (*writes, scaled))
        return result

    def reshape(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Run a reshape; a stream stays a stream."""
        result: Tensor = func(*args, **kwargs)
        known = self.carried.get(id(args[0])) if args else None
        if known is not None:
            self.carried[id(result)] = (result, *known[1:])
        return result

    def passes(self, output: Any, forward: int) -> list[BlockPass]:
        """The events of a block that has returned ``output``."""
        self._refuse_overwritten()
        outputs, found = outputs_in(output), []
        for stream, place in self.block.places.items():
            hidden_out = outputs[place]
            found.append(
                event(
                    BlockPass,
                    site=self.block.sites[stream],
                    hidden_in=self.hidden_in[stream],
                    hidden_out=hidden_out,
                    forward=forward,
                    _writes=self._writes(stream, hidden_out) if self.follows else None,
                )
            )
        return found

    def _refuse_overwritten(self) -> None:
        if [version(tensor) for tensor in self.hidden_in.values()] != self._versions:
            raise TapError(
                f"Block {self.block.path} wrote into its input, which it did not do in the probing "
                "pass, so that the state that entered it is gone. Its path depends on its input; "
                "tap a pass of one kind at a time."
            )

    def _writes(self, stream: str, hidden_out: Tensor) -> tuple[Write, ...]:
        kinds = self.block.writes[stream]
        if isinstance(kinds, Unavailable):
            return ()
        _, _, tensors = self.carried.get(id(hidden_out), (None, None, ()))
        if len(tensors) != len(kinds):
            raise TapError(
                f"Block {self.block.path} added {len(tensors)} times to its stream {stream!r} "
                f"where the probing pass saw {len(kinds)} additions. Its path depends on its "
                "input; tap a pass of one kind at a time."
            )
        whole = [t.reshape(hidden_out.shape) if _folded(t, hidden_out) else t for t in tensors]
        return tuple(Write(kind, tensor) for kind, tensor in zip(kinds, whole, strict=True))


def _folded(write: Tensor, hidden: Tensor) -> bool:
    """Whether a write was made to a reshaped stream (OPT folds rows and positions)."""
    return write.shape != hidden.shape and write.numel() == hidden.numel()
