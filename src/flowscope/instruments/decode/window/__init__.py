"""What a window of passes certifies, and how often the certified token changes afterwards."""

from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]

TABLES = {
    "window": Table(
        purpose="coverage of the late-window certificate and later flips, on the fresh prompts",
        keys=("W", "rule"),
        columns=(
            Column("W", "passes in a window (steps between laws)"),
            Column("rule", "published, corrected, path; published-cap and published-cap-tempered"),
            Column("blanks", "blanks of all fresh prompts"),
            Column("seen", "blanks that are masked for a whole window at least once"),
            Column("coverage", "share of the blanks that pass at least once", "", INTERVAL),
            Column("steps", "share of windows that pass"),
            Column("inside_flips", "share of passing windows with two leading tokens"),
            Column(
                "later_flips",
                "share of certified blanks whose final token is another than at their first pass",
                "",
                INTERVAL,
            ),
            Column(
                "confident_flips",
                "the same for equally many blanks at the same passes, the most confident ones",
            ),
        ),
    ),
    "coverage": Table(
        purpose="share of the blanks that are certified, by progress",
        keys=("W", "rule", "progress"),
        columns=(
            Column("W", "passes in a window"),
            Column("rule", "the rule"),
            Column("progress", "share of the reference's passes that were made, end of a tenth"),
            Column("certified", "share of all blanks certified so far"),
            Column("filled", "share of all blanks filled so far"),
        ),
    ),
}
"""Tables of the window."""

STAGE = Stage(
    name="window",
    home=__name__,
    measure="measure.window",
    tables=TABLES,
    uses=("reference",),
)
"""The stage: apply the window rules to the record of the reference."""
