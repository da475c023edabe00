"""One forward pass under observation: attention calls and additions in, events out.

Attention is heard by its name where the probing pass found that every call looks it up, and by a
torch function mode elsewhere. A mode sees every torch function of a pass, two thousand in a DiT,
and costs its host more than the rest of listening: it is there only for models that need it, and
for listeners that ask which additions a block made. Sites follow from the order of the calls, which
is counted: a pass that made other calls than the probing pass ends in an error.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import TapError
from flowscope.tap.anatomy import Anatomy, AttentionSite, Listening
from flowscope.tap.dispatch import ATTENTION, MULTI_HEAD, routed_calls
from flowscope.tap.events import AttentionCall, BlockPass, event
from flowscope.tap.kernels import REQUESTS, Request, multi_head
from flowscope.tap.residual import ADDITIONS, RESHAPES, OpenBlock
from flowscope.tap.trace import argument

__all__ = ["AttentionListener", "BlockListener", "ChangedPassError", "ForwardPass", "Listeners"]


class ChangedPassError(TapError):
    """A pass made other calls than the probing pass."""


AttentionListener = Callable[[AttentionCall], Tensor | None]
BlockListener = Callable[[BlockPass], None]
_FOLLOWED: frozenset[Any] = ADDITIONS | RESHAPES
_CHANGED = (
    "The model's depth depends on its input or on chance, or the model was changed since: use "
    "evaluation mode, tap passes of one kind at a time, and run again (it is probed anew)."
)
_SILENCE = (
    "The probing pass saw attention, this pass none: the model took a path that hides it (another "
    "thread, a captured CUDA graph). Nothing was measured."
)


@dataclass(kw_only=True, eq=False)
class Listeners:
    """Who is told; shared with the tap, so a listener added later is heard too.

    Attributes
    ----------
    attention, block
        In the order they were added.
    writes
        Whether a block listener asks for the additions of its blocks.
    closed
        Whether the tap was closed, also in the middle of a pass.
    """

    attention: list[AttentionListener] = field(default_factory=list)
    block: list[BlockListener] = field(default_factory=list)
    writes: bool = False
    closed: bool = False

    def close(self) -> None:
        """Tell nobody from now on."""
        self.attention.clear()
        self.block.clear()
        self.closed = True


class _Functions(TorchFunctionMode):
    """Gives a pass the torch functions that it asks for; all others go straight through."""

    def __init__(self, observed: "ForwardPass", heard: frozenset[Any]) -> None:
        super().__init__()
        self._observed, self._heard = observed, heard

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let every function through but those that are asked for."""
        if func not in self._heard or self._observed.silent:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self._observed.function(func, args, kwargs or {})


class ForwardPass:
    """Listens to one forward pass of one model; active only while it is entered.

    Parameters
    ----------
    anatomy, listeners
        What the probing pass found, and who is told.
    number
        Of the pass, since the tap was entered.
    listening
        How attention is heard in this pass.
    """

    def __init__(
        self, anatomy: Anatomy, listeners: Listeners, number: int, listening: Listening
    ) -> None:
        self._anatomy, self._listeners = anatomy, listeners
        self._number, self._by_name = number, listening == "name"
        self._grad = torch.is_grad_enabled()
        self._counts = self._by_name or bool(listeners.attention)
        self._watches = bool(listeners.block)
        self._follows = self._watches and listeners.writes
        self._open: list[OpenBlock] = []
        self._visits: dict[str, int] = {}
        self._undo = ExitStack()
        self.silent = False  # what runs is not part of the pass: the tap's own, or a listener's
        self.nested = 0  # calls of the model inside its own pass
        self.attentions = 0
        self._blocks = anatomy.visits if self._watches else {}

    @property
    def unheard(self) -> bool:
        """Whether nothing of the pass was heard so far."""
        return not (self.attentions or self._visits or self._listeners.closed)

    def __enter__(self) -> Self:
        heard: frozenset[Any] = _FOLLOWED if self._follows else frozenset()
        if self._by_name:
            self._undo.enter_context(routed_calls(self.attend))
            heard = heard | {MULTI_HEAD} if heard else heard  # a mode is given torch's own
        elif self._counts:
            heard = heard.union(REQUESTS, [MULTI_HEAD])
        if heard:
            self._undo.enter_context(_Functions(self, heard))
        return self

    def __exit__(self, *failure: object) -> None:
        self._undo.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not listen for a while."""
        before, self.silent = self.silent, True
        try:
            yield
        finally:
            self.silent = before

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a torch function that a mode was given for this pass."""
        if func is MULTI_HEAD:
            if self._by_name:
                return F.multi_head_attention_forward(*args, **kwargs)
            return multi_head(self.attend, args, kwargs)
        if func in REQUESTS:
            return self._told(REQUESTS[func](*args, **kwargs))
        block = self._open[-1] if self._open else None
        if block is None or not block.carried:
            return func(*args, **kwargs)
        return (block.add if func in ADDITIONS else block.reshape)(func, args, kwargs)

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """Stand for ``F.scaled_dot_product_attention`` where it is looked up by its name."""
        if self.silent:
            outer: Tensor = F.scaled_dot_product_attention(*args, **kwargs)
            return outer
        return self._told(REQUESTS[ATTENTION](*args, **kwargs))

    def through_block(
        self, module: nn.Module, path: str, proceed: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run a block of a chain and give its passes to the listeners, unless it fails."""
        self.silent = True
        try:
            block = self._opened(module, path, args, kwargs)
        finally:
            self.silent = False
        self._open.append(block)
        try:
            output = proceed(*args, **kwargs)
        finally:
            self._open.pop()
        if self._listeners.block and block.hidden_in:
            with self.paused():
                for passed in block.passes(output, self._number):
                    for listener in self._listeners.block:
                        listener(passed)
        return output

    def _opened(self, module: nn.Module, path: str, args: Any, kwargs: Any) -> OpenBlock:
        visit = self._visits.get(path, 0)
        self._visits[path] = visit + 1
        if visit >= len(self._blocks[path]):
            raise ChangedPassError(
                f"Block {path} was called {visit + 1} times in one pass where the probing pass saw "
                f"{len(self._blocks[path])}. {_CHANGED}"
            )
        chain, block = self._blocks[path][visit]
        hidden = {stream: argument(module, stream, args, kwargs) for stream in block.places}
        return OpenBlock(chain, block, hidden, self._follows)

    def _told(self, request: Request) -> Tensor:
        number, self.attentions = self.attentions, self.attentions + 1
        listeners = self._listeners.attention
        if not listeners:
            return request.kernel()
        place = self._site(number)
        call = event(
            AttentionCall,
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
            _done=[],
        )
        answers = []
        for tell in listeners:
            answer = tell(call)
            if answer is not None:
                answers.append(answer)
        if not answers:
            return call.output()
        own = call._done and answers[0] is call._done[0]  # written into: nothing to check
        if not own or len(answers) > 1 or self._grad:
            self._check(answers, call)
        return answers[0]

    def _site(self, number: int) -> AttentionSite:
        """Where the attention call of this number is made."""
        order = self._anatomy.order
        if number >= len(order):
            raise ChangedPassError(
                f"This pass makes more attention calls than the {len(order)} that the probing pass "
                f"saw. {_CHANGED}"
            )
        place = order[number]
        if self._open and not self.nested:
            chain, block = self._open[-1].chain, self._open[-1].block
            if (place.site.chain, place.site.index) != (chain.name, block.index):
                raise ChangedPassError(
                    f"Attention call {number} of this pass was made by {block.path}, and in the "
                    f"probing pass by {place.site.path}. {_CHANGED}"
                )
        return place

    def refuse_missing(self) -> None:
        """Raise when the pass is over and made fewer calls than the probing pass."""
        if self._listeners.closed:
            return
        expected = len(self._anatomy.order)
        if self._counts and self._listeners.attention and self.attentions != expected:
            raise ChangedPassError(
                f"This pass made {self.attentions} attention calls where the probing pass saw "
                f"{expected}, so that calls cannot be told apart. {_CHANGED}"
                if self.attentions
                else _SILENCE
            )
        for path, known in self._blocks.items():
            if self._visits.get(path, 0) < len(known):
                raise ChangedPassError(
                    f"Block {path} was called {self._visits.get(path, 0)} times in this pass where "
                    f"the probing pass saw {len(known)}. {_CHANGED}"
                )

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
