"""Which keys of an attention call are image tokens, in models where text attends beside them.

In joint attention (SD3, Flux) the keys of several streams are laid one after the other; the tap
names the streams, not their order. The order is found by a trial: the running block is begun again
with its image stream changed, and the keys that move are image tokens. This is done once for every
call of the model and set of lengths; the model is left as it was. Calls are followed in the thread
that entered the lever, and no other thread's pass is seen or changed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import UnsupportedModelError
from flowscope.levers.selection import place
from flowscope.tap import Anatomy, AttentionCall, Site, Tap
from flowscope.tap.dispatch import Watcher, thread_watchers, unrouted_calls
from flowscope.tap.kernels import REQUESTS
from flowscope.tap.trace import arguments_of, mapped, tensors_in

__all__ = ["ImageKeys"]

_TEXT = ("encoder", "context", "text", "txt", "caption", "prompt")
_Running = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class ImageKeys:
    """Follows the arguments of a model and of its blocks, and tells image keys from text.

    Parameters
    ----------
    model, tap
        The model and the tap that listens to it, which must have a listener already: then the
        anatomy is there when a forward pass begins.
    """

    def __init__(self, model: nn.Module, tap: Tap) -> None:
        self._model, self._tap = model, tap
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._followed: set[str] = set()
        self._running: _Running | None = None
        self._sizes: set[int] = set()
        self._text, self._length = "", 0
        self._found: dict[tuple[Site, tuple[int, ...]], slice] = {}

    def follow(self, undo: ExitStack) -> None:
        """Begin, until ``undo`` is closed."""
        self._followed.clear()
        self._found.clear()
        self._undo = undo
        # Inside the tap's own watcher, so that the anatomy of a pass is known.
        undo.callback(thread_watchers().add(self._model, self._pass))
        undo.callback(self._release)

    def _release(self) -> None:
        self._running = None

    def _pass(self, proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._enter(args, kwargs)
        try:
            return proceed(*args, **kwargs)
        finally:
            self._release()

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = arguments_of(self._root, args, kwargs)
        tensors = dict(tensors_in(values))
        self._sizes = {n for t in tensors.values() for n in t.shape[:2]}
        self._sizes |= {len(x) for x in values.values() if isinstance(x, (list, tuple))}
        texts = {n: t.shape[-2] for n, t in tensors.items() if n.startswith(_TEXT) and t.ndim > 2}
        self._text, self._length = next(iter(texts.items()), ("", 0))
        for chain in self._tap.anatomy.chains:
            for block in chain.blocks:
                if any("+" in a.site.stream for a in block.attentions):
                    self._follow_block(block.path)

    def _follow_block(self, path: str) -> None:
        if path not in self._followed:
            self._followed.add(path)
            block = self._root.get_submodule(path)
            self._undo.callback(thread_watchers().add(block, self._keeper(block)))

    def _keeper(self, block: nn.Module) -> Watcher:
        def keep(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            self._running = (block, args, kwargs)
            return proceed(*args, **kwargs)

        return keep

    def refuse_folded(self, call: AttentionCall) -> None:
        """Raise when the rows of a call are not the rows that the model was given."""
        rows = call.q.shape[0]
        if call.q.ndim != 4 or (self._sizes and rows not in self._sizes):
            raise UnsupportedModelError(
                f"At {place(call)}: attention runs on {rows} rows (queries of shape "
                f"{tuple(call.q.shape)}), which is no batch size among the model's arguments: "
                "windows, frames or heads are folded into the batch, so it cannot be told which "
                "rows belong to which replica. Leave this call out with layers= or chain=."
            )

    def of(self, call: AttentionCall) -> slice | None:
        """The keys of a self-attention call that are image tokens; None when all of them are.

        Raises
        ------
        UnsupportedModelError
            When text and image cannot be told apart.
        """
        if "+" not in call.site.stream:
            self._refuse_one_stream(call)
            return None
        if self._running is None:
            raise UnsupportedModelError(
                f"At {place(call)}: joint attention outside a block that was entered; its image "
                "keys cannot be told from text keys."
            )
        image = _image_stream(self._tap.anatomy, call.site)
        tensors = dict(tensors_in(arguments_of(*self._running)))
        streams = {name: tensors[name] for name in call.site.stream.split("+")}
        key = (call.site, tuple(t.shape[-2] for t in streams.values()))
        if key not in self._found:
            self._found[key] = _moved_keys(self._running, streams[image], call)
        return self._found[key]

    def _refuse_one_stream(self, call: AttentionCall) -> None:
        if not self._text:
            return
        name = call.site.chain
        sites = [a for a in self._tap.anatomy.attentions if a.site.chain == name]
        if not any(a.cross or "+" in a.site.stream for a in sites):
            raise UnsupportedModelError(
                f"At {place(call)}: the model takes text ({self._text}), and the blocks of {name} "
                "attend to it neither by cross-attention nor as a stream beside the image. Text "
                "and image tokens cannot be told apart there. Choose another chain with chain=."
            )
        # Outside every chain the tap tells cross-attention by its lengths alone.
        if name == "outside" and call.k.shape[-2] == self._length:
            raise UnsupportedModelError(
                f"At {place(call)}: there are as many image tokens as text tokens "
                f"({self._length}), so it cannot be told whether this is cross-attention to "
                f"{self._text}. Use another image size, or pad the text."
            )


def _image_stream(anatomy: Anatomy, site: Site) -> str:
    """The stream that alone leaves the last block, else the one not named as text."""
    streams = site.stream.split("+")
    leaving = [s for s in anatomy.chain(site.chain).blocks[-1].places if s in streams]
    named = [s for s in streams if not s.startswith(_TEXT)]
    for found in (leaving, named):
        if len(found) == 1:
            return found[0]
    raise UnsupportedModelError(
        f"Layer {site.index} of {site.chain} attends jointly over the streams {streams}, and it "
        "cannot be told which one is the image: no single one leaves the last block, or has a name "
        "that is not one of text."
    )


class _Keys(Exception):  # noqa: N818  (not an error: the trial ends where its answer is)
    def __init__(self, keys: Tensor) -> None:
        super().__init__()
        self.keys = keys


class _UpToCall(TorchFunctionMode):
    """Ends a trial at one attention call, with its keys; hides the rest from outer modes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            if func in REQUESTS:
                if not self._left:
                    raise _Keys(REQUESTS[func](*args, **(kwargs or {})).k)
                self._left -= 1
            return func(*args, **(kwargs or {}))


def _moved_keys(running: _Running, image: Tensor, call: AttentionCall) -> slice:
    """The keys that move with the image stream: one run, as long as the stream."""
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(0)).to(image)
    with torch.no_grad():
        changed = image + noise * image.std()
    before, after = (_trial(running, image, x, call) for x in (image, changed))
    with torch._C.DisableTorchFunction():
        moved = (before != after).movedim(-2, 0).flatten(1).any(1).nonzero().flatten().tolist()
    length = image.shape[-2]
    if not moved or moved != list(range(moved[0], moved[0] + length)):
        raise UnsupportedModelError(
            f"At {place(call)}: {len(moved)} of {call.k.shape[-2]} keys move with the "
            f"{length} tokens of the image stream, and not as one run of that length. Image keys "
            "cannot be told from text keys."
        )
    return slice(moved[0], moved[0] + length)


def _trial(running: _Running, image: Tensor, instead: Tensor, call: AttentionCall) -> Tensor:
    """Keys of a call when its block is begun again with another image stream."""
    module, args, kwargs = mapped(
        running, Tensor, lambda t: (instead if t is image else t).detach().clone()
    )
    devices = [image.device.index or 0] if image.is_cuda else []
    forked = torch.random.fork_rng(devices=devices)
    with torch.no_grad(), forked, unrouted_calls(), _UpToCall(call.site.call):
        try:
            module.forward(*args, **kwargs)
        except _Keys as found:
            return found.keys
    raise UnsupportedModelError(
        f"At {place(call)}: the block made fewer than {call.site.call + 1} attention calls when it "
        "was begun again."
    )
