"""The largest learning rate at which each arm trains, by halving a grid: three runs an arm."""

from flowscope.instruments.field.pde_view.training import TRAINED_WITH
from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["GRID", "STAGE", "TABLES"]

GRID = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
"""Learning rates, of which three runs find the largest that trains."""

_ARM = Column("arm", "name of the arm")
TABLES = {
    "rates": Table(
        purpose="largest learning rate at which each arm trains, one task and one seed",
        keys=("arm",),
        columns=(
            _ARM,
            Column("task", "name of the task"),
            Column("seed", "seed of the network"),
            Column("steps", "steps of each run"),
            Column("largest", "largest rate of the grid at which it trains; empty if none"),
            Column("next", "next larger rate of the grid, at which it does not; empty if none"),
        ),
    ),
    "rate_runs": Table(
        purpose="the runs behind the largest learning rates",
        keys=("arm", "rate"),
        columns=(
            _ARM,
            Column("rate", "learning rate at its highest"),
            Column("loss", "mean loss over the last tenth of the steps", "nats"),
            Column("known", "loss of the class frequencies", "nats"),
            Column("finite", "whether every loss was finite"),
            Column("trains", "whether every loss was finite and the last ones .05 below `known`"),
        ),
    ),
}
"""Tables of the learning rates."""

STAGE = Stage(
    name="rates", home=__name__, measure="measure.rates", tables=TABLES,
    settings=(*TRAINED_WITH, "rate_steps"),
)  # fmt: skip
