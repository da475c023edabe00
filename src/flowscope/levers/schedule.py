"""How strongly replicas are coupled: one number, one for each layer, one for each forward pass."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from flowscope.errors import InvalidInputError
from flowscope.levers.selection import Selection, indices
from flowscope.tap import Anatomy, AttentionCall

__all__ = ["Schedule", "Strengths"]

Strengths: TypeAlias = float | Sequence[float] | Mapping[int, float]


class Schedule:
    """Strength by layer and forward pass, read once a pass.

    Parameters
    ----------
    g
        A number, one for each layer of the chain, a mapping from layers, or a function of the
        number of the forward pass that returns one of these.
    """

    def __init__(self, g: Strengths | Callable[[int], Strengths]) -> None:
        self._given = g if callable(g) else _read(g, "g")
        self.forget()

    def forget(self) -> None:
        """Begin at the first pass."""
        self._forward = -1
        self._now: Strengths = 0.0

    @property
    def at_rest(self) -> bool:
        """Whether nothing is ever coupled."""
        given = self._given
        if callable(given):
            return False
        return not any(_values(given))

    def strength(self, call: AttentionCall, anatomy: Anatomy, selection: Selection) -> float:
        """The strength at a call; refused where a schedule does not fit the selected layers."""
        if call.forward != self._forward:
            given = self._given
            now = _read(given(call.forward), f"g({call.forward})") if callable(given) else given
            if not isinstance(now, float):
                _refuse_misfit(now, _depths(anatomy, selection))
            self._forward, self._now = call.forward, now
        if isinstance(self._now, Mapping):
            return self._now.get(call.site.index, 0.0)
        return self._now if isinstance(self._now, float) else self._now[call.site.index]


def _read(g: Any, name: str) -> float | tuple[float, ...] | dict[int, float]:
    """A strength, or one for each layer, checked."""
    g = g.tolist() if hasattr(g, "tolist") else g
    if isinstance(g, Mapping):
        indices(tuple(g), f"layers of {name}")
        return {layer: _number(x, f"{name}[{layer}]") for layer, x in g.items()}
    if isinstance(g, Sequence) and not isinstance(g, str) and g:
        return tuple(_number(x, f"{name}[{i}]") for i, x in enumerate(g))
    return _number(g, name)


def _number(g: Any, name: str) -> float:
    if isinstance(g, bool) or not isinstance(g, numbers.Real) or not 0 <= float(g) <= 1:
        raise InvalidInputError(
            f"{name} must be a number in [0, 1]: 0 leaves the replicas apart, 1 weighs both alike; "
            f"got {g!r}."
        )
    return float(g)


def _values(g: Strengths) -> tuple[float, ...]:
    if isinstance(g, Mapping):
        return tuple(g.values())
    return tuple(g) if isinstance(g, Sequence) else (g,)


def _depths(anatomy: Anatomy, selection: Selection) -> dict[str, int]:
    """Layers of each chain in which something is selected."""
    names = dict.fromkeys(a.site.chain for a in anatomy.attentions if selection.takes(a))
    outside = len(anatomy.outside)
    return {n: outside if n == "outside" else len(anatomy.chain(n)) for n in names}


def _refuse_misfit(g: Sequence[float] | Mapping[int, float], depths: Mapping[str, int]) -> None:
    if len(depths) > 1:
        raise InvalidInputError(
            f"g is given for each layer, and there are several chains of layers: {list(depths)}. "
            "Name one of them with chain=."
        )
    (name, depth), *_ = depths.items()
    if isinstance(g, Mapping):
        absent = sorted(layer for layer in g if layer >= depth)
        if absent:
            raise InvalidInputError(
                f"g names layers {absent}; the layers of {name!r} are 0 to {depth - 1}."
            )
    elif len(g) != depth:
        raise InvalidInputError(
            f"g has {len(g)} values, and {name!r} has {depth} layers. Give one value per layer, or "
            "a mapping from layers."
        )
