"""The dispatcher: a call reaches the taps of the thread that made it, and no other.

Whatever a tap must intercept is intercepted for one thread. State lives in `_THREAD`; what every
thread can see is only a fork in the road, which leads a thread without a tap where it went before:

* **Modules.** A `Junction` stands in a module's ``_compiled_call_impl``: torch sends the call of a
  module there before it looks at hooks, and leaves the place out of copies and pickles. Hooks would
  be seen by other threads (``nn.TransformerEncoderLayer`` gives up its fused kernel where it finds
  one) and would be copied with the model.
* **Compiled code** runs eagerly in threads whose pass is listened to (`eager_code`).
* **Attention inside** ``F.multi_head_attention_forward`` is looked up under a name of the module
  ``torch.nn.functional`` (`routed_calls`).

Forks are counted and taken away with their last user, in whatever order taps are closed. The lock
guards the counting only; no code of a model or a listener runs under it.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = [
    "Junction",
    "Watcher",
    "Watchers",
    "eager_code",
    "foreign_calls",
    "is_switched",
    "routed_calls",
    "switched",
    "thread_watchers",
]

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


class _Route:
    """Stands for ``F.scaled_dot_product_attention`` while any thread routes it."""

    users = 0
    here: "_Route | None" = None

    def __init__(self, beneath: Call) -> None:
        self._beneath = beneath

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Attend as the running thread wants, else as before."""
        route = _THREAD.route
        if route is None:
            return self._beneath(*args, **kwargs)
        attend, _THREAD.route = route
        try:
            return attend(*args, **kwargs)
        finally:
            _THREAD.route = route

    def leave(self) -> None:
        """Give the name back, unless someone else has taken it since."""
        if F.scaled_dot_product_attention is self:
            F.scaled_dot_product_attention = self._beneath


@contextmanager
def routed_calls(attend: Call) -> Iterator[None]:
    """Send this thread's ``F.scaled_dot_product_attention`` calls to ``attend`` for a while.

    A call that ``attend`` makes itself goes to the routing around this one, else to torch.
    """
    with _LOCK:
        if _Route.here is None:
            _Route.here = F.scaled_dot_product_attention = _Route(F.scaled_dot_product_attention)
        _Route.users += 1
    outer, _THREAD.route = _THREAD.route, (attend, _THREAD.route)
    try:
        yield
    finally:
        _THREAD.route = outer
        with _LOCK:
            _Route.users -= 1
            if _Route.users == 0 and _Route.here is not None:
                _Route.here.leave()
                _Route.here = None


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
