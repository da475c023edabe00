"""What the states of the networks say along depth: fidelity, collapse, spectrum, information."""

from flowscope.instruments.field.pde_view.training import TRAINED_WITH
from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES"]

_KEYS = (
    Column("task", "name of the task"),
    Column("arm", "name of the arm"),
    Column("weights", "trained, or random"),
    Column("layer", "block after which the states are read; 0 is before the first"),
)
_OVER = (
    Column("over", "what the interval is over: seeds, or prompts of one network"),
    Column("units", "how many of them"),
)
TABLES = {
    "depth": Table(
        purpose="states of the networks along depth",
        keys=("task", "arm", "weights", "layer"),
        columns=(
            *_KEYS,
            Column("fidelity", "mean cosine of a token's state with its start", "", INTERVAL),
            Column("correlation", "the same with the mean over features taken off", "", INTERVAL),
            Column("mean_cosine", "mean cosine of pairs of tokens", "", INTERVAL),
            Column("effective_rank", "effective rank of centred directions", "", INTERVAL),
            Column(
                "high_frequency",
                "share of the centred energy above half of the highest frequency over positions; "
                "about one half where nothing is smooth",
                "",
                INTERVAL,
            ),
            Column("size", "root mean square of the states", "", INTERVAL),
            *_OVER,
        ),
    ),
    "information": Table(
        purpose="what a probe reads of the input token and of the class along depth",
        keys=("task", "arm", "weights", "layer"),
        columns=(
            *_KEYS,
            Column("token", "gain of the log-loss of the own input token", "nats", INTERVAL),
            Column("token_shuffled", "the same with permuted tokens", "nats"),
            Column("label", "gain of the class, from the mean state", "nats", INTERVAL),
            Column("label_shuffled", "the same with permuted classes", "nats"),
            *_OVER,
        ),
    ),
    "changes": Table(
        purpose="changes along depth, paired within prompts or seeds",
        keys=("task", "arm", "quantity"),
        columns=(
            *_KEYS[:2],
            Column("quantity", "what changes, and between which layers"),
            Column("change", "later less earlier", "", INTERVAL),
            *_OVER,
        ),
    ),
}
"""Tables of the states along depth."""

STAGE = Stage(
    name="depth", home=__name__, measure="measure.depth", uses=("training",), tables=TABLES,
    settings=(*TRAINED_WITH, "informed", "places", "labelled", "prompts", "seed"),
)  # fmt: skip
