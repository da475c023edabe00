"""Whether the states converge when every block is made in shorter steps, and how far they are."""

from flowscope.instruments.field.pde_view.training import TRAINED_WITH
from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["FINEST", "STAGE", "TABLES"]

FINEST = 16
"""Short steps in a block of the finest path."""

_OVER = (
    Column("over", "what the interval is over: seeds, or prompts of one network"),
    Column("units", "how many of them"),
)
TABLES = {
    "refinement": Table(
        purpose="last states when every block is made in n steps of 1/n",
        keys=("task", "arm", "n"),
        columns=(
            Column("task", "name of the task"),
            Column("arm", "name of the arm"),
            Column("n", "steps that replace a block; 1 is the network"),
            Column(
                "change",
                "distance of the last states with n and 2n steps, in units of the way from the "
                "first to the last state of the network; empty at the largest n",
                "",
                INTERVAL,
            ),
            Column(
                "distance",
                f"distance of the last states with n and {FINEST} steps, in the same units",
                "",
                INTERVAL,
            ),
            Column(
                "spectral",
                f"spectral similarity of the last states with n and {FINEST} steps: cosine of "
                "their amplitudes over positions",
                "1",
                INTERVAL,
            ),
            Column("accuracy", "share of the read examples whose class is right", "1", INTERVAL),
            *_OVER,
        ),
    ),
    "orders": Table(
        purpose="how fast the change by halved steps falls",
        keys=("task", "arm"),
        columns=(
            Column("task", "name of the task"),
            Column("arm", "name of the arm"),
            Column("slope", "slope of log change over log n; −1 is first order", "", INTERVAL),
            *_OVER,
        ),
    ),
}
"""Tables of the refinement."""

STAGE = Stage(
    name="refinement", home=__name__, measure="measure.refinement", uses=("training",),
    settings=(*TRAINED_WITH, "prompts", "seed"), tables=TABLES,
)  # fmt: skip
