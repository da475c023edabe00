r"""Entropy production of heads against its nulls, as logarithms of ratios, from arrays alone.

For head $h$ on prompt $p$ and reference $k$ (a permutation of keys, a random twin as sharp) the
number is $x_{kph} = \log(\sigma_{ph} / \sigma_{kph})$. The effect of a prompt under one reference
is the median over heads of $x_{kph}$. Where model and reference are exchangeable, $x$ and $-x$ have
the same law for all heads together, so that this median has mean 0 whatever the law of $\sigma$ is;
the logarithm of a mean over references has not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

__all__ = [
    "FLOOR",
    "Reference",
    "distinct_prompts",
    "log_ratios",
    "prompt_effects",
    "silent_share",
    "twin_effects",
]

Reference = Literal["random weights", "random weights, as sharp", "keys permuted"]

FLOOR = 1e-5
"""Entropy production, in nats per step, below which float32 logits give rounding; less counts as
this much."""

_SAME = 1e-4  # relative; padding in another batch moves a number by rounding only

Values = Float[NDArray[np.float64], "prompts heads"]
References = Float[NDArray[np.float64], "references prompts heads"]


def log_ratios(model: Values, references: References) -> References:
    """Logarithm of the entropy production of each head over that of each reference.

    Examples
    --------
    >>> log_ratios(np.array([[1.0, 0.0]]), np.array([[[0.5, 1e-5]]])).round(3).tolist()
    [[[0.693, 0.0]]]
    """
    own, other = (np.log(np.maximum(values, FLOOR)) for values in (model, references))
    return np.asarray(own - other, np.float64)


def prompt_effects(ratios: References) -> Float[NDArray[np.float64], "references prompts"]:
    """Median over heads of the log ratios of each reference and prompt; NaN without a head."""
    effects = np.full(ratios.shape[:2], np.nan)
    present = np.isfinite(ratios).any(-1)
    if present.any():
        effects[present] = np.nanmedian(ratios[present], axis=-1)
    return effects


def twin_effects(
    arrays: Mapping[str, NDArray[Any]],
) -> Float[NDArray[np.float64], "twins prompts"]:
    """Effect of permuting keys in random twins as sharp: what the text alone gives.

    A text repeats tokens, and attention of random weights treats equal tokens alike. Permuted keys
    do not, so that even random attention is a little below its permuted keys.

    Parameters
    ----------
    arrays
        ``as_sharp`` and ``as_sharp_permuted``, ``[twins, prompts, heads]`` each.
    """
    own, other = (np.asarray(arrays[name]) for name in ("as_sharp", "as_sharp_permuted"))
    parts = [prompt_effects(log_ratios(a, b[None])) for a, b in zip(own, other, strict=True)]
    return np.concatenate(parts)


def silent_share(references: References, tokens: NDArray[np.integer], level: float) -> float:
    r"""Share of heads whose reference cannot be told from its reversal within the text.

    A walk of $n$ steps gives the mean log-odds $n \sigma$ for its true direction; below
    log(1/level) neither the reference nor anything near it has a direction that could be seen.

    Parameters
    ----------
    references
        Entropy production of the reference, nats per step.
    tokens
        Tokens of each prompt.
    level
        Odds of 1/level are asked for.

    Examples
    --------
    >>> silent_share(np.array([[[0.5, 0.001]]]), np.array([128]), 0.05)
    0.5
    """
    odds = references * np.asarray(tokens, np.float64)[None, :, None]
    present = np.isfinite(odds)
    heads = present.any((0, 1))
    if not heads.any():
        return 0.0
    means = np.where(present, odds, 0.0).sum((0, 1))[heads] / present.sum((0, 1))[heads]
    return float(np.mean(means < -math.log(level)))


def distinct_prompts(production: Values, keys: Values) -> NDArray[np.int64]:
    """Numbers of the prompts that equal no earlier one, by two numbers of every head.

    Parameters
    ----------
    production, keys
        Entropy production and effective keys. Flat attention has nearly the same effective keys on
        every prompt, a reversible chain has the same entropy production.

    Examples
    --------
    >>> keys = np.array([[3.0, 2.0], [3.0, 2.0], [4.0, 2.0]])
    >>> distinct_prompts(0.1 * keys, keys)
    array([0, 2])
    """
    first: list[int] = []
    for number in range(len(keys)):
        if not any(_same(production, keys, number, earlier) for earlier in first):
            first.append(number)
    return np.array(first, np.int64)


def _same(production: Values, keys: Values, one: int, other: int) -> bool:
    return np.allclose(keys[one], keys[other], rtol=_SAME, atol=0, equal_nan=True) and np.allclose(
        production[one], production[other], rtol=_SAME, atol=FLOOR * _SAME, equal_nan=True
    )
