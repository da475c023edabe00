"""Train the arms of every task and seed, a shard each: accuracy, losses, norms of gradients."""

from flowscope.lab.claim import Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES", "TRAINED_WITH"]

TRAINED_WITH = (
    "width", "heads", "blocks", "gamma", "diffusion", "steps", "minibatch", "learning_rate",
    "graphs",
)  # fmt: skip
"""Settings that decide the weights of a network, beside its task, arm and seed."""

_KEYS = (
    Column("task", "name of the task"),
    Column("arm", "name of the arm"),
    Column("seed", "seed of the network"),
)
TABLES = {
    "networks": Table(
        purpose="one row per trained network: accuracy, gradients, and the states after the blocks",
        keys=("task", "arm", "seed"),
        columns=(
            *_KEYS,
            Column("weights", "number of weights"),
            Column("accuracy", "share of test examples whose class is right", "1"),
            Column("chance", "share of the commonest class among the test examples", "1"),
            Column("test_loss", "cross entropy on the test examples", "nats"),
            Column("loss", "cross entropy over the last tenth of the steps", "nats"),
            Column("diverged", "whether a loss was not finite"),
            Column(
                "gradient",
                "norm of the gradient of the weights that all arms have (blocks without norms), "
                "median over the steps after the warm-up",
            ),
            Column("gradient_peak", "its 99 % quantile in units of the median"),
            Column(
                "fidelity", "mean cosine of a token's state after the last block with its start"
            ),
            Column("mean_cosine", "mean cosine of pairs of tokens after the last block"),
            Column("effective_rank", "effective rank of centred directions after the last block"),
        ),
    ),
    "curves": Table(
        purpose="loss and norm of the gradient along training, means over pieces of it",
        keys=("task", "arm", "step"),
        columns=(
            Column("task", "name of the task"),
            Column("arm", "name of the arm"),
            Column("step", "middle of the piece"),
            Column("loss", "mean loss over the piece, mean over seeds", "nats"),
            Column("loss_low", "least over seeds", "nats"),
            Column("loss_high", "largest over seeds", "nats"),
            Column("gradient", "geometric mean of the norm of the gradient, over seeds too"),
            Column("gradient_low", "least over seeds"),
            Column("gradient_high", "largest over seeds"),
        ),
    ),
}
"""Tables of the training."""

STAGE = Stage(
    name="training", home=__name__, measure="measure.training", settings=TRAINED_WITH,
    tables=TABLES,
)  # fmt: skip
