"""The factor by which each block multiplies a difference of two replicas."""

from flowscope.instruments.sync import internal_gap
from flowscope.instruments.sync.columns import BECAUSE, LAYER, STATUS, STEP, G
from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


TABLES = {
    "propagation": Table(
        purpose="how one block multiplies a difference, and through which channel",
        keys=("g", "layer", "step", "band"),
        columns=(
            G,
            LAYER,
            STEP,
            Column("band", "lead or trail: which modes"),
            Column("gain", "factor by which the block multiplies a difference, mean of the band"),
            Column("direct", "part of the gain through the skip connection and the MLP"),
            Column("routing", "part of the gain through the values"),
            Column("query", "part of the gain through the queries"),
            Column("key", "part of the gain through the keys"),
            Column("gain_low", "smallest gain over states; empty for a single state"),
            Column("gain_high", "largest gain over states; empty for a single state"),
            Column("eigenvalue", "leading eigenvalue of the block, at g = 0 and the middle step"),
            Column("residual", "residual of that eigenvalue"),
            Column("n", "modes times states behind the means"),
        ),
        optional=True,
    ),
    "mode_commitment": Table(
        purpose="when each mode was predicted to commit and when it did",
        keys=("layer", "mode", "g"),
        columns=(
            G,
            Column("layer", "layer, from 2"),
            Column("mode", "rank of the mode, from 1"),
            Column("predicted", "first step at which the gain of the mode is 1", "step"),
            Column("measured", "midpoint of a sigmoid through its log energy", "step"),
            STATUS,
            Column("because", "why nothing is measured, or nothing predicted"),
            Column("overlap", "squared inner product with the mode of this rank at g = 0"),
        ),
        optional=True,
    ),
    "speciation": Table(
        purpose="the two wells of the leading mode of a block",
        keys=("layer", "step", "mode"),
        columns=(
            Column("layer", "layer, from 2"),
            STEP,
            Column("mode", "rank of the mode: 1"),
            Column("eta", "gain of the block without the score"),
            Column("m2", "squared half distance of the two wells along the mode"),
            Column("c", "variance around each well"),
            Column("gamma", "share of the score in the response"),
            Column("kappa", "speciation parameter κ; 1 where the wells part"),
            STATUS,
            BECAUSE,
        ),
        optional=True,
    ),
    "assumptions": Table(
        purpose="what the linear theory assumes of a block, measured",
        keys=("equation",),
        columns=(
            Column("equation", "number of the equation in source 004"),
            Column("quantity", "what is measured"),
            Column("median", "its median over layers, steps and states"),
            Column("least", "its smallest value"),
            Column("largest", "its largest value"),
            Column("share", "share of readings in which the assumption holds"),
            Column("n", "number of readings"),
            Column("rule", "when the assumption counts as holding"),
        ),
        optional=True,
    ),
}
"""Tables of the stage that measures the linear response of every block."""


STAGE = Stage(
    name="propagation",
    home=__name__,
    measure="measure.propagation",
    uses=("internal gap",),
    settings=internal_gap.STAGE.settings,
    tables=TABLES,
)
