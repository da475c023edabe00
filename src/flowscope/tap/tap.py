"""The tap: listen to the attention and the residual stream of a loaded model, or replace attention.

Nothing about a model is switched until a listener asks for it; everything is undone on exit.
"""

import sys
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from flowscope.errors import InvalidInputError, TapError, UnsupportedModelError
from flowscope.tap.anatomy import Anatomy
from flowscope.tap.forward import AttentionListener, BlockListener, ForwardPass, Listeners
from flowscope.tap.probing import backends_of, probe, switched_backend

__all__ = ["Tap"]

# Anatomies survive the tap that found them, not the model: a second tap need not probe again.
_KNOWN: "weakref.WeakKeyDictionary[nn.Module, dict[Any, Anatomy]]" = weakref.WeakKeyDictionary()
_KNOWN_PER_MODEL = 4


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
        self._listeners = Listeners()
        self._undo = ExitStack()
        self._switched = False
        self._backends: tuple[str, ...] = ()
        self._pass: ForwardPass | None = None
        self._during = ExitStack()
        self._nested = self._passes = 0
        self._anatomy: Anatomy | None = None
        self._hooked: set[str] = set()
        self._stamp: _Stamp | None = None

    def __enter__(self) -> Self:
        if self._entered:
            raise TapError(
                "This tap is entered already. One `with` block at a time; for a second set of "
                "listeners make a second Tap."
            )
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._during.close()
        self._undo.close()
        self._listeners.attention.clear()
        self._listeners.block.clear()
        self._hooked.clear()
        self._pass = None
        self._entered = self._listening = self._switched = False
        self._nested = self._passes = 0

    @property
    def anatomy(self) -> Anatomy:
        """What the probing pass found; there after the first forward pass that is listened to."""
        if self._anatomy is None:
            raise TapError(
                "The anatomy is known after the first forward pass with a listener. Register one "
                "and run the model once inside the `with` block."
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

    def on_block(self, listener: BlockListener) -> BlockListener:
        """Call ``listener`` with every `BlockPass`, one per block and stream, after the block."""
        self._listen(listener)
        self._listeners.block.append(listener)
        return listener

    def _listen(self, listener: Any) -> None:
        if not self._entered:
            raise TapError("Listeners live inside the `with` block: `with Tap(model) as tap: ...`.")
        if not callable(listener):
            raise InvalidInputError(f"A listener must be callable; got {type(listener).__name__}.")
        if self._listening:
            return
        self._listening = True
        self._backends = backends_of(self._root)
        if getattr(self._model, "_compiled_call_impl", None) is not None:
            compiled, self._model._compiled_call_impl = self._model._compiled_call_impl, None
            self._undo.callback(setattr, self._model, "_compiled_call_impl", compiled)
        before = self._model.register_forward_pre_hook(self._before, with_kwargs=True)
        after = self._model.register_forward_hook(self._after, always_call=True, prepend=True)
        self._undo.callback(before.remove)
        self._undo.callback(after.remove)

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._pass is not None:  # the model runs inside its own pass: not ours to tell
            self._nested += 1
            return
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the import takes seconds
            self._during.enter_context(torch.compiler.set_stance("force_eager"))
        self._anatomy = anatomy = self._known(args, kwargs)
        if anatomy.seam == "interface" and not self._switched:
            self._switched = True
            self._undo.enter_context(switched_backend(self._root))
        self._hook_blocks(anatomy)
        number, self._passes = self._passes, self._passes + 1
        self._pass = ForwardPass(anatomy, self._listeners, number, torch.is_grad_enabled())
        self._during.enter_context(self._pass)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._nested:
            self._nested -= 1
            return
        observed, self._pass = self._pass, None
        self._during.close()
        if observed is not None and output is not None and self._listeners.attention:
            _refuse_silence(observed)

    def _known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Anatomy:
        given = frozenset(name for name, value in kwargs.items() if value is not None)
        if self._stamp is None or not self._stamp.holds():
            self._stamp = _Stamp(self._root)
        key = (self._stamp.fingerprint, self._backends, self._paths, len(args), given)
        known = _KNOWN.setdefault(self._root, {})
        if key not in known:
            # Old entries hold replaced parameters alive; a handful is enough for any real use.
            while len(known) >= _KNOWN_PER_MODEL:
                del known[next(iter(known))]
            known[key] = probe(self._root, args, kwargs, self._paths)
        return known[key]

    def _hook_blocks(self, anatomy: Anatomy) -> None:
        for path in dict.fromkeys(b.path for chain in anatomy.chains for b in chain.blocks):
            if path in self._hooked:
                continue
            self._hooked.add(path)

            def enter(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
                if self._pass is not None and not self._nested:
                    with self._pass.paused():
                        self._pass.enter_block(module, path, args, kwargs)

            def leave(module: nn.Module, args: Any, output: Any) -> None:
                if self._pass is not None and not self._nested:
                    with self._pass.paused():
                        self._pass.leave_block(output)

            module = self._root.get_submodule(path)
            first = module.register_forward_pre_hook(enter, with_kwargs=True)
            last = module.register_forward_hook(leave, always_call=True)
            self._undo.callback(first.remove)
            self._undo.callback(last.remove)


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


class _Stamp:
    """A model as it is: no longer valid when a module or parameter is swapped or the mode changes.

    Asked before every pass, so that the check is made without walking the tree anew.
    """

    def __init__(self, root: nn.Module) -> None:
        self._parts = [(module, *_contents(module)) for module in root.modules()]
        names = tuple(name for name, _ in root.named_modules())
        contents = tuple((id(m), t, tuple(c), tuple(p)) for m, t, c, p in self._parts)
        self.fingerprint = hash((names, contents))

    def holds(self) -> bool:
        """Whether nothing has changed since."""
        return all(_contents(m) == (t, c, p) for m, t, c, p in self._parts)


def _contents(module: nn.Module) -> tuple[bool, list[int], list[int]]:
    children, parameters = module._modules.values(), module._parameters.values()
    return module.training, [*map(id, children)], [*map(id, parameters)]


def _refuse_silence(observed: ForwardPass) -> None:
    if observed.attentions == 0:
        raise TapError(
            "The probing pass saw attention, this pass none: the model took a path that hides it "
            "(another thread, a captured CUDA graph). Nothing was measured."
        )
