"""Settings of the reading of the cloud of tokens."""

from flowscope.lab.config import MOST_INPUTS, ReadingConfig, setting

__all__ = ["LatentConfig"]


class LatentConfig(ReadingConfig):
    """Measure the cloud of tokens at every layer: entropy, dimension, flow and clustering.

    A layer is read as a cloud of unit directions, one per token. The table says how widely the
    cloud is spread (two estimators of entropy, on all tokens and on one occurrence of each token),
    how its entropy changes by the mean flow of each block, and whether attention moves tokens as
    particles on a sphere. Writes a run folder with tables, the verdicts L1 to L3 and report.html.
    """

    prompts: int = setting(32, "Number of prompts", option=True, ge=1, le=MOST_INPUTS)
    batch: int = setting(4, "Prompts in one pass through the model", ge=1)
    points: int = setting(
        1500, "Tokens in each sample of the cloud, at most", option=True, ge=50, le=20_000
    )
    ranks: tuple[int, ...] = setting(
        (8, 16), "Principal coordinates in which entropies are read; verdicts read the first"
    )
    neighbour: int = setting(3, "Neighbour whose distance the entropy reads", ge=1, le=10)
    halves: int = setting(
        48, "Halves of the prompts behind each interval of the cloud", ge=8, le=1000
    )
    surrogates: int = setting(
        3, "Gaussian samples from which the bias of the entropy is taken", ge=1, le=100
    )
    twins: int = setting(2, "Networks with random weights beside the model", ge=1, le=64)
    output_tokens: int = setting(
        192, "Tokens at which the entropy of the output is read at every layer", ge=8, le=100_000
    )
    refinements: tuple[int, ...] = setting(
        (1, 2, 4), "Steps that replace one block where 003's diffusion is shown"
    )
