"""Which share of the blanks a window certifies, as passes go by."""

from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look, spread
from flowscope.report.drawing.traces import curve, line
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "coverage", "window_section"]

_RULES = ("published", "corrected", "path")
_FILLED = Look("blanks that are filled", theme.MUTED, "dot")


def _series(source: Source) -> list[tuple[float, str, Look]]:
    frame = source.table("coverage", "W", "rule", "progress", "certified", "filled")
    widths = sorted(set(column(frame, "W")), reverse=True)
    pairs = [(width, rule) for width in widths for rule in _RULES]
    dashes = ("solid", "dash", "dot")
    return [
        (
            width,
            rule,
            Look(f"{rule}, W = {width:g}", spread(k // len(_RULES), len(widths)), dashes[k % 3]),
        )
        for k, (width, rule) in enumerate(pairs)
    ]


def coverage(source: Source) -> Picture:
    """Certified blanks by progress, a curve for each rule and width."""
    frame = source.table("coverage")
    series = _series(source)
    if not series:
        raise Missing("the table “coverage” names no window")
    traces = []
    pairs = list(zip(column(frame, "W"), words(frame, "rule"), strict=True))
    for width, rule, look in series:
        rows = frame[[pair == (width, rule) for pair in pairs]]
        hover = ("{progress:%} of the passes", f"{look.label}: {{certified:%}} certified")
        traces += line("progress", rows, ("certified",), look, *hover)
    first = frame[[pair == pairs[0] for pair in pairs]]
    traces.append(curve(column(first, "progress"), column(first, "filled"), _FILLED))
    x = theme.axis("share of the reference's passes", tickformat=".0%", range=[0, 1])
    y = theme.axis("share of the blanks", tickformat=".0%", range=[0, 1.02])
    return {"data": traces, "layout": theme.layout(x, y, 320)}


def _caption(source: Source) -> str:
    return (
        "Share of all blanks that a window of W passes has certified so far. A certificate speaks "
        "of the passes in its window; how often the token changes later is in the table, beside "
        "the same number for equally many blanks chosen by confidence alone."
    )


def window_section(source: Source) -> str:
    """Coverage by pass, and the table of the rules."""
    return (
        "<p>Source 000 calls a token stable when its law has moved little over the last W passes. "
        "What has moved little so far may still move: no rule on the past is a promise about the "
        "passes that are left out.</p>"
        + shown(source, "decode_coverage", FIGURES["decode_coverage"])
        + numbers(source, "window")
    )


def _key(source: Source) -> list[Look]:
    return [*(look for _, _, look in _series(source)), _FILLED]


FIGURES: dict[str, Figure] = {
    "decode_coverage": Figure(
        title="What a window certifies", draw=coverage, caption=_caption, key=_key
    )
}
