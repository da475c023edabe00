"""Attention entropy of every head, beside the same network with random weights."""

from flowscope.report.drawing.grids import HEAD, head_map, head_table
from flowscope.report.source import Source, words
from flowscope.report.theme import Picture

__all__ = ["heads", "heads_difference"]

_COLLAPSED = ("collapsed", "True")


def heads(source: Source, name: str) -> Picture:
    """Heat map of ``entropy_share`` or ``random_weights`` over layers and heads."""
    frame = head_table(source, "heads", name)
    if name == "random_weights":
        said: tuple[str, ...] = (HEAD, "random weights: {value:%} of the largest entropy")
        return head_map(frame, *said, limits=(0, 1), tickformat=".0%")
    states = ["collapsed" if word == "True" else "" for word in words(frame, "collapsed")]
    said = (HEAD, "{value:%} of the largest entropy", "?interval {low..high}", "{state!s}")
    frame = frame.assign(state=states)
    return head_map(frame, *said, limits=(0, 1), crossed=_COLLAPSED, tickformat=".0%")


def heads_difference(source: Source) -> Picture:
    """Heat map of ``entropy_share`` less ``random_weights``: what training changed."""
    frame = head_table(source, "heads", "entropy_share", less="random_weights")
    said = "share of the largest entropy, less that of random weights: {value}"
    return head_map(frame, HEAD, said, crossed=_COLLAPSED, tickformat=".0%")
