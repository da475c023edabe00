"""The reference: blanks filled one after the other, with a record of every pass."""

from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["DECIDES", "STAGE", "TABLES"]

DECIDES = (
    "order", "rate", "block", "temperature", "eos", "batch", "seed", "calibration", "prompts",
)  # fmt: skip
"""Settings that decide what the reference fills in."""

TABLES = {
    "prompts": Table(
        purpose="what the reference makes of each prompt, and when its answer was known",
        keys=("part", "prompt"),
        columns=(
            Column("part", "calibration or test"),
            Column("prompt", "number of the prompt in its part, from 0"),
            Column("blanks", "masked tokens"),
            Column("passes", "passes of the reference"),
            Column("correct", "1 if the answer is the right one; empty where it is not known"),
            Column("known", "first pass in which filling all gives the reference's answer"),
            Column("settled", "first pass from which on filling all always gives it"),
        ),
    ),
    "progress": Table(
        purpose="what is known of the blanks as passes go by, on the fresh prompts",
        keys=("progress",),
        columns=(
            Column("progress", "share of the passes that were made, middle of a tenth"),
            Column("masked", "share of the blanks that are still masked"),
            Column("confidence", "median probability of the leading token of masked blanks"),
            Column("entropy", "median entropy of masked blanks", "nat"),
            Column("mobility", "median mobility (Frobenius norm) of masked blanks"),
            Column("final", "share of masked blanks whose leading token is the final one"),
            Column("answers", "share of the prompts for which filling all gives the answer"),
        ),
    ),
    "map": Table(
        purpose="the law of every blank in every pass, of a few fresh prompts",
        keys=("prompt", "pass", "position"),
        columns=(
            Column("prompt", "number of the fresh prompt, from 0"),
            Column("pass", "pass of the reference, from 1"),
            Column("position", "position of the blank in its prompt, from 0"),
            Column("token", "leading token"),
            Column("filled", "token that the reference fills in at last"),
            Column("first", "probability of the leading token"),
            Column("second", "probability of the next one"),
            Column("entropy", "entropy of the law", "nat"),
        ),
    ),
}
"""Tables of the reference."""

STAGE = Stage(
    name="reference",
    home=__name__,
    measure="measure.reference",
    settings=DECIDES,
    tables=TABLES,
)
"""The stage: fill every prompt, and record every pass."""
