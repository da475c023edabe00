"""The section on rotation."""

from flowscope.instruments.audit.rotation import ROTATION, TRANSPORT, figures
from flowscope.instruments.audit.spans import SHADES, tokens_behind
from flowscope.report.figure_html import part, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, percent
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "rotation_section"]

_VERDICTS = (TRANSPORT.name, ROTATION.name)


@part(table="rotation", verdicts=_VERDICTS)
def rotation_section(source: Source) -> str:
    """The share of the motion that turns, or why it is not known."""
    figures.rotation_rows(source)  # raises where rotation was measured at no layer
    return (
        "<p>Motion down a slope can be written as the gradient of one function, a potential; "
        "motion around a centre cannot. Fitted gradients and fields represent a part of the "
        "motion; the rest is noise, or finer than they can show. R_norm is the share of the "
        "represented part that no potential explains. Of all motion, at least what is seen to "
        "rotate does, and at most what is not seen to be a gradient.</p>"
        + shown(source, "rotation", FIGURES["rotation"])
        + numbers(source, "rotation")
    )


def _rotation_caption(source: Source) -> str:
    frame = figures.rotation_rows(source)
    filled, silent = figures.detected(frame), len(source.tables["rotation"]) - len(frame)
    seen = column(frame, "represented")
    return (
        "Above: R_norm of the central layers, 0 for a pure gradient and 1 for a pure rotation. "
        "Green: nine gradient fields on the same states, with the energy and the noise of the "
        "motion; whatever they show is an error of the method, and only what lies above counts as "
        "rotation. Filled dots: more rotation than in gradients (p at most .05, adjusted for all "
        f"layers), in {sum(filled)} of {count(len(filled), 'layer')}; a layer of whose motion less "
        "than 5 % is represented is not tested. Below: the share of all "
        "motion that rotates lies between the blue dot and the orange triangle; the claim asks on "
        "which side of one half. Fitted gradients and fields represent "
        f"{percent(min(seen))} to {percent(max(seen))} of the motion, by layer. "
        f"{count(silent, 'layer')} abstained. "
        f"{tokens_behind(source, 'rotation')}{source.units(TRANSPORT.name)}; intervals: 95 %, "
        "t over prompts."
    )


FIGURES: dict[str, Figure] = {
    "rotation": Figure(
        title="Does the motion rotate?",
        draw=figures.rotation,
        caption=_rotation_caption,
        key=(
            ("disc", "R_norm, more than gradients; below, least share that rotates"),
            ("hollow blue", "R_norm, not shown to be more, or not tested"),
            figures.GRADIENTS,
            ("triangle", "largest share that may rotate"),
            ("rule half", "one half"),
            *SHADES,
        ),
        table="rotation",
        verdicts=_VERDICTS,
    ),
}  # fmt: skip
