"""Stretches of depth: where each lies, what the gate decided, and their shading in a figure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowscope.report import theme
from flowscope.report.drawing.traces import stretch
from flowscope.report.source import Source, column, words

__all__ = ["SHADES", "Span", "shading", "spans", "tokens_behind"]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of depth, by its first and last layer, and what the gate said of it."""

    first: int
    last: int
    kind: str
    passes: bool
    because: str

    @property
    def outcome(self) -> str:
        """Whether the stretch passes the gate, in a word."""
        return "passes" if self.passes else "abstained"


def spans(source: Source) -> list[Span]:
    """Stretches of depth in order: from the table of segments, else from the one of layers."""
    frame = source.rows("segments", "first_layer", "last_layer")
    if frame.empty:
        return _spans_of_layers(source)
    rows = zip(
        column(frame, "first_layer"),
        column(frame, "last_layer"),
        words(frame, "kind"),
        words(frame, "decision"),
        words(frame, "because"),
        strict=True,
    )
    stretches = [
        Span(first=int(a), last=int(b), kind=kind, passes=decision == "holds", because=because)
        for a, b, kind, decision, because in rows
        if not (math.isnan(a) or math.isnan(b))
    ]
    return sorted(stretches, key=lambda span: span.first)


def _spans_of_layers(source: Source) -> list[Span]:
    frame = source.rows("layers", "layer", "segment", "status")
    layers, segments = column(frame, "layer"), column(frame, "segment")
    kinds, states = words(frame, "segment_kind"), words(frame, "status")
    stretches = []
    for segment in sorted({number for number in segments if not math.isnan(number)}):
        rows = [k for k, number in enumerate(segments) if number == segment and layers[k] > 0]
        if rows:
            stretches.append(
                Span(
                    first=int(min(layers[k] for k in rows)),
                    last=int(max(layers[k] for k in rows)),
                    kind=kinds[rows[0]],
                    passes=all(states[k] == "ok" for k in rows),
                    because="",
                )
            )
    return sorted(stretches, key=lambda span: span.first)


def shading(stretches: Sequence[Span]) -> list[dict[str, Any]]:
    """Rectangles behind a figure along depth: passing stretches tinted, abstained ones grey."""
    return [
        stretch(
            span.first - 0.5,
            span.last + 0.5,
            fillcolor=theme.PASSING if span.passes else theme.ABSTAINED,
            line={"width": 1, "color": "#ffffff"},
        )
        for span in stretches
    ]


SHADES = (("passing", "segment that passes the gate"), ("abstained", "abstained"))
"""Entries of a key for the shading of segments."""


def tokens_behind(source: Source, table: str) -> str:
    """How many tokens stand behind a table, in words, to begin a list."""
    known = [v for v in column(source.rows(table, "tokens"), "tokens") if math.isfinite(v)]
    return f"{max(known):.0f} tokens, " if known else ""
