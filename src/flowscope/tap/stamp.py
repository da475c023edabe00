"""A model as it is: what anatomies are kept by, looked at before every pass.

torch's registration hooks would tell of changes without being asked, but not of all of them.
Nothing is registered when a layer is taken out of an ``nn.ModuleList`` or put into one, by ``del``,
``.to`` and ``.eval``, or when a weight is swapped in ``_parameters``, as off-loading does. And they
are called for every module that any thread builds. So the model is looked at, in two parts: the
children of its modules, by loops inside Python's own functions, and what else an anatomy rests on.
Weights inside a block change no site and are not looked at.
"""

import weakref
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from torch import nn

from flowscope.tap.anatomy import Anatomy
from flowscope.tap.tail import Tail

__all__ = ["KnownAnatomy", "Stamp", "known_anatomy", "remembered"]

_CHILDREN, _TRAINING = attrgetter("_modules"), attrgetter("training")
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_KNOWN_PER_MODEL = 4


class Stamp:
    """The modules of a model and whether it is trained, as they are now.

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
        self._root, self._training = root, root.training
        # TorchScript keeps the children of its modules elsewhere, where nothing can be swapped.
        held = [m for m in root.modules() if m._modules and isinstance(m._modules, dict)]
        self._places = [*map(_CHILDREN, held)]
        self._sizes = [*map(len, self._places)]
        self._children = [*chain.from_iterable(map(dict.values, self._places))]
        # Taking something out of one of these gives it another dictionary.
        self._lists = [m for m in held if isinstance(m, _CONTAINERS)]
        self._listed = [*map(_CHILDREN, self._lists)]

    def holds(self) -> bool:
        """Whether nothing has changed since."""
        try:
            return (
                self._root.training is self._training
                and [*map(len, self._places)] == self._sizes
                and [*chain.from_iterable(map(dict.values, self._places))] == self._children
                and all(map(is_, map(_CHILDREN, self._lists), self._listed))
            )
        except RuntimeError:  # another thread is changing it
            return False

    def trace(self) -> tuple[Any, ...]:
        """What is kept of it: equal for the same model in the same state, holds nothing of it."""
        names = tuple(chain.from_iterable(self._places))
        modules = [self._root, *(child for child in self._children if child is not None)]
        modes = tuple(map(_TRAINING, modules))
        return names, tuple(self._sizes), modes, tuple(map(weakref.ref, modules))


class KnownAnatomy:
    """An anatomy, and the model in the state in which it was found.

    Beside the modules it rests on the weights of the tail, wherever they are held, and on the mode,
    dtype and device of the blocks: a model that is moved keeps its parameters, with other values,
    and makes new buffers.
    """

    def __init__(self, anatomy: Anatomy, root: nn.Module, stamp: Stamp, key: Any) -> None:
        self.anatomy = anatomy
        self._key, self._trace, self._forgotten = key, stamp.trace(), False
        tail = {id(w): w for w in (anatomy.tail.weights if isinstance(anatomy.tail, Tail) else ())}
        self._tail = [
            (held, name, weight)
            for module in root.modules()
            for held in (module._parameters, module._buffers)
            for name, weight in held.items()
            if weight is not None and id(weight) in tail
        ]
        blocks = [root.get_submodule(path) for path in anatomy.visits]
        self._blocks = [(weakref.ref(block), *_first_weight(block)) for block in blocks]
        self._states = self._found()

    def _found(self) -> list[Any]:
        """Dtype and device of the tail; mode, dtype and device of every block."""
        found: list[Any] = [(weight.dtype, weight.device) for _, _, weight in self._tail]
        for block, owner, name in self._blocks:
            module, held = block(), owner()
            weight = None if held is None else held._parameters.get(name)
            kind = None if weight is None else (weight.dtype, weight.device)
            found.append((module is not None and module.training, kind))
        return found

    def holds(self) -> bool:
        """Whether it is still to be used; asked beside its stamp."""
        same = self._found() == self._states and not self._forgotten
        return same and all(held.get(name) is weight for held, name, weight in self._tail)

    def is_of(self, stamp: Stamp, key: Any) -> bool:
        """Whether it is the anatomy of this model in this state, with such arguments."""
        return bool(key == self._key and self.holds() and self._trace == stamp.trace())

    def forget(self) -> None:
        """Have the model probed anew."""
        self._forgotten = True


def _first_weight(block: nn.Module) -> tuple["weakref.ref[nn.Module]", str]:
    """The module inside a block that holds its first parameter, and the name it has there."""
    for module in block.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                return weakref.ref(module), name
    return weakref.ref(block), ""


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
    _KNOWN[root] = (*_KNOWN.get(root, ())[1 - _KNOWN_PER_MODEL :], known)
    return known
