"""What every head does on one sentence."""

from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


TABLES = {
    "sentence": Table(
        purpose="the tokens of the sentence that the heads are shown on",
        keys=("position",),
        columns=(
            Column("position", "position in the sentence, from 0"),
            Column("token", "the token"),
        ),
    )
}
"""Table of the stage that keeps one sentence for the page."""


STAGE = Stage(
    name="portrait",
    home=__name__,
    measure="measure.sentence_portrait",
    tables=TABLES,
)
