r"""Residual, writes and norms of a loaded model scaled, frozen or removed, then undone.

A block adds writes to its stream. While the lever is entered every addition of the chosen blocks is

$$
h \leftarrow r\,h + c_k\,w_k, \qquad c_k \in \{c_{\rm attention},\ c_{\rm feed\text{-}forward}\},
$$

and a norm that reads the stream may keep its scale, divide by a constant (*frozen*: the median
scale of its tokens in the model as it is), or not divide at all (*removed*). A common scale of the
embedding and of all writes leaves a pre-norm model unchanged but for the norm's ε: it is no step
size. In a post-norm model, $h \leftarrow \mathrm{norm}(r\,h + c_k\,w_k)$, $r = c_k$ does nothing.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flowscope.errors import InvalidInputError
from flowscope.levers.norms import (
    centres_features,
    is_norm,
    norm_input,
    rescaled,
    token_scale,
)
from flowscope.levers.selection import indices
from flowscope.records import Unavailable
from flowscope.tap import Anatomy, Block, Chain, Tap
from flowscope.tap.dispatch import Watcher, own_watchers, thread_watchers
from flowscope.tap.residual import ADDITIONS, NORMS, RESHAPES
from flowscope.tap.trace import arguments_of, outputs_in, tensors_in

__all__ = ["Intervention", "intervene"]

Norms = Literal["keep", "frozen", "removed"]
Watch = Callable[[int, Tensor], None]
_IN_PLACE = frozenset({Tensor.add_, Tensor.__iadd__})
_HEARD = ADDITIONS | RESHAPES | NORMS


@dataclass(frozen=True, kw_only=True)
class _Change:
    residual: float
    attention: float
    feed_forward: float
    norm: Norms
    layers: tuple[int, ...] | None

    @property
    def idle(self) -> bool:
        scales = (self.residual, self.attention, self.feed_forward)
        return scales == (1.0, 1.0, 1.0) and self.norm == "keep"

    def takes(self, block: Block) -> bool:
        return self.layers is None or block.index in self.layers

    def scale(self, kind: str) -> float:
        """What a write of this kind is multiplied by; an external one is left alone."""
        if kind in ("attention", "cross_attention", "mixed"):
            return self.attention
        return self.feed_forward if kind == "feed_forward" else 1.0


def intervene(
    model: nn.Module,
    *,
    residual: float = 1.0,
    attention: float = 1.0,
    feed_forward: float = 1.0,
    norm: Norms = "keep",
    layers: Sequence[int] | None = None,
    watch: Watch | None = None,
) -> "Intervention":
    """Scale residual and writes of a model, freeze or remove its norms, for one ``with`` block.

    Parameters
    ----------
    model
        Any model that `flowscope.Tap` reads and whose blocks add to their input.
    residual
        Scale of the stream at every addition.
    attention, feed_forward
        Scales of the writes of attention and of the feed-forward part; 0 removes them.
    norm
        ``"keep"``; ``"frozen"``: every token is divided by the median scale that the tokens of the
        same inputs have at this norm in the model as it is, so that each pass is run twice;
        ``"removed"``: no division, the learnt gain and bias stay. Only norms that read the stream
        inside a chosen block.
    layers
        Blocks by index; all of them by default.
    watch
        Told the index of each block of the depth and the state that leaves it, in order.

    Raises
    ------
    InvalidInputError
        For scales that are not finite, an unknown norm, layers that are not there, a block whose
        additions cannot be followed, or one whose attention and feed-forward are one write and get
        different scales. Raised from the model's first pass where it needs one.

    Notes
    -----
    Neutral settings leave the model bitwise itself. In a post-norm block both sides of each
    addition are scaled in front of its norm, so that a common scale of stream and writes changes
    nothing. Other threads run the model untouched. Where the
    residual is not scaled, a tap outside the ``with`` block hears the scaled writes.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    >>> model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    >>> x = torch.randn(1, 5, 8)
    >>> with torch.no_grad(), intervene(model, attention=0.0, feed_forward=0.0):
    ...     bool((model(x) == x).all())
    True
    """
    for name, value in (
        ("residual", residual),
        ("attention", attention),
        ("feed_forward", feed_forward),
    ):
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InvalidInputError(f"{name} must be a finite scale; got {value!r}.")
    if norm not in ("keep", "frozen", "removed"):
        raise InvalidInputError(f"norm must be 'keep', 'frozen' or 'removed'; got {norm!r}.")
    change = _Change(
        residual=float(residual),
        attention=float(attention),
        feed_forward=float(feed_forward),
        norm=norm,
        layers=indices(layers, "layers"),
    )
    return Intervention(model, change, watch)


class Intervention:
    """A model with scaled writes or changed norms, while its ``with`` block lasts.

    Made by `intervene`.
    """

    def __init__(self, model: nn.Module, change: _Change, watch: Watch | None) -> None:
        self._model, self._change, self._watch = model, change, watch
        self._root: nn.Module = getattr(model, "_orig_mod", model)
        self._tap = Tap(model)
        self._undo = ExitStack()
        self._watched: set[str] = set()
        self._mode: _Additions | None = None
        self._visits: dict[str, int] = {}
        self._scales: dict[str, list[Tensor]] = {}

    def __enter__(self) -> Self:
        if self._change.idle and self._watch is None:
            return self
        self._undo.enter_context(self._tap)
        self._tap.on_attention(lambda call: None)  # so that the anatomy is found
        self._undo.callback(thread_watchers().add(self._model, self._around))
        return self

    def __exit__(self, *failure: object) -> None:
        self._undo.close()
        self._watched.clear()

    def _around(self, proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._mode is not None:  # the model runs inside its own pass
            return proceed(*args, **kwargs)
        anatomy = self._tap.anatomy
        self._refuse(anatomy)
        self._attach(anatomy)
        if self._change.norm == "frozen":
            self._scales = self._plain_scales(args, kwargs)
        self._visits = {}
        self._mode = _Additions(self._change)
        try:
            with self._mode:
                return proceed(*args, **kwargs)
        finally:
            self._mode = None

    def _refuse(self, anatomy: Anatomy) -> None:
        depth = anatomy.depth
        if isinstance(depth, Unavailable):
            raise InvalidInputError(f"There is nothing to scale: {depth.reason}.")
        missing = sorted(set(self._change.layers or ()) - set(range(len(depth))))
        if missing:
            raise InvalidInputError(
                f"layers must be from 0 to {len(depth) - 1}, the blocks of {depth.name!r}; got "
                f"{missing[0]}."
            )
        for block in depth.blocks:
            for kinds in block.additions.values() if self._change.takes(block) else ():
                if isinstance(kinds, Unavailable):
                    raise InvalidInputError(
                        f"The additions of {block.path} cannot be scaled: {kinds.reason}."
                    )
                if "mixed" in kinds and self._change.attention != self._change.feed_forward:
                    raise InvalidInputError(
                        f"{block.path} adds attention and feed-forward in one write: give both "
                        "the same scale."
                    )

    def _attach(self, anatomy: Anatomy) -> None:
        assert isinstance(anatomy.depth, Chain)
        blocks: dict[str, list[Block]] = {}
        for block in anatomy.depth.blocks:
            blocks.setdefault(block.path, []).append(block)
        for path, visits in blocks.items():
            if path in self._watched:
                continue
            self._watched.add(path)
            module = self._root.get_submodule(path)
            self._add(module, self._block_watcher(module, visits))
            if self._change.norm != "keep":
                for name, part in module.named_modules():
                    if is_norm(part):
                        self._add(part, self._norm_watcher(part, f"{path}.{name}"))

    def _add(self, module: nn.Module, watcher: Watcher) -> None:
        self._undo.callback(thread_watchers().add(module, watcher))

    def _block_watcher(self, module: nn.Module, visits: list[Block]) -> Watcher:
        def around(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            mode = self._mode
            if mode is None:
                return proceed(*args, **kwargs)
            number = self._visits.get(visits[0].path, 0)
            self._visits[visits[0].path] = number + 1
            block = visits[min(number, len(visits) - 1)]
            given = dict(tensors_in(arguments_of(module, args, kwargs)))
            streams = {stream: given[stream] for stream in block.places}
            with mode.inside(block if self._change.takes(block) else None, streams):
                output = proceed(*args, **kwargs)
            if self._watch is not None:
                main = next(iter(block.places.values()))
                self._watch(block.index, outputs_in(output)[main])
            return output

        return around

    def _norm_watcher(self, module: nn.Module, path: str) -> Watcher:
        centres: list[bool] = []

        def around(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            output, mode = proceed(*args, **kwargs), self._mode
            x = norm_input(args, kwargs, output)
            if mode is None or x is None:
                return output
            frozen = self._scales[path].pop(0) if self._scales else None
            if not mode.carries(x):
                return output
            with torch._C.DisableTorchFunction():
                if not centres:
                    centres.append(centres_features(proceed, x, output))
                changed = rescaled(module, output, token_scale(x, centres[0]), frozen)
                mode.replace(output, changed)
                return changed

        return around

    def _plain_scales(self, args: Any, kwargs: Any) -> dict[str, list[Tensor]]:
        """Median scale of the tokens at each call of each norm, in the model as it is."""
        scales: dict[str, list[Tensor]] = {}

        def recorder(into: list[Tensor]) -> Watcher:
            def around(proceed: Callable[..., Any], args: Any, kwargs: Any) -> Any:
                output = proceed(*args, **kwargs)
                x = norm_input(args, kwargs, output)
                if x is not None:
                    into.append(token_scale(x, centres_features(proceed, x, output)).median())
                return output

            return around

        with own_watchers() as watchers, ExitStack() as undo, torch.no_grad():
            for path in self._watched:
                for name, part in self._root.get_submodule(path).named_modules():
                    if is_norm(part):
                        into = scales.setdefault(f"{path}.{name}", [])
                        undo.callback(watchers.add(part, recorder(into)))
            self._model(*args, **kwargs)
        return scales


@dataclass(eq=False)
class _Frame:
    """A running block: its streams so far, each with the number of additions made to it."""

    block: Block
    carried: dict[int, tuple[Tensor, str, int]] = field(default_factory=dict)

    def carry(self, stream: object, result: Tensor) -> None:
        """Let a result be the stream where what it was made of is."""
        seen = self.carried.get(id(stream))
        if seen is not None:
            self.carried[id(result)] = (result, *seen[1:])

    def norms_stream(self, x: object) -> bool:
        """Whether x is a stream that this block norms itself: a post-norm block."""
        seen = self.carried.get(id(x))
        return seen is not None and isinstance(self.block.writes[seen[1]], Unavailable)


class _Additions(TorchFunctionMode):
    """Scales both sides of every addition to a stream of a running block."""

    def __init__(self, change: _Change) -> None:
        super().__init__()
        self._change = change
        self._frames: list[_Frame | None] = []

    def inside(self, block: Block | None, streams: dict[str, Tensor]) -> "_Inside":
        """While the context lasts, additions to these streams are of this block."""
        frame = None
        if block is not None:
            frame = _Frame(block, {id(t): (t, stream, 0) for stream, t in streams.items()})
        return _Inside(self._frames, frame)

    def carries(self, x: Tensor) -> bool:
        """Whether a tensor is the stream of the running block."""
        frame = self._frames[-1] if self._frames else None
        return frame is not None and id(x) in frame.carried

    def replace(self, stream: Tensor, by: Tensor) -> None:
        """Let another tensor take the place of one that is the stream."""
        frame = self._frames[-1] if self._frames else None
        if frame is not None:
            frame.carry(stream, by)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Let every function through but additions to a stream."""
        kwargs = kwargs or {}
        frame = self._frames[-1] if self._frames else None
        if frame is None or func not in _HEARD:
            return func(*args, **kwargs)
        if func in ADDITIONS:
            return self._added(frame, func, args, kwargs)
        result = func(*args, **kwargs)
        x = args[0] if args else kwargs.get("input")
        if func in RESHAPES or frame.norms_stream(x):
            frame.carry(x, result)
        return result

    def _added(self, frame: _Frame, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        first, second = args[0], args[1] if len(args) > 1 else kwargs.get("other")
        on_first, on_second = id(first) in frame.carried, id(second) in frame.carried
        alpha = kwargs.get("alpha", 1)
        write = second if on_first else first
        if on_first == on_second or (on_second and alpha != 1) or not isinstance(write, Tensor):
            return func(*args, **kwargs)
        stream, name, number = frame.carried[id(first if on_first else second)]
        kinds = frame.block.additions[name]
        assert not isinstance(kinds, Unavailable)
        kind = kinds[number] if number < len(kinds) else "external"
        scaled = write if self._change.scale(kind) == 1 else self._change.scale(kind) * write
        if func in _IN_PLACE and on_first:
            stream = stream if self._change.residual == 1 else stream.mul_(self._change.residual)
            result = func(stream, scaled, **{k: v for k, v in kwargs.items() if k != "other"})
        else:
            stream = stream if self._change.residual == 1 else self._change.residual * stream
            result = torch.add(stream, scaled, alpha=alpha)
        frame.carried[id(result)] = (result, name, number + 1)
        return result


class _Inside:
    """Pushes a frame for the length of a ``with`` block."""

    def __init__(self, frames: list[_Frame | None], frame: _Frame | None) -> None:
        self._frames, self._frame = frames, frame

    def __enter__(self) -> None:
        self._frames.append(self._frame)

    def __exit__(self, *failure: object) -> None:
        self._frames.pop()
