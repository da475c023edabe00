"""How strongly each block reacts to small changes of its state, beside random weights."""

from flowscope.instruments.field.budget import GAINS
from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]

TABLES = {
    "jacobians": Table(
        purpose="how strongly each block reacts to small changes of the tokens of one prompt",
        keys=("layer",),
        optional=True,
        columns=(
            Column("layer", "block, from 1"),
            *GAINS,
            Column("least", "smallest growth rate, −μ₂(−J); an upper bound"),
            Column("sigma_max_twin", "largest gain in the network with random weights"),
            Column("log_norm_twin", "largest growth rate there"),
            Column("mean_gain_twin", "gain of a random direction there"),
            Column("products", "products with J and its transpose that were taken"),
            Column("converged", "whether the residuals are below a thousandth of the values"),
        ),
    ),
}
"""Tables of the Jacobians."""

STAGE = Stage(
    name="jacobians",
    home=__name__,
    measure="measure.jacobians",
    settings=("jacobians", "jacobian_tokens", "products", "seed", "controls"),
    uses=("budget",),
    tables=TABLES,
)
