"""The models of the study: two tuned children, their average, a turned twin, another seed."""

from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES", "TUNED_WITH"]

TUNED_WITH = ("steps", "minibatch", "learning_rate", "seed")
"""Settings that decide the weights of a child, beside its model and its texts."""

TABLES = {
    "members": Table(
        purpose="one row per model of the study: what it is and what made it",
        keys=("member",),
        columns=(
            Column("member", "name of the model"),
            Column("made", "what made it"),
            Column("texts", "texts that it was tuned on"),
            Column("steps", "steps of tuning"),
            Column(
                "loss_start", "loss on its texts, mean over the first tenth of the steps", "nat"
            ),
            Column("loss_end", "the same over the last tenth", "nat"),
            Column("moved", "norm of the change of its weights over the norm of the weights"),
        ),
    ),
}
"""Tables of the members."""

STAGE = Stage(
    name="members", home=__name__, measure="measure.members", settings=TUNED_WITH, tables=TABLES
)
"""Tune every child, a shard each."""
