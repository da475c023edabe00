"""The section on rotation."""

import math

from flowscope.instruments.audit.keys import SHADES, tokens_behind
from flowscope.instruments.audit.rotation import ROTATION, figures
from flowscope.report.figure_html import part, shown
from flowscope.report.listings import numbers
from flowscope.report.numerals import count, numeral
from flowscope.report.rotation import CONTROLS, detected
from flowscope.report.source import Source, column, words
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "rotation_section"]


@part(table="rotation", verdicts=(ROTATION.name,))
def rotation_section(source: Source) -> str:
    """The share of the motion that turns, or why it is not known."""
    figures.rotation_rows(source)  # raises where rotation was measured at no layer
    return (
        "<p>Motion down a slope can be written as the gradient of one function, a potential; "
        "motion around a centre cannot. R_norm is the share of the predictable motion that no "
        "potential explains.</p>"
        + shown(source, "rotation", FIGURES["rotation"])
        + numbers(source, "rotation")
    )


def _rotation_caption(source: Source) -> str:
    frame = figures.rotation_rows(source)
    significant, silent = detected(frame), len(source.tables["rotation"]) - len(frame)
    named = (word for word in words(frame, "interval_method") if word)
    methods = ", ".join(dict.fromkeys("BCa" if word == "bca" else word for word in named))
    planted = [v for v in column(frame, "planted_share") if math.isfinite(v)]
    share = f" (a share of {numeral(planted[0])})" if planted else ""
    return (
        "R_norm of the central layers: 0 is pure transport, 1 pure rotation, and the verdict asks "
        "on which side of one half their mean lies. Filled dots: rotation is detected "
        f"(p < .05), in {sum(significant)} of {count(len(significant), 'layer')}. Two checks of "
        "the method: the diamond, a gradient field, should lie near 0, and the triangle, the same "
        f"field with rotation planted in it{share}, near that share. "
        f"{count(silent, 'layer')} abstained. "
        f"{tokens_behind(source, 'rotation')}{source.units(ROTATION.name)}; intervals: 95 %, "
        f"{methods or 'method not recorded'}, resampling prompts."
    )


FIGURES: dict[str, Figure] = {
    "rotation": Figure(
        title="Does the motion rotate?",
        draw=figures.rotation,
        caption=_rotation_caption,
        key=(
            ("disc", "share that rotates; rotation detected"),
            ("hollow blue", "not detected"),
            ("diamond open", CONTROLS["gradient_control"][0]),
            ("triangle", CONTROLS["planted_control"][0]),
            ("rule half", "one half"),
            *SHADES,
        ),
        table="rotation",
        verdicts=(ROTATION.name,),
    ),
}  # fmt: skip
