"""Labels of heads in words: how many there are, and how many of them may be wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowscope.report.numerals import count, numeral

__all__ = ["labels_in_words"]

_OPEN = ("undecided", "refused")


def labels_in_words(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Sentences on the labels of a run, with the error of the family.

    Parameters
    ----------
    rows
        Rows of the table ``labels``.

    Examples
    --------
    >>> print(labels_in_words([
    ...     {"label": "steady state", "heads": 90, "expected_wrong": 2.5, "heads_joint": 80,
    ...      "any_wrong_joint": 0.05},
    ...     {"label": "undecided", "heads": 10, "expected_wrong": 0.0, "heads_joint": 20,
    ...      "any_wrong_joint": 0.0}]))
    100 heads: 90 steady state, 10 undecided; by chance at most 2.5 of these labels are wrong, on \
average. All heads together: 80 steady state, 20 undecided; any of these labels is wrong in at \
most 5 % of runs.
    """
    heads = sum(int(row["heads"]) for row in rows)
    alone = _counts(rows, "heads")
    decided = [row for row in rows if row["label"] not in _OPEN]
    if not decided:
        return f"{count(heads, 'head')}: {alone}."
    wrong = max(float(row["expected_wrong"]) for row in decided)
    error = max(float(row["any_wrong_joint"]) for row in decided)
    return (
        f"{count(heads, 'head')}: {alone}; by chance at most {numeral(wrong, 2)} of these labels "
        f"are wrong, on average. All heads together: {_counts(rows, 'heads_joint')}; any of these "
        f"labels is wrong in at most {100 * error:.0f} % of runs."
    )


def _counts(rows: Sequence[Mapping[Any, Any]], name: str) -> str:
    return ", ".join(f"{int(row[name])} {row['label']}" for row in rows if int(row[name]))
