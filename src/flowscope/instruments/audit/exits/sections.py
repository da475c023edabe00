"""The section on the last layers."""

import math

from flowscope.instruments.audit.adequacy import ADEQUACY
from flowscope.instruments.audit.exits import figures
from flowscope.instruments.audit.rotation import TRANSPORT
from flowscope.instruments.audit.spans import tokens_behind
from flowscope.report.figure_html import shown
from flowscope.report.listings import numbers
from flowscope.report.source import Source, column
from flowscope.report.spec import Figure

__all__ = ["FIGURES", "depth_loss_section"]


_MOBILITY_AND_GAIN = "rank correlation of mobility left and gain of the layers after"


def depth_loss_section(source: Source) -> str:
    """What removing the last layers costs, beside the mobility left, or why it is not known."""
    drawn = shown(source, "depth-loss", FIGURES["depth_loss"])
    beside = numbers(source, "visible_loss") if "visible_loss" in source.tables else ""
    return drawn + numbers(source, "depth_loss") + beside


def _depth_loss_caption(source: Source) -> str:
    frame = source.tables["depth_loss"]
    free = figures.free_layers(frame)
    most = max((v for v in column(frame, "removed") if math.isfinite(v)), default=math.nan)
    which = f"The last {free:g}" if free else "None"
    ended = (
        f"{which} of {most:g} layers can be removed (dotted): up to there the upper end of the "
        "interval of the rise is at most a hundredth of a nat. "
        if math.isfinite(free)
        else ""
    )
    hidden = "visible_loss" in source.tables
    named = "hidden tokens" if hidden else "the next token"
    beside = (
        "The table visible_loss has the same at positions whose token the model sees: there the "
        "token to be named stands in the input, and layers look free that are not. "
        if hidden
        else ""
    )
    return (
        f"Mean loss on {named} when the last layers are removed, minus the loss of the whole "
        "model; 0 means that the removed layers were not needed. Where a value exceeds 1 nat, the "
        "axis is linear up to the thin line at 1 and logarithmic above, so that small costs can be "
        "read beside large ones. Below: the mobility ‖J‖ at that layer, which measures how much "
        f"the output could still change. {ended}{beside}"
        f"{tokens_behind(source, 'depth_loss')}"
        f"{source.basis(_MOBILITY_AND_GAIN, ADEQUACY.name)}."
    )


FIGURES: dict[str, Figure] = {
    "depth_loss": Figure(
        title="How much do the last layers contribute?",
        draw=figures.depth_loss,
        caption=_depth_loss_caption,
        key=(
            figures.RISE,
            figures.MOBILITY,
            ("band", "interval"),
            ("rule vacuous", "free up to here"),
        ),
        table="depth_loss",
        verdicts=(ADEQUACY.name, TRANSPORT.name),
    ),
}  # fmt: skip
