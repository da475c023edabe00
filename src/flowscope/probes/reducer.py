"""What every probe has in common: tables of scalars that merge."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Reducer"]

Arrays = dict[str, NDArray[Any]]


class Reducer:
    """Keeps tables of scalars, one per batch, and gives them as one table in a fixed order.

    Merging is exact, associative and commutative: rows are sorted by their keys when they are read,
    so a corpus may be split over processes in any way.
    """

    keys: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._kept: list[Arrays] = []

    def take(self, arrays: Arrays) -> None:
        """Add a table that was made before (a batch that ended, a finished shard)."""
        self._kept.append(dict(arrays))

    def merge(self, other: Self) -> None:
        """Add everything another probe of the same kind has kept."""
        self._kept.extend(other._kept)

    def clear(self) -> None:
        """Forget everything that was kept; what the probe has learned about the model stays."""
        self._kept.clear()

    def arrays(self) -> Arrays:
        """Everything that was kept, as one table sorted by its keys; empty when nothing was."""
        if not self._kept:
            return {}
        whole = {name: np.concatenate([k[name] for k in self._kept]) for name in self._kept[0]}
        order = np.lexsort([whole[key] for key in reversed(self.keys)])
        return {name: values[order] for name, values in whole.items()}
