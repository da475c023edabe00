"""The loss at each setting of a dial, as a figure and as a listing."""

import math
from collections.abc import Sequence

import pandas as pd

from flowscope.instruments.heads.geometry.figures import with_bounds
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.notes import notes
from flowscope.report.drawing.traces import ends, level, points, upright, whiskers
from flowscope.report.escaping import plotly_text, shortened
from flowscope.report.figure_html import part, shown
from flowscope.report.listings import listing
from flowscope.report.numerals import count, numeral
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = [
    "MOST_DIALS",
    "SIDES",
    "UNTURNED",
    "dial_axis",
    "dial_labels",
    "dial_listing",
    "dial_place",
    "dial_rows",
    "dials",
    "dials_section",
]


UNTURNED = ("none", "")
"""What the table ``dials`` calls the unchanged model."""


MOST_DIALS = 48
"""Settings that one figure of the dials holds."""


_SPREAD = 30.0


_SETTING = 13


_BEND = 0.01  # nats: within it the axis of the dials is straight, beyond it logarithmic


def dial_rows(source: Source) -> pd.DataFrame:
    """Settings of the dials as a figure shows them: those of the whole model first in each dial."""
    frame = source.table("dials", "dial", "setting", "change")
    names, changes = words(frame, "dial"), column(frame, "change")
    order = {name: k for k, name in enumerate(dict.fromkeys(names))}
    places = zip(words(frame, "layers"), words(frame, "heads"), strict=True)
    parts = [all(place in ("all", "") for place in pair) for pair in places]
    turned = [name not in UNTURNED for name in names]
    known = [k for k, change in enumerate(changes) if math.isfinite(change) and turned[k]]
    if not known:
        raise Missing("the column change of the table “dials” holds no number")
    kept = sorted(sorted(known, key=lambda k: not parts[k])[:MOST_DIALS])
    return frame.iloc[sorted(kept, key=lambda k: (order[names[k]], not parts[k]))]


def dial_labels(frame: pd.DataFrame) -> list[str]:
    """Dial, setting and place of each row in a few words, shortened; not yet escaped."""
    names = ("dial", "setting", "layers", "heads")
    rows = zip(*(words(frame, name) for name in names), strict=True)
    return [
        f"{shortened(dial, _SETTING)} {shortened(setting.strip(), _SETTING)}{_place(layers, heads)}"
        for dial, setting, layers, heads in rows
    ]


def _place(layers: str, heads: str) -> str:
    """Layer, or layer and head, where the dial was not turned everywhere."""
    if heads not in ("all", ""):
        return f" · head {shortened(layers, 4)}.{shortened(heads, 4)}"
    return f" · layer {shortened(layers, 4)}" if layers not in ("all", "") else ""


def dial_place(change: float, bent: bool) -> float:
    """Place of a change on the axis; with ``bent`` logarithmic beyond ±0.01 nats."""
    return math.asinh(change / _BEND) if bent else change


def dial_axis(frame: pd.DataFrame) -> tuple[bool, list[float]]:
    """Whether the axis of the dials is bent, and the changes that it marks."""
    names = ("change", "change_low", "change_high", "random_change", "random_change_low",
             "random_change_high")  # fmt: skip
    known = [v for name in names for v in column(frame, name) if math.isfinite(v)]
    largest = max(map(abs, known), default=0.0)
    if largest <= _SPREAD * _BEND:
        return False, []
    sizes = [0.1 * 10**k for k in range(8) if 0.1 * 10**k <= 3 * largest]
    below = [-size for size in reversed(sizes) if -size >= 2 * min(known)]
    return True, [*below, 0.0, *sizes]


SIDES = {
    "change": (Look("the dial", theme.BLUE, symbol="circle"), -0.16),
    "random_change": (
        Look("random change of equal size", theme.VERMILION, symbol="diamond-open"),
        0.16,
    ),
}
"""What is drawn of each setting: the column of the table ``dials``, its look, how far aside."""


def dials(source: Source) -> Picture:
    """Change of the loss at each setting, with its interval, beside that of a random change."""
    frame = dial_rows(source)
    bent, marks = dial_axis(frame)
    labels = dial_labels(frame)
    traces = [_points(frame.assign(label=labels), name, bent) for name in SIDES]
    x = theme.axis("change of the loss (nats)", nticks=7, tickangle=0)
    if bent:
        x["tickvals"] = [dial_place(mark, bent) for mark in marks]
        x["ticktext"] = [numeral(mark) for mark in marks]
    y = theme.axis("", showgrid=False, range=[len(labels) - 0.4, -0.6])
    y |= {"tickvals": list(range(len(labels))), "ticktext": list(map(plotly_text, labels))}
    shapes = [upright(0.0), *_rules(words(frame, "dial"))]
    return {"data": traces, "layout": theme.layout(x, y, 90 + 25 * len(labels), shapes=shapes)}


def _points(frame: pd.DataFrame, name: str, bent: bool) -> Picture:
    look, shift = SIDES[name]
    places, low, high = ([dial_place(v, bent) for v in column(frame, end)] for end in ends(name))
    said = notes(frame, "{label!s}", f"{look.label}: {{{name}}} nats {{{name}_low..{name}_high}}",
                 "size of the change of the logits {norm}")  # fmt: skip
    drawn = points(places, [k + shift for k in range(len(places))], look, said, size=9)
    return drawn | {"error_x": whiskers(places, low, high, look.colour, width=0)}


def _rules(names: Sequence[str]) -> list[Picture]:
    """Lines between one dial and the next."""
    at = [k - 0.5 for k in range(1, len(names)) if names[k] != names[k - 1]]
    return [level(y, yref="y", line={"color": theme.RULE, "width": 1}) for y in at]


def dial_listing(frame: pd.DataFrame) -> pd.DataFrame:
    """Settings of the dials as a reader asks of them, one row each."""
    rows = range(len(frame))
    places = zip(words(frame, "layers"), words(frame, "heads"), strict=True)
    shown = {
        "dial": ["unchanged model" if w in UNTURNED else w for w in words(frame, "dial")],
        "set to": [shortened(word, 60) for word in words(frame, "setting")],
        "where": [_where(*pair) for pair in places],
        "perplexity": column(frame, "perplexity"),
        "change of the loss": [with_bounds(frame, "change", k) for k in rows],
        "random change": [with_bounds(frame, "random_change", k) for k in rows],
        "beside random": [_beside(frame, k) for k in rows],
    }
    return pd.DataFrame(shown)


def _where(layers: str, heads: str) -> str:
    parts = [f"layer {layers}"] * (layers not in ("all", ""))
    parts += [f"head {heads}"] * (heads not in ("all", ""))
    return ", ".join(parts) or "everywhere"


def _beside(frame: pd.DataFrame, k: int) -> str:
    """Which of the two costs more, by the interval of their difference within prompts."""
    low, high = (column(frame, name)[k] for name in ("excess_low", "excess_high"))
    if math.isnan(low) or math.isnan(high):
        return "–"
    if low > 0:
        return "costs more"
    return "costs less" if high < 0 else "no significant difference"


def _left_out(source: Source) -> int:
    """Settings of the dials that are not drawn."""
    drawn = len(dial_rows(source))
    return sum(word not in UNTURNED for word in words(source.tables["dials"], "dial")) - drawn


def _dial_caption(source: Source) -> str:
    frame, left = source.tables["dials"], _left_out(source)
    rest = f" {count(left, 'row')} more in tables/dials.csv." if left else ""
    prompts, tokens = (max(column(frame, n), default=0.0) for n in ("prompts", "tokens"))
    bent = " The axis is logarithmic beyond ±0.01." if dial_axis(dial_rows(source))[0] else ""
    return (
        "Change of the loss against the unchanged model on the same texts, with its interval, and "
        "the same for a random change of the logits of equal size. If a dial costs less than its "
        f"random control, the model hardly needs the part that it changes.{bent} "
        f"n = {numeral(prompts, 6)} prompts, {numeral(tokens, 6)} tokens; at most {MOST_DIALS} "
        f"settings are drawn.{rest} “Costs more” and “costs less” are decided by the "
        "interval of the difference of the two within prompts."
    )


@part("dials")
def dials_section(source: Source) -> str:
    """Section of the dials: the figure, and every setting as a listing."""
    turned, whole = dial_rows(source), source.tables["dials"]
    unchanged = whole[[word in UNTURNED for word in words(whole, "dial")]]
    listed = listing(dial_listing(pd.concat([unchanged, turned])), "loss by dial and setting")
    return (
        "<p>A dial scales one part of the attention scores in the running model and leaves the "
        "rest unchanged.</p>"
        + shown(source, "dials", FIGURES["dials"])
        + f'<div class="compact">{listed}</div>'
        + '<p class="source">Drawn from <a href="tables/dials.csv">tables/dials.csv</a>.</p>'
    )


FIGURES: dict[str, Figure] = {
    "dials": Figure(
        title="What the dials do",
        draw=dials,
        caption=_dial_caption,
        key=(
            ("disc", "the dial"),
            ("diamond random", "random change of equal size"),
            ("rule vacuous", "unchanged model"),
        ),
        measurements=("dials",),
    ),
}
"""Figures of the dials by the name of their file."""
