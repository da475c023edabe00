"""Prompts as units: which of a run are different, and the sums over the tokens of each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct_prompts", "prompt_sums"]

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
        if not np.isclose(row, steps[first], rtol=_SAME, atol=1e-12).all(1).any():
            first.append(number)
    return np.array(first, np.int64)


def prompt_sums(
    values: NDArray[np.floating], prompt: NDArray[np.integer], prompts: int
) -> NDArray[np.float64]:
    """Sum of each column over the tokens of each prompt, ``[prompts, columns]``.

    Tokens are added one after the other, in their order: the same numbers to the last bit as one
    addition per token.

    Examples
    --------
    >>> prompt_sums(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 2, 0]), 3)
    array([[6., 8.],
           [0., 0.],
           [3., 4.]])
    """
    columns = values.shape[1]
    place = prompt[:, None].astype(np.int64) * columns + np.arange(columns)
    sums = np.bincount(place.ravel(), values.ravel(), minlength=prompts * columns)
    return np.asarray(sums, np.float64).reshape(prompts, columns)
