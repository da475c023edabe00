"""A model as it is: what anatomies are kept by, looked at before every pass.

torch's registration hooks would tell of changes without being asked, but not of all of them:
nothing is registered when a layer is taken out of an ``nn.ModuleList`` or put into one, by ``del``,
``.to`` and ``.eval``, or when a weight is swapped in ``_parameters`` (as off-loading does). And they
are called for every module that any thread builds. So the model is looked at, by loops that run
inside Python's own functions.
"""

import weakref
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter, is_, methodcaller
from typing import Any

from torch import Tensor, nn

from flowscope.tap.anatomy import Anatomy
from flowscope.tap.tail import Tail

__all__ = ["KnownAnatomy", "Stamp", "known_anatomy", "remembered"]

_CHILDREN, _WEIGHTS = attrgetter("_modules"), attrgetter("_parameters")
_KEYS, _VALUES = methodcaller("keys"), methodcaller("values")
_KNOWN_PER_MODEL = 4
_TRAINING, _KIND = attrgetter("training"), attrgetter("dtype", "device")


class Stamp:
    """Modules, parameters and mode of a model, as they are now.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> stamp = Stamp(model)
    >>> stamp.holds()
    True
    >>> del model[1]
    >>> stamp.holds()
    False
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules = list(root.modules())
        self._names, self._parts = _names(self.modules), _parts(self.modules)
        self._training = [*map(_TRAINING, self.modules)]
        self._weights = [part for part in self._parts if isinstance(part, Tensor)]
        self._kinds = [*map(_KIND, self._weights)]

    def holds(self) -> bool:
        """Whether nothing has changed since."""
        return (
            [*map(_TRAINING, self.modules)] == self._training
            and _names(self.modules) == self._names
            and self._same_parts()
            and [*map(_KIND, self._weights)] == self._kinds
        )

    def _same_parts(self) -> bool:
        """Whether modules and parameters are the same objects.

        An off-loaded weight is put back as a new object without values after each pass.
        """
        parts = _parts(self.modules)
        if all(map(is_, parts, self._parts)):
            return True
        if not all(a is b or _alike(a, b) for a, b in zip(parts, self._parts, strict=True)):
            return False
        self._parts = parts
        self._weights = [part for part in parts if isinstance(part, Tensor)]
        return True


class _Trace:
    """What is left of a stamp: it keeps nothing of the model alive."""

    def __init__(self, stamp: Stamp) -> None:
        self._held = [_reference(part) for part in (*stamp.modules, *stamp._parts)]
        self._rest = (stamp._names, stamp._training, stamp._kinds)

    def equals(self, stamp: Stamp) -> bool:
        """Whether this is the stamp of the same model in the same state."""
        if self._rest != (stamp._names, stamp._training, stamp._kinds):
            return False
        now = (*stamp.modules, *stamp._parts)
        return len(now) == len(self._held) and all(
            held() is part if isinstance(held, weakref.ref) else held == _reference(part)
            for held, part in zip(self._held, now, strict=True)
        )


def _names(modules: Sequence[nn.Module]) -> list[list[str]]:
    """Names of the children and weights of each module."""
    held = chain(map(_CHILDREN, modules), map(_WEIGHTS, modules))
    return [*map(list, map(_KEYS, held))]


def _parts(modules: Sequence[nn.Module]) -> list[Any]:
    """Children and weights of all modules; None where a place is empty."""
    held = chain(map(_CHILDREN, modules), map(_WEIGHTS, modules))
    return [*chain.from_iterable(map(_VALUES, held))]


def _alike(now: Any, before: Any) -> bool:
    """Whether both are weights without values, of one shape."""
    tensors = isinstance(now, Tensor) and isinstance(before, Tensor)
    return tensors and now.is_meta and before.is_meta and now.shape == before.shape


def _reference(part: Any) -> Any:
    """A weak reference; of a weight without values, which is made anew in each pass, its shape."""
    if part is None or (isinstance(part, Tensor) and part.is_meta):
        return None if part is None else part.shape
    return weakref.ref(part)


class KnownAnatomy:
    """An anatomy and the model in the state in which it was found.

    The tail may rest on buffers, and moving a model makes new ones: those are looked at, too.
    """

    def __init__(self, anatomy: Anatomy, stamp: Stamp, key: Any) -> None:
        self.anatomy = anatomy
        self._trace, self._key, self._forgotten = _Trace(stamp), key, False
        weights = anatomy.tail.weights if isinstance(anatomy.tail, Tail) else ()
        self._buffers = [
            (module._buffers, name, buffer)
            for module in stamp.modules
            for name, buffer in module._buffers.items()
            if any(buffer is weight for weight in weights)
        ]

    def holds(self) -> bool:
        """Whether it is still to be used; asked beside its stamp."""
        return not self._forgotten and all(
            held.get(name) is buffer for held, name, buffer in self._buffers
        )

    def is_of(self, stamp: Stamp, key: Any) -> bool:
        """Whether it is the anatomy of this model in this state, with such arguments."""
        return key == self._key and self.holds() and self._trace.equals(stamp)

    def forget(self) -> None:
        """Have the model probed anew."""
        self._forgotten = True


# Anatomies survive the tap that found them, not the model: a second tap need not probe again.
_KNOWN: "weakref.WeakKeyDictionary[nn.Module, tuple[KnownAnatomy, ...]]" = (
    weakref.WeakKeyDictionary()
)


def known_anatomy(root: nn.Module, stamp: Stamp, key: Any) -> KnownAnatomy | None:
    """The anatomy that was found of this model in this state, with such arguments."""
    return next((known for known in _KNOWN.get(root, ()) if known.is_of(stamp, key)), None)


def remembered(root: nn.Module, known: KnownAnatomy) -> KnownAnatomy:
    """Keep an anatomy as long as the model lives, or until a handful of others were found."""
    # Old ones hold the weights of replaced tails alive.
    others = [other for other in _KNOWN.get(root, ()) if other.holds()]
    _KNOWN[root] = (*others[1 - _KNOWN_PER_MODEL :], known)
    return known
