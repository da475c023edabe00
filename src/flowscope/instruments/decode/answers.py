"""Whether a filled sequence has the answer of the reference, and the right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.models.infilling.templates import Template

__all__ = ["Checker", "closed", "correct_answers", "same_answers"]

Checker = Callable[[list[int]], Any]
"""What of a filled sequence counts as its answer: a value that is compared with ==."""

Ids = NDArray[np.int64]


def closed(ids: NDArray[Any], blank: NDArray[np.bool_], eos: int | None) -> NDArray[Any]:
    """Tokens with the end token at every blank behind the first end token: nobody reads on there.

    Examples
    --------
    >>> closed(np.array([4, 5, 1, 7]), np.array([False, True, True, True]), eos=1).tolist()
    [4, 5, 1, 1]
    """
    if eos is None:
        return ids
    ended = np.logical_or.accumulate((ids == eos) & blank, axis=-1)
    return np.where(ended & blank, eos, ids)


def same_answers(
    ids: Ids,
    reference: Ids,
    templates: Sequence[Template],
    checker: Checker | None,
    eos: int | None = None,
) -> NDArray[np.bool_]:
    """Whether each filled sequence has the answer of the reference.

    Parameters
    ----------
    ids, reference
        ``[rows, positions]``.
    templates
        What was filled in each row: without a checker, tokens of their regions are compared.
    checker
        What counts as the answer.
    eos
        Token that ends an answer: what stands behind it is not compared, nor shown to the checker.
    """
    ids, reference = (_ended(tokens, templates, eos) for tokens in (ids, reference))
    if checker is None:
        pairs = zip(ids, reference, templates, strict=True)
        return np.array([bool((a == b)[: len(t)][t.region].all()) for a, b, t in pairs], bool)
    return np.array(
        [
            _answer(checker, a, t) == _answer(checker, b, t)
            for a, b, t in zip(ids, reference, templates, strict=True)
        ],
        bool,
    )


def correct_answers(
    ids: Ids, templates: Sequence[Template], checker: Checker | None, eos: int | None = None
) -> NDArray[np.float64]:
    """1 where the answer is the right one, 0 where it is not, NaN where the truth is not known."""
    known = np.array([template.truth.size > 0 for template in templates])
    right = np.full(len(templates), np.nan)
    if known.any():
        some = [template for template in templates if template.truth.size]
        truth = np.zeros((len(some), ids.shape[1]), np.int64)
        for row, template in enumerate(some):
            shown = np.where(template.blank, template.truth, template.ids)
            truth[row, : len(template)] = shown
        right[known] = same_answers(ids[known], truth, some, checker, eos)
    return right


def _ended(ids: Ids, templates: Sequence[Template], eos: int | None) -> Ids:
    if eos is None:
        return ids
    blank = np.zeros(ids.shape, bool)
    for row, template in enumerate(templates):
        blank[row, : len(template)] = template.blank
    return closed(ids, blank, eos)


def _answer(checker: Checker, ids: Ids, template: Template) -> Any:
    try:
        return checker(ids[: len(template)].tolist())
    except Exception as error:  # a function of the caller raises whatever it meets
        raise InvalidInputError(
            f"The checker failed on a filled sequence: {type(error).__name__}: {error}. It must "
            "take a list of token ids and return a value for every one."
        ) from error
