"""Which prompts of a run are different: equal prompts are one unit, not several."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct_prompts"]

_SAME = 1e-4  # relative; padding in another batch moves a number by rounding only


def distinct_prompts(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Numbers of the prompts that equal no earlier one, by their relative step at every layer.

    Parameters
    ----------
    arrays
        The arrays ``prompts`` of an audit: ``relative_step`` is ``[prompts, layers]``.

    Examples
    --------
    >>> distinct_prompts({"relative_step": np.array([[0.1, 0.2], [0.1, 0.2], [0.3, 0.2]])})
    array([0, 2])
    """
    steps = np.asarray(arrays["relative_step"], np.float64)
    first: list[int] = []
    for number, row in enumerate(steps):
        if not any(np.allclose(row, steps[k], rtol=_SAME, atol=1e-12) for k in first):
            first.append(number)
    return np.array(first, np.int64)
