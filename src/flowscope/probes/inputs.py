"""What the attention modules of a model were given: the states its projections read.

The tap tells queries, keys and values; a block pass tells the residual stream. Between them stands
the normalised state that the projections read, which is what the points of a layer *are* for its
attention. It is the first floating-point argument of the module that makes the attention call, in
transformers and diffusers alike, so one watcher per such module sees it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn

from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, Chain, Tap
from flowscope.tap.dispatch import Watcher, thread_watchers
from flowscope.tap.trace import arguments_of, tensors_in

__all__ = ["AttentionInputs"]


class AttentionInputs:
    """The input of the module behind each attention call, while a ``with`` block lasts.

    Parameters
    ----------
    model
        The model the tap was made for.
    tap
        An entered tap that has at least one listener already: the anatomy it finds at the start of
        a forward pass says which modules to hook.

    Notes
    -----
    Only the newest input of a module is held, and only until the next one or the end of the block.
    A module that is called by several layers (ALBERT) is read by each right after it was given its
    input, so each sees its own.
    """

    def __init__(self, model: nn.Module, tap: Tap) -> None:
        self._model, self._tap = model, tap
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._given: dict[str, Tensor] = {}
        self._hooked: set[str] = set()
        self._blocks: set[str] = set()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        # Inside the tap's own watcher, so that the anatomy of this pass is known.
        self._undo.callback(thread_watchers().add(self._model, self._start))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()
        self._given.clear()
        self._hooked.clear()

    def of(self, call: AttentionCall) -> Tensor | Unavailable:
        """States ``[batch, length, d]`` that gave the queries and keys of a self-attention call."""
        path = call.site.path
        if path in self._blocks or path not in self._hooked:
            return Unavailable(
                f"{path or 'the model'} calls attention itself, so the normalised state that its "
                "projections read cannot be told from its other tensors"
            )
        if call.cross or call.q.shape[-2] != call.k.shape[-2]:
            return Unavailable(f"the queries and keys of {path} are not the same points")
        x = self._given.get(path)
        if x is None or x.ndim != 3 or x.shape[:2] != (call.q.shape[0], call.q.shape[-2]):
            found = "no tensor" if x is None else f"one of shape {tuple(x.shape)}"
            return Unavailable(
                f"{path} was given {found} where [batch, length, width] with "
                f"{call.q.shape[0]} rows of {call.q.shape[-2]} points was expected"
            )
        return x

    def _start(self, proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._hook()
        return proceed(*args, **kwargs)

    def _hook(self) -> None:
        chain = self._tap.anatomy.depth
        if not isinstance(chain, Chain):
            return
        self._blocks.update(block.path for block in chain.blocks)
        paths = {a.site.path for block in chain.blocks for a in block.attentions if not a.cross}
        for path in sorted(paths - self._hooked - self._blocks):
            self._hooked.add(path)
            module = self._root.get_submodule(path)
            self._undo.callback(thread_watchers().add(module, self._keeper(module, path)))

    def _keeper(self, module: nn.Module, path: str) -> Watcher:
        def keep(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            self._keep(module, path, args, kwargs)
            return proceed(*args, **kwargs)

        return keep

    def _keep(self, module: nn.Module, path: str, args: Any, kwargs: Any) -> None:
        self._given.pop(path, None)
        if not getattr(module, "batch_first", True):
            return  # [length, batch, width]: not told apart from ours when both are equal
        tensors = tensors_in(arguments_of(module, args, kwargs))
        first = next((t for _, t in tensors if t.is_floating_point()), None)
        if first is not None:
            self._given[path] = first.detach()
