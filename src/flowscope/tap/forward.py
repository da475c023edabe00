"""One forward pass under observation: torch functions in, events out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import TapError
from flowscope.records import Unavailable
from flowscope.tap.anatomy import Anatomy, AttentionSite, Block, Chain
from flowscope.tap.events import AttentionCall, BlockPass, Site, Write
from flowscope.tap.kernels import ATTENTION, REQUESTS, Request, routed_attention
from flowscope.tap.residual import ADDITIONS, RESHAPES
from flowscope.tap.trace import arguments_of, outputs_in, tensors_in

__all__ = ["AttentionListener", "BlockListener", "ForwardPass", "Listeners"]

AttentionListener = Callable[[AttentionCall], Tensor | None]
BlockListener = Callable[[BlockPass], None]
_IN_PLACE = frozenset({Tensor.add_, Tensor.__iadd__})


@dataclass(frozen=True, kw_only=True, eq=False)
class Listeners:
    """Who is told; shared with the tap, so a listener added later is heard too."""

    attention: list[AttentionListener] = field(default_factory=list)
    block: list[BlockListener] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.attention or self.block)


@dataclass(eq=False)
class _OpenBlock:
    """A block that is running: its streams so far, each with the additions made to it."""

    chain: Chain
    block: Block
    hidden_in: dict[str, Tensor]
    carried: dict[int, tuple[Tensor, str, tuple[Tensor, ...]]] = field(default_factory=dict)
    attentions: int = 0

    def __post_init__(self) -> None:
        for stream, tensor in self.hidden_in.items():
            if not isinstance(self.block.writes.get(stream), Unavailable):
                self.carried[id(tensor)] = (tensor, stream, ())

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
        if func in _IN_PLACE and carrier is self.hidden_in[stream]:
            self.hidden_in[stream] = carrier.clone()
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
        outputs, found = outputs_in(output), []
        for stream, place in self.block.places.items():
            hidden_out = outputs[place]
            site = Site(
                chain=self.chain.name,
                index=self.block.index,
                path=self.block.path,
                call=0,
                stream=stream,
            )
            found.append(
                BlockPass(
                    site=site,
                    hidden_in=self.hidden_in[stream],
                    writes=self._writes(stream, hidden_out),
                    hidden_out=hidden_out,
                    forward=forward,
                )
            )
        return found

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


_HEARD = frozenset([*REQUESTS, *ADDITIONS, *RESHAPES, F.multi_head_attention_forward])


class ForwardPass(TorchFunctionMode):
    """Listens to one forward pass of one model; active only while it is entered."""

    def __init__(self, anatomy: Anatomy, listeners: Listeners, number: int, grad: bool) -> None:
        super().__init__()
        self._anatomy, self._listeners = anatomy, listeners
        self._number, self._grad = number, grad
        self._open: list[_OpenBlock] = []
        self._visits: dict[str, int] = {}
        self._outside = 0
        self._paused = False
        self.nested = 0  # calls of the model inside its own pass
        self.attentions = 0
        self._blocks: dict[str, list[tuple[Chain, Block]]] = {}
        for chain in anatomy.chains:
            for block in chain.blocks:
                self._blocks.setdefault(block.path, []).append((chain, block))

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let every function through but attention and additions to a stream."""
        if self._paused or func not in _HEARD:  # nearly every call: two thousand in a pass of a DiT
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if self._open and self._open[-1].carried:
            if func in ADDITIONS:
                return self._open[-1].add(func, args, kwargs)
            if func in RESHAPES:
                return self._open[-1].reshape(func, args, kwargs)
        if self._listeners.attention:
            if func in REQUESTS:
                return self._attend(REQUESTS[func](*args, **kwargs))
            if func is F.multi_head_attention_forward:
                return self._multi_head(func, args, kwargs)
        return func(*args, **kwargs)

    @property
    def silent(self) -> bool:
        """Whether what runs is not part of the pass: the tap's own, or a listener's."""
        return self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not listen for a while."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _multi_head(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = REQUESTS[ATTENTION]
        with routed_attention(lambda *a, **k: self._attend(request(*a, **k))):
            return func(*args, **kwargs)

    def through_block(
        self, module: nn.Module, path: str, proceed: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run a block of a chain and give its passes to the listeners, unless it fails."""
        with self.paused():
            block = self._opened(module, path, args, kwargs)
        self._open.append(block)
        try:
            output = proceed(*args, **kwargs)
        finally:
            self._open.pop()
        if self._listeners.block and block.hidden_in:
            with self.paused():
                for event in block.passes(output, self._number):
                    for listener in self._listeners.block:
                        listener(event)
        return output

    def _opened(self, module: nn.Module, path: str, args: Any, kwargs: Any) -> _OpenBlock:
        visit = self._visits.get(path, 0)
        self._visits[path] = visit + 1
        if visit >= len(self._blocks[path]):
            raise TapError(
                f"Block {path} was called {visit + 1} times in one pass where the probing pass saw "
                f"{len(self._blocks[path])}. The model's depth depends on its input; tap passes of "
                "one depth at a time."
            )
        chain, block = self._blocks[path][visit]
        hidden: dict[str, Tensor] = {}
        if self._listeners.block:
            tensors = dict(tensors_in(arguments_of(module, args, kwargs)))
            hidden = {stream: tensors[stream] for stream in block.places}
        return _OpenBlock(chain, block, hidden)

    def _expected(self) -> AttentionSite:
        if self._open:
            running = self._open[-1]
            number, known = running.attentions, running.block.attentions
            running.attentions += 1
            where = (running.chain.name, running.block.index, running.block.path)
        else:
            number, known = self._outside, self._anatomy.outside
            self._outside += 1
            where = ("outside", number, "")
        if number < len(known):
            return known[number]
        site = Site(chain=where[0], index=where[1], path=where[2], call=number, stream="")
        return AttentionSite(site=site, cross=False, groups=1)

    def _attend(self, request: Request) -> Tensor:
        self.attentions += 1
        place = self._expected()
        call = AttentionCall(
            site=place.site,
            q=request.q,
            k=request.k,
            v=request.v,
            mask=request.mask,
            causal=request.causal,
            scale=request.scale,
            softcap=request.softcap,
            groups=place.groups,
            dropout=request.dropout,
            cross=place.cross,
            forward=self._number,
            _kernel=request.kernel,
        )
        answers = [a for a in [tell(call) for tell in self._listeners.attention] if a is not None]
        if not answers:
            return call.output()
        self._check(answers, call)
        return answers[0]

    def _check(self, answers: Sequence[Any], call: AttentionCall) -> None:
        where = f"at {call.site.path or call.site.chain} (index {call.site.index})"
        if len(answers) > 1:
            raise TapError(
                f"{len(answers)} listeners returned a replacement for the same attention call "
                f"{where}; one may replace, the others must return None."
            )
        answer, shape = answers[0], (*call.q.shape[:-1], call.v.shape[-1])
        if not isinstance(answer, Tensor):
            raise TapError(
                f"A listener {where} returned {type(answer).__name__}; return None to read, or a "
                f"tensor of shape {tuple(shape)} to replace the output."
            )
        found = (tuple(answer.shape), answer.dtype, answer.device)
        expected = (tuple(shape), call.v.dtype, call.v.device)
        if found != expected:
            raise TapError(
                f"A replacement {where} must have shape {expected[0]}, dtype {expected[1]} and "
                f"device {expected[2]}; got {found[0]}, {found[1]}, {found[2]}."
            )
        if self._grad and _inside_checkpoint():
            raise TapError(
                f"Attention was replaced {where} under gradient checkpointing: the backward pass "
                "would recompute the original attention and give wrong gradients silently. Call "
                "model.gradient_checkpointing_disable() first."
            )


def _inside_checkpoint() -> bool:
    frame, file = sys._getframe(), torch.utils.checkpoint.__file__
    while frame is not None:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
