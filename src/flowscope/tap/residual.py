"""The residual streams of one block, followed through the additions made to them."""

import torch
from torch import Tensor

from flowscope.records import Unavailable
from flowscope.tap.events import WriteKind
from flowscope.tap.trace import ModuleCall, Op, Ref, Trace

__all__ = ["ADDITIONS", "RESHAPES", "Followed"]

ADDITIONS = frozenset(
    {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__}
)


# They show the same numbers in the same order: a stream stays a stream through them.
RESHAPES = frozenset(
    {Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.contiguous}
    | {Tensor.unsqueeze, torch.unsqueeze, Tensor.squeeze, torch.squeeze}
)


class Followed:
    """What one traced block did to its residual streams.

    A value belongs to a stream when it is the block's input or a sum of such a value and another
    one; the other one is a write. A write is followed back to the streams and attention calls that
    it came from, which gives its kind.
    """

    def __init__(self, trace: Trace, call: ModuleCall, streams: list[str]) -> None:
        self._trace, self._range = trace, call.ops
        self._attention = {a.op: a for a in trace.attentions}
        self._stream = {call.inputs[s].value: s for s in streams}
        self._added: dict[int, tuple[int, ...]] = {call.inputs[s].value: () for s in streams}
        for number in call.ops:
            self._follow(trace.ops[number])

    def _follow(self, op: Op) -> None:
        if op.func in RESHAPES and op.inputs[0] in self._added:
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
