"""The tap: listen to the attention and the residual stream of a loaded model, or replace attention.

Nothing about a model is switched until a listener asks for it; everything is undone on exit. A pass
belongs to the thread that made it: `flowscope.tap.dispatch` says how.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from flowscope.errors import InvalidInputError, TapError, UnsupportedModelError
from flowscope.tap.anatomy import Anatomy
from flowscope.tap.dispatch import Watcher, eager_code, foreign_calls, is_switched, thread_watchers
from flowscope.tap.forward import (
    AttentionListener,
    BlockListener,
    ChangedPassError,
    ForwardPass,
    Listeners,
)
from flowscope.tap.kernels import attention_configs, switched_backend
from flowscope.tap.probing import probe
from flowscope.tap.stamp import KnownAnatomy, Stamp, known_anatomy, remembered

__all__ = ["Tap"]

_PROBING = threading.RLock()


class _Running(threading.local):
    """The passes that the running thread is in, outermost first, each with its model."""

    def __init__(self) -> None:
        self.passes: list[tuple[ForwardPass, nn.Module, Stamp]] = []
        self.probing = False  # a pass of nobody's: taps of parts of the model do not hear it


_RUNNING = _Running()


class Tap:
    """Read, or steer, any attention-based torch model while a ``with`` block lasts.

    Parameters
    ----------
    model
        A loaded model: transformers, diffusers or plain torch; on any device, in any dtype.
    blocks
        Names of the modules that are the depth, or of the list that holds them. Found by itself
        when not given.

    Notes
    -----
    The first forward pass with listeners is preceded by one *probing pass* on the same batch (no
    gradient, random state and caches untouched) in which the anatomy is found; later passes and
    later taps on the same model reuse it. A model run under ``torch.compile`` runs eagerly while
    it is listened to.

    A tap listens to the thread that enters it. Passes of other threads through the same model run
    as if there were no tap, each thread may have taps of its own, and any thread may close a tap. A
    copy or a pickle of a tapped model is a bare model.

    Raises
    ------
    UnsupportedModelError
        From the model's forward pass, when its attention cannot be seen.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with Tap(model) as tap:
    ...     _ = tap.on_attention(lambda call: print(call.site.index, call.probabilities().shape))
    ...     _ = model(torch.randn(1, 5, 8))
    0 torch.Size([1, 2, 5, 5])
    1 torch.Size([1, 2, 5, 5])
    2 torch.Size([1, 2, 5, 5])
    """

    def __init__(self, model: nn.Module, *, blocks: str | Sequence[str] = ()) -> None:
        _refuse_what_hides_its_calls(model)
        self._model = model
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._paths = _block_paths(self._root, blocks)
        self._entered = self._listening = False
        self._lock = threading.RLock()
        self._thread = thread_watchers()
        self._listeners = Listeners()
        self._undo = ExitStack()
        self._configs: list[Any] = []
        self._backends: tuple[str, ...] = ()
        self._pass: ForwardPass | None = None
        self._passes = self._foreign = 0
        self._anatomy: Anatomy | None = None
        self._watched: dict[tuple[str, int], Callable[[], None]] = {}  # by path and module
        self._blocks_of: Anatomy | None = None
        self._stamp: Stamp | None = None
        self._found: dict[Any, KnownAnatomy] = {}  # by arguments, as long as the stamp holds

    def __enter__(self) -> Self:
        if self._entered:
            raise TapError(
                "This tap is entered already. One `with` block at a time; for a second set of "
                "listeners make a second Tap."
            )
        self._entered = True
        self._thread = thread_watchers()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ignored = 0
        if self._listening and not self._passes and error is None:
            ignored = foreign_calls(self._model) - self._foreign
        with self._lock:
            try:
                self._undo.close()
            finally:
                # A pass that its thread is still in runs on to its end and has no listeners.
                self._listeners.close()
                self._listeners = Listeners()
                self._watched.clear()
                self._pass = self._stamp = self._blocks_of = None
                self._found.clear()
                self._entered = self._listening = False
                self._passes = 0
        if ignored > 0:
            warnings.warn(
                f"This tap heard nothing: the model ran {ignored} times in other threads and never "
                "in the thread that entered the tap. Enter the tap in the thread that runs the "
                "model.",
                stacklevel=2,
            )

    @property
    def anatomy(self) -> Anatomy:
        """What the probing pass found; there after the first forward pass that is listened to."""
        if self._anatomy is None:
            raise TapError(
                "The anatomy is known after the first forward pass with a listener. Register one "
                "and run the model once inside the `with` block, in the thread that entered it."
            )
        return self._anatomy

    def on_attention(self, listener: AttentionListener) -> AttentionListener:
        """Call ``listener`` with every `AttentionCall` of the model.

        It returns None to read, or a tensor of the output's shape, dtype and device to replace the
        output of that call. Listeners run in the order they were added.
        """
        self._listen(listener)
        self._listeners.attention.append(listener)
        return listener

    def on_block(self, listener: BlockListener, *, writes: bool = True) -> BlockListener:
        """Call ``listener`` with every `BlockPass`, one per block and stream, after the block.

        Parameters
        ----------
        listener
            Is given the pass.
        writes
            Whether it reads what the block added (`BlockPass.writes`). Without it no torch function
            mode is needed, which would slow every operation of the pass on its host.
        """
        self._listen(listener)
        self._listeners.block.append(listener)
        self._listeners.writes |= writes
        return listener

    def _listen(self, listener: Any) -> None:
        if not self._entered:
            raise TapError("Listeners live inside the `with` block: `with Tap(model) as tap: ...`.")
        if not callable(listener):
            raise InvalidInputError(f"A listener must be callable; got {type(listener).__name__}.")
        with self._lock:
            if self._listening or not self._entered:
                return
            self._listening = True
            self._configs = attention_configs(self._root)
            self._backends = tuple(str(config._attn_implementation) for config in self._configs)
            self._undo.callback(self._thread.add(self._model, self._around))
            self._undo.callback(self._unwatch_blocks)
            self._foreign = foreign_calls(self._model)

    def _around(
        self, proceed: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Listen to one call of the model; runs in the thread that entered the tap."""
        if _RUNNING.probing:
            return proceed(*args, **kwargs)
        outer = self._pass
        if outer is not None:  # the model runs inside its own pass: not ours to tell
            outer.nested += 1
            try:
                return proceed(*args, **kwargs)
            finally:
                outer.nested -= 1
        listeners = self._listeners
        with ExitStack() as during:
            during.enter_context(eager_code())
            known = self._known(args, kwargs)
            self._anatomy = anatomy = known.anatomy
            if anatomy.seam == "interface":
                during.enter_context(switched_backend(self._configs))
            observed = self._observed(anatomy, listeners)
            during.callback(self._ended, observed)
            during.enter_context(observed)
            try:
                output = proceed(*args, **kwargs)
                observed.refuse_missing()
            except ChangedPassError:
                known.forget()
                raise
        return output

    def _observed(self, anatomy: Anatomy, listeners: Listeners) -> ForwardPass:
        """Begin a pass; where the tap was closed in the meantime, one that nobody hears."""
        listening = anatomy.listening
        if listening == "name" and any(map(is_switched, self._configs)):
            listening = "mode"  # another tap has switched the backend of a part
        with self._lock:
            observed = ForwardPass(anatomy, listeners, self._passes, listening)
            if listeners is self._listeners and self._listening:
                if listeners.block:
                    self._watch_blocks(anatomy)
                self._passes += 1
                self._pass = observed
        assert self._stamp is not None
        _RUNNING.passes.append((observed, self._root, self._stamp))
        return observed

    def _ended(self, observed: ForwardPass) -> None:
        _RUNNING.passes[:] = [running for running in _RUNNING.passes if running[0] is not observed]
        with self._lock:
            if self._pass is observed:
                self._pass = None

    def _known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KnownAnatomy:
        stamp = self._looked_at()
        if stamp is not self._stamp:
            self._stamp, self._found = stamp, {}
        given = frozenset(name for name, value in kwargs.items() if value is not None)
        key = (self._backends, self._paths, len(args), given)
        known = self._found.get(key)
        if known is None or not known.holds():
            known = known_anatomy(self._root, stamp, key) or self._probed(key, args, kwargs)
            self._found[key] = known
        return known

    def _looked_at(self) -> Stamp:
        """The model as it is; a tap around this one has looked at it already."""
        for observed, root, stamp in reversed(_RUNNING.passes):
            if root is self._root and observed.unheard:
                return stamp
        if self._stamp is None or not self._stamp.holds():
            return Stamp(self._root)
        return self._stamp

    def _probed(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KnownAnatomy:
        with _PROBING, _all_paused():  # one at a time: a second thread finds what the first did
            assert self._stamp is not None
            known = known_anatomy(self._root, self._stamp, key)
            if known is None:
                anatomy = probe(self._root, args, kwargs, self._paths)
                # Lazy modules have built themselves in the probing pass.
                self._stamp, self._found = Stamp(self._root), {}
                known = remembered(self._root, KnownAnatomy(anatomy, self._root, self._stamp, key))
            return known

    def _watch_blocks(self, anatomy: Anatomy) -> None:
        if anatomy is self._blocks_of:
            return
        modules = {path: self._root.get_submodule(path) for path in anatomy.visits}
        wanted = {(path, id(module)): module for path, module in modules.items()}
        for place in self._watched.keys() - wanted.keys():  # the model was changed
            self._watched.pop(place)()
        for place in wanted.keys() - self._watched.keys():
            module = wanted[place]
            watcher = self._block_watcher(module, place[0])
            self._watched[place] = self._thread.add(module, watcher)
        self._blocks_of = anatomy

    def _unwatch_blocks(self) -> None:
        for remove in self._watched.values():
            remove()

    def _block_watcher(self, module: nn.Module, path: str) -> Watcher:
        def around(
            proceed: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            running = self._pass
            if running is None or running.nested or running.silent:
                return proceed(*args, **kwargs)
            return running.through_block(module, path, proceed, args, kwargs)

        return around


@contextmanager
def _all_paused() -> Iterator[None]:
    """Let no pass of this thread hear what runs: it is the probing pass of another tap."""
    with ExitStack() as pauses:
        for running, *_ in _RUNNING.passes:
            pauses.enter_context(running.paused())
        before, _RUNNING.probing = _RUNNING.probing, True
        try:
            yield
        finally:
            _RUNNING.probing = before


def _refuse_what_hides_its_calls(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"Tap expects a loaded torch.nn.Module; got {type(model).__name__}. To load one from a "
            "folder or an id use flowscope.load(source).model; for a pipeline give its transformer."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "A TorchScript model hides its Python calls, so attention inside it cannot be seen. "
            "Tap the model it was made from."
        )
    if isinstance(model, nn.DataParallel):
        raise UnsupportedModelError(
            "nn.DataParallel runs its replicas in threads that the tap does not follow. Tap "
            "model.module instead."
        )


def _block_paths(root: nn.Module, blocks: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(blocks, str):
        return tuple(blocks)
    try:
        module = root.get_submodule(blocks)
    except AttributeError as error:
        raise InvalidInputError(
            f"blocks={blocks!r} is no module of {type(root).__name__}; give names as in "
            "model.named_modules()."
        ) from error
    lists = isinstance(module, (nn.ModuleList, nn.Sequential))
    return tuple(f"{blocks}.{name}" for name, _ in module.named_children()) if lists else (blocks,)
