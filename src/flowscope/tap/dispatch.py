"""The dispatcher: a call reaches the taps of the thread that made it, and no other.

Whatever a tap must intercept is intercepted for one thread. State lives in `_THREAD`; what every
thread can see is only a fork in the road, which leads a thread without a tap where it went before:

* **Modules.** A `Junction` stands in a module's ``_compiled_call_impl``: torch sends the call of a
  module there before it looks at hooks, and leaves the place out of copies and pickles. Hooks would
  be seen by other threads (``nn.TransformerEncoderLayer`` gives up its fused kernel where it finds
  one) and would be copied with the model.
* **Compiled code** runs eagerly in threads whose pass is listened to (`eager_code`).
* **Attention** is looked up under its name in the module ``torch.nn.functional``. While any thread
  routes it, that module answers by the thread that asks (`routed_calls`). A function put under the
  name would be seen by other threads: code that they have compiled is guarded by what the name
  leads to, and would be compiled again.

Forks are counted and taken away with their last user, in whatever order taps are closed. The lock
guards the counting only; no code of a model or a listener runs under it.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn

__all__ = [
    "ATTENTION",
    "MULTI_HEAD",
    "Junction",
    "Watcher",
    "Watchers",
    "eager_code",
    "foreign_calls",
    "is_routed",
    "is_switched",
    "own_watchers",
    "routed_calls",
    "switched",
    "thread_watchers",
    "unrouted_calls",
]

ATTENTION: Final = F.scaled_dot_product_attention
"""Torch's own function: the name leads elsewhere while attention is routed."""

MULTI_HEAD: Final = F.multi_head_attention_forward
"""Torch's own function, by which torch function modes know it."""

Call = Callable[..., Any]
Watcher = Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]
"""Is given the rest of a call and its arguments; returns what the call returns."""

_PLACE = "_compiled_call_impl"
_LOCK = threading.Lock()


class Watchers:
    """Who listens to which modules in one thread; closed from any thread."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[Watcher, ...]] = {}

    def add(self, module: nn.Module, watcher: Watcher) -> Callable[[], None]:
        """Send this thread's calls of ``module`` through ``watcher``; returns how to stop."""
        with _LOCK:
            junction = vars(module).get(_PLACE)
            if not isinstance(junction, Junction):
                junction = Junction(module)
                vars(module)[_PLACE] = junction
            junction.users += 1
            self.of[id(module)] = (*self.of.get(id(module), ()), watcher)
        return lambda: self._remove(module, junction, watcher)

    def _remove(self, module: nn.Module, junction: "Junction", watcher: Watcher) -> None:
        with _LOCK:
            rest = tuple(w for w in self.of.pop(id(module), ()) if w is not watcher)
            if rest:
                self.of[id(module)] = rest
            junction.users -= 1
            if junction.users == 0 and vars(module).get(_PLACE) is junction:
                junction.leave(module)


class _Thread(threading.local):
    """What is intercepted for the running thread."""

    def __init__(self) -> None:
        self.watchers = Watchers()
        self.switched: dict[int, int] = {}
        self.route: tuple[Call, Any] | None = None
        self.eager = 0


_THREAD = _Thread()


def thread_watchers() -> Watchers:
    """The watchers of the running thread."""
    return _THREAD.watchers


@contextmanager
def own_watchers() -> Iterator[Watchers]:
    """Set the watchers and routes of this thread aside for a while; yields empty ones instead.

    A pass that is run for its own sake, inside one that others listen to, is not heard by them.
    """
    watchers, _THREAD.watchers = _THREAD.watchers, Watchers()
    try:
        with unrouted_calls(), torch._C.DisableTorchFunction():
            yield _THREAD.watchers
    finally:
        _THREAD.watchers = watchers


def foreign_calls(module: nn.Module) -> int:
    """Calls of a watched module that threads without a watcher have made so far."""
    junction = vars(module).get(_PLACE)
    return junction.foreign if isinstance(junction, Junction) else 0


class Junction:
    """The fork in front of one module: to the watchers of the calling thread, or straight on.

    A copy or a pickle of it is None, so that a copied model is a bare one.
    """

    __slots__ = ("_before", "_key", "_onward", "foreign", "users")

    def __init__(self, module: nn.Module) -> None:
        self._key = id(module)
        self._before = vars(module).get(_PLACE, self)  # itself: there was nothing
        compiled = module._compiled_call_impl
        self._onward: Call = module._call_impl if compiled is None else compiled
        self.users = 0
        self.foreign = 0  # calls of threads without a watcher

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        # True only in graphs that another thread traces: no state of this module belongs there.
        # (`is_compiling` is True in every thread while one of them compiles.)
        if torch.compiler.is_dynamo_compiling():
            return self._onward(*args, **kwargs)
        watchers = _THREAD.watchers.of.get(self._key)
        if watchers is None:
            self.foreign += 1
            return self._onward(*args, **kwargs)
        return _through(watchers, self._onward, args, kwargs)

    def leave(self, module: nn.Module) -> None:
        """Leave the module as it was found."""
        if self._before is self:
            del vars(module)[_PLACE]
        else:
            vars(module)[_PLACE] = self._before

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _through(watchers: tuple[Watcher, ...], onward: Call, args: Any, kwargs: Any) -> Any:
    if len(watchers) == 1:
        return watchers[0](onward, args, kwargs)
    rest = watchers[1:]
    return watchers[0](lambda *a, **k: _through(rest, onward, a, k), args, kwargs)


class _Stance:
    """What ``torch.compile`` does when compiled code is called: run it, or the code it came from.

    ``torch.compiler.set_stance`` changes this for all threads at once, and two threads that set and
    restore it in turns leave it wrong for good.
    """

    users = 0

    def __init__(self, beneath: Any) -> None:
        self.beneath = beneath

    @property
    def stance(self) -> str:
        """Name of the stance."""
        return "force_eager" if _THREAD.eager else str(self.beneath.stance)

    @property
    def backend(self) -> Any:
        """Backend that replaces the one that was chosen."""
        return None if _THREAD.eager else self.beneath.backend

    @property
    def skip_guard_eval_unsafe(self) -> bool:
        """Whether guards are left out."""
        return bool(self.beneath.skip_guard_eval_unsafe)


@contextmanager
def eager_code() -> Iterator[None]:
    """Run compiled code eagerly in this thread for a while."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:  # nothing is compiled, and the import takes seconds
        yield
        return
    with _LOCK:
        if not isinstance(frames._stance, _Stance):
            frames._stance = _Stance(frames._stance)
        _Stance.users += 1
    _THREAD.eager += 1
    try:
        yield
    finally:
        _THREAD.eager -= 1
        with _LOCK:
            _Stance.users -= 1
            if _Stance.users == 0 and isinstance(frames._stance, _Stance):
                frames._stance = frames._stance.beneath


class _Functional(ModuleType):
    """What ``torch.nn.functional`` is while any thread routes attention.

    Two of its names depend on the thread that reads them; every other thread reads the functions
    themselves, as compiled code does that is guarded by their identity. Inside the module a name is
    looked up without its class, so that a routed thread is given
    ``multi_head_attention_forward`` with that one name bound anew.
    """

    @property
    def scaled_dot_product_attention(self) -> Any:
        """Torch's own function, or what the reading thread has in its place."""
        own = vars(self)["scaled_dot_product_attention"]
        return own if _THREAD.route is None else _attend

    @scaled_dot_product_attention.setter
    def scaled_dot_product_attention(self, function: Any) -> None:
        vars(self)["scaled_dot_product_attention"] = function

    @property
    def multi_head_attention_forward(self) -> Any:
        """Torch's own function, or one that attends as the reading thread wants."""
        own = vars(self)["multi_head_attention_forward"]
        return own if _THREAD.route is None else _rebound(own)

    @multi_head_attention_forward.setter
    def multi_head_attention_forward(self, function: Any) -> None:
        vars(self)["multi_head_attention_forward"] = function


class _Routes:
    """How many routings there are, in all threads."""

    users = 0


def _attend(*args: Any, **kwargs: Any) -> Any:
    """Attend as the running thread wants, else as torch does."""
    route = _THREAD.route
    if route is None:
        return ATTENTION(*args, **kwargs)
    if torch._C._is_torch_function_all_disabled():  # nothing inside is to be heard
        with unrouted_calls():
            return F.scaled_dot_product_attention(*args, **kwargs)
    attend, _THREAD.route = route
    try:
        return attend(*args, **kwargs)
    finally:
        _THREAD.route = route


def _rebound(function: Any) -> Any:
    """The same function with another name for attention; what is none of torch's is left alone."""
    if getattr(function, "__globals__", None) is not vars(F):
        return function
    names = {**vars(F), "scaled_dot_product_attention": _attend}
    rebound = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound


@contextmanager
def routed_calls(attend: Call) -> Iterator[None]:
    """Send this thread's ``F.scaled_dot_product_attention`` calls to ``attend`` for a while.

    A call that ``attend`` makes itself goes to the routing around this one, else to torch. Calls
    under ``torch._C.DisableTorchFunction`` are not sent, as no torch function mode hears them.
    """
    with _LOCK:
        if type(F) is ModuleType:
            F.__class__ = _Functional
        _Routes.users += 1
    outer, _THREAD.route = _THREAD.route, (attend, _THREAD.route)
    try:
        yield
    finally:
        _THREAD.route = outer
        with _LOCK:
            _Routes.users -= 1
            if _Routes.users == 0 and type(F) is _Functional:
                F.__class__ = ModuleType  # type: ignore[assignment]


@contextmanager
def unrouted_calls() -> Iterator[None]:
    """Let no routing of this thread see its attention calls for a while."""
    outer, _THREAD.route = _THREAD.route, None
    try:
        yield
    finally:
        _THREAD.route = outer


def is_routed() -> bool:
    """Whether attention calls of the running thread are sent elsewhere."""
    return _THREAD.route is not None


@contextmanager
def switched(things: list[Any]) -> Iterator[None]:
    """Count these objects as switched in this thread for a while; see `is_switched`."""
    for thing in things:
        _THREAD.switched[id(thing)] = _THREAD.switched.get(id(thing), 0) + 1
    try:
        yield
    finally:
        for thing in things:
            _THREAD.switched[id(thing)] -= 1
            if not _THREAD.switched[id(thing)]:
                del _THREAD.switched[id(thing)]


def is_switched(thing: Any) -> bool:
    """Whether `switched` holds for an object in the running thread."""
    return id(thing) in _THREAD.switched
