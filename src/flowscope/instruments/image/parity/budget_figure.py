"""What the steps of both samplers explain of their difference, over time."""

from flowscope.instruments.image.axes import WHEN, image_count, over_time
from flowscope.instruments.image.parity import LIMIT
from flowscope.records import Missing
from flowscope.report import theme
from flowscope.report.drawing.marks import Look
from flowscope.report.drawing.panels import Panel, stacked
from flowscope.report.drawing.traces import ends, level, line
from flowscope.report.figure_html import Caption, part, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import numeral
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure
from flowscope.report.theme import Picture

__all__ = ["FIGURES", "budget_caption", "budget_figure", "budget_section"]

_EXCESS = ends("excess")
_PAIR = Look("ODE against SDE", theme.BLUE, symbol="circle")
_ERRORS = Look("step errors", theme.ORANGE, "dash")


def budget_figure(source: Source) -> Picture:
    """Excess of the difference over the step errors; below, both of them."""
    frame, x, axis = over_time(
        source.table("step_budget", "log_snr", "distance", "noise", *_EXCESS)
    )
    if not known(column(frame, "excess")):
        raise Missing("the table “step_budget” holds no number")
    pairs = zip(column(frame, "distance"), column(frame, "noise"), strict=True)
    apart = frame.assign(apart=[max(distance - noise, 0.0) for distance, noise in pairs])
    texts = (WHEN, "excess: {excess} {excess_low..excess_high}")
    more = ("?smallest that would be seen: {detectable:6}", "?images: {images:6}")
    errors = (WHEN, "step errors: {}")
    return stacked(
        [
            Panel(
                title="excess",
                traces=line(x, frame, _EXCESS, _PAIR, *texts, *more),
                shapes=[level(0.0), level(LIMIT)],
            ),
            Panel(
                title="distance",
                traces=[*line(x, apart, ("apart",), _PAIR, *texts, *more),
                        *line(x, frame, ("budget",), _ERRORS, *errors)],
                axis={"rangemode": "tozero"},
            ),
        ],
        axis,
        230,
    )  # fmt: skip


@part("step_budget")
def budget_section(source: Source) -> str:
    """Part of the section of parity that sets the difference against the step errors."""
    heading = "<h3>Is it more than the error of the steps?</h3>"
    picture = shown(source, "step_budget", FIGURES["image_step_budget"])
    return heading + picture + numbers(source, "step_budget")


def budget_caption(source: Source) -> Caption:
    """Caption of the excess over the step errors."""
    frame = source.table("step_budget", "counted", "detectable")
    judged = [str(word) in ("True", "true", "1", "1.0") for word in frame["counted"]]
    seen = known(column(frame, "detectable"))
    least = f" An excess of {numeral(max(seen))} or more would have been seen." if seen else ""
    return Caption(
        seen="Above: by how much ODE and SDE differ beyond their step errors, with an interval "
        "that covers all judged times together. Below: their total variation with twice the steps "
        "(solid), and what the steps explain: how far either sampler moves when its steps are "
        "doubled (dashed). The distance that noise gives is taken off all of them.",
        null=f"Two samplers of one distribution have an excess of 0 or less.{least}",
        against=f"Against equal samplers: the interval lies above the dotted line, {LIMIT:g}.",
        basis=f"{image_count(frame)}; {sum(judged)} of {len(judged)} times are judged.",
    )


FIGURES: dict[str, Figure] = {
    "image_step_budget": Figure(
        title="Do ODE and SDE differ by more than their step errors?",
        draw=budget_figure,
        caption=budget_caption,
        key=(_PAIR, ("band", "interval over all judged times"), _ERRORS),
        measurements=("step_budget",),
    ),
}
"""Figure of this part by the name of its file."""
