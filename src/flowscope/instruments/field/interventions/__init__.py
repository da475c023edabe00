"""What scaling or removing the writes, the residual or the norms of all blocks does."""

from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]

_SUBJECT = Column("subject", "model, or twin: a network of the same kind with random weights")
_CHANGE = Column("change", "what is done to all blocks at once")

TABLES = {
    "interventions": Table(
        purpose="what scaling or removing writes, residual and norms of all blocks costs",
        keys=("subject", "change"),
        optional=True,
        columns=(
            _SUBJECT,
            _CHANGE,
            Column("residual", "scale of the stream at every addition"),
            Column("attention", "scale of the writes of attention"),
            Column("feed_forward", "scale of the writes of the feed-forward part"),
            Column("norm", "keep; frozen: one scale for all tokens of a pass; removed: no scale"),
            Column("loss", "mean loss over prompts", "nats/token", INTERVAL),
            Column("added", "loss less that of the subject as it is", "nats/token", INTERVAL),
            Column(
                "kl",
                "distance of the output from that of the subject as it is (Kullback–Leibler)",
                "nats/token",
                INTERVAL,
            ),
            Column("norm_last", "median length of the tokens after the last block that is finite"),
            Column("cosine_last", "mean cosine of pairs of tokens there"),
            Column("collapsed", "first block after which the mean cosine is above .95; 0 for none"),
            Column("overflow", "first block after which a state is not finite; 0 for none"),
        ),
    ),
    "intervention_depth": Table(
        purpose="the tokens after each block under each change",
        keys=("subject", "change", "layer"),
        optional=True,
        columns=(
            _SUBJECT,
            _CHANGE,
            Column("layer", "block, from 1; those after an overflow are not there"),
            Column("norm", "median length of the tokens, mean over prompts"),
            Column("mean_cosine", "mean cosine of pairs of tokens, mean over prompts"),
            Column("effective_rank", "effective rank of centred directions, mean over prompts"),
        ),
    ),
}
"""Tables of the interventions."""

STAGE = Stage(
    name="interventions",
    home=__name__,
    measure="measure.interventions",
    settings=(
        "interventions",
        "batch",
        "seed",
        "controls",
        "control_prompts",
        "write_scales",
        "residual_scales",
    ),
    tables=TABLES,
)
