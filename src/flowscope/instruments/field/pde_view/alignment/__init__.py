"""How alike the paths of simulators are to the transformer's, beside paths that know nothing.

A simulator is either trained on the task, as in 001, and then starts from an embedding of its own;
or it is *distilled*: it starts where the transformer starts and is trained to follow its states.
"""

from flowscope.instruments.field.pde_view.training import TRAINED_WITH
from flowscope.lab.claim import INTERVAL, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["NULLS", "STAGE", "TABLES"]

NULLS = {
    "persistence": "standing still at the transformer's start",
    "straight line": "the straight line between the transformer's ends",
    "random": "the simulator with random weights, from the transformer's start",
    "another seed": "the transformer of another seed",
    "simulator, another seed": "the simulator of another seed, trained on the task",
}
"""Paths that know nothing of the blocks of the transformer, or nothing of its coordinates."""

_TASK = Column("task", "name of the task")
_PATH = Column("path", "an arm that was trained on the task, a distilled one, or a null")
_OVER = (
    Column("over", "what the interval is over: seeds, or prompts of one network"),
    Column("units", "how many of them"),
)
_METRICS = (
    Column("mse", "squared error in units of the transformer's mean square", "", INTERVAL),
    Column("cosine", "mean cosine of the states of a token", "", INTERVAL),
    Column("spectral", "cosine of the amplitude spectra over positions", "", INTERVAL),
    Column("cka", "linear centred kernel alignment of the tokens", "", INTERVAL),
    Column("skill", "1 − squared error over that of standing still", "", INTERVAL),
    *_OVER,
)
TABLES = {
    "alignment": Table(
        purpose="paths beside the transformer's, means over the layers after the first",
        keys=("task", "path"),
        columns=(_TASK, _PATH, *_METRICS),
    ),
    "alignment_layers": Table(
        purpose="paths beside the transformer's, layer by layer",
        keys=("task", "path", "layer"),
        columns=(_TASK, _PATH, Column("layer", "block after which the states are read"), *_METRICS),
    ),
    "alignment_seeds": Table(
        purpose="paths beside the transformer's, seed by seed, means over layers and prompts",
        keys=("task", "path", "seed"),
        columns=(
            _TASK,
            _PATH,
            Column("seed", "seed of the transformer"),
            *(Column(column.name, column.meaning) for column in _METRICS[:-2]),
        ),
    ),
    "attention": Table(
        purpose="rows of attention beside the transformer's, means over blocks and rows",
        keys=("task", "path"),
        columns=(
            _TASK,
            Column("path", "whose attention; uniform attends to all tokens alike"),
            Column("kl", "KL of the means over heads, transformer against path", "nats", INTERVAL),
            Column("kl_matched", "mean KL of heads, paired so that it is least", "nats", INTERVAL),
            Column("cosine", "cosine of the rows of the means over heads", "", INTERVAL),
            *_OVER,
        ),
    ),
    "distilled": Table(
        purpose="loss of the distilled simulators at the end of their training",
        keys=("task", "student", "seed"),
        columns=(
            _TASK,
            Column("student", "name of the arm"),
            Column("seed", "seed of the transformer and of the student"),
            Column(
                "loss",
                "squared error in units of the transformer's mean square, mean over layers and "
                "the last tenth of the steps",
            ),
        ),
    ),
}
"""Tables of the alignment."""

STAGE = Stage(
    name="alignment", home=__name__, measure="measure.alignment", uses=("training",),
    settings=(*TRAINED_WITH, "distillation_steps"), tables=TABLES,
)  # fmt: skip
