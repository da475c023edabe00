r"""Medians of resampled prompts, by counts per bin of the sorted tokens.

With $w_p$ the number of times prompt $p$ was drawn, the resampled median of the sorted token values
$x_1 \le \dots \le x_N$ is the midpoint of the lower and the upper weighted median with weights
$w_{p(i)}$. The sorted tokens are cut into bins; one product of the draws with the number of tokens
of each prompt in each bin says in which bin the cumulated weight passes one half, and only that bin
is cumulated token by token. The cost is O(draws · (prompts · bins + N / bins)) instead of
O(draws · N), and the sums are of whole numbers, so the result is the same to the last bit.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

__all__ = ["weighted_medians"]


def weighted_medians(
    ordered: Float[NDArray[np.float64], "n"],
    owner: Int[NDArray[np.integer], "n"],
    counts: Int[NDArray[np.int64], "resamples prompts"],
) -> Float[NDArray[np.float64], "resamples"]:
    """Median of the tokens of each resample; NaN where a resample has no token.

    Parameters
    ----------
    ordered
        Token values in increasing order.
    owner
        The prompt of each token, from 0.
    counts
        How often each prompt is drawn, by resample.

    Examples
    --------
    >>> weighted_medians(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 2]), np.array([[1, 0, 2]]))
    array([4.])
    """
    tokens, prompts = len(ordered), counts.shape[1]
    width = max(1, int(np.sqrt(tokens)))
    bins = -(-tokens // width)
    per_bin = np.zeros((prompts, bins))
    np.add.at(per_bin, (owner, np.arange(tokens) // width), 1.0)
    cumulated = np.cumsum(counts.astype(np.float64) @ per_bin, axis=1)
    total = cumulated[:, -1]
    # Tokens that fill up the last bin belong to a prompt that is never drawn.
    padded = np.full(bins * width, prompts)
    padded[:tokens] = owner
    drawn = np.concatenate([counts, np.zeros((len(counts), 1), counts.dtype)], axis=1)
    lower = _first_passing(cumulated, drawn, padded, width, strict=False)
    upper = _first_passing(cumulated, drawn, padded, width, strict=True)
    medians = (ordered[lower] + ordered[upper]) / 2
    return np.where(total > 0, medians, np.nan)


def _first_passing(
    cumulated: NDArray[np.float64],
    drawn: NDArray[np.int64],
    owner: NDArray[np.int64],
    width: int,
    *,
    strict: bool,
) -> NDArray[np.int64]:
    """First token at which the cumulated weight reaches one half, or passes it."""
    passes = np.greater if strict else np.greater_equal
    total = cumulated[:, -1:]
    place = passes(2 * cumulated, total).argmax(1)
    rows = np.arange(len(place))
    before = np.where(place > 0, cumulated[rows, place - 1], 0.0)
    tokens = place[:, None] * width + np.arange(width)
    inside = np.cumsum(drawn[rows[:, None], owner[tokens]], axis=1) + before[:, None]
    first: NDArray[np.int64] = tokens[rows, passes(2 * inside, total).argmax(1)]
    return first
