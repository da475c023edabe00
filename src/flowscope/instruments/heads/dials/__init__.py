"""What the parts of the attention scores are worth: the loss with each of them scaled."""

from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]


TABLES = {
    "dials": Table(
        purpose="the loss with one part of the scores turned up or down",
        keys=("dial", "setting"),
        columns=(
            Column("dial", "part of the scores that is changed; none is the model as it is"),
            Column("setting", "where the dial is turned to"),
            Column("layers", "layers that are changed"),
            Column("heads", "heads that are changed"),
            Column("loss", "mean loss per token that is named", "nat"),
            Column("perplexity", "exp of the loss"),
            Column("change", "loss less that of the model as it is", "nat", INTERVAL),
            Column(
                "random_change",
                "the same under random changes of the scores of the same norm",
                "nat",
                INTERVAL,
            ),
            Column("excess", "`change` less `random_change`", "nat", INTERVAL),
            Column("norm", "norm of the change of a row of scores, root mean square", "logit"),
            Column(
                "total_variation",
                "total variation distance ½Σ|P′ − P| of the attention rows with and without the "
                "change, mean over rows; it does not compare outputs",
            ),
            Column("random_norm", "`norm` of the random changes", "logit"),
            Column("random_total_variation", "`total_variation` of the random changes"),
            Column("tokens", "tokens that are named"),
            Column("prompts", "prompts that were read"),
            Column("because", "why the model cannot take this dial"),
        ),
    )
}
"""Table of the stage that turns the dials."""


STAGE = Stage(
    name="dials",
    home=__name__,
    measure="measure.turned_dials",
    tables=TABLES,
)
