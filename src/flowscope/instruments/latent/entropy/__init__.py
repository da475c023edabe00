"""Entropy, dimension and likeness of the cloud of tokens at every layer."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["RISE_AND_FALL", "STAGE", "TABLES"]

RISE_AND_FALL = Claim(
    name="L1",
    title="Entropy",
    says="the entropy of the tokens rises, then falls",
    asks="Is the cloud of tokens most widely spread at some layer in between, by nearest "
    "neighbours and by covariances, for all tokens and for one occurrence of each token?",
)


def _quantity(name: str, meaning: str, unit: str = "", *, optional: bool = False) -> Column:
    return Column(name, meaning, unit, INTERVAL, optional)


_KEYS = (
    Column("layer", "layer: 0 is the state before the first block"),
    Column("sample", "all: all tokens; types: one occurrence of each token"),
    Column("rank", "principal coordinates of the layer in which entropies are read"),
)
_RATES = "; absent where the stage rate did not run"
TABLES = {
    "layers": Table(
        purpose="entropy, dimension and likeness of the cloud of tokens at each layer",
        keys=("layer", "sample", "rank"),
        columns=(
            *_KEYS,
            _quantity("entropy_knn", "entropy by nearest neighbours in other prompts", "nat"),
            _quantity("entropy_gaussian", "entropy of the Gaussian of the same covariance", "nat"),
            _quantity(
                "negentropy", "the estimate of `entropy_knn` on such Gaussians less that", "nat"
            ),
            _quantity(
                "bias", "error of `entropy_knn` on such Gaussians; interval over draws", "nat"
            ),
            _quantity("dimension_two_nn", "intrinsic dimension by two neighbours, all coordinates"),
            _quantity("dimension_mle", "the same by ten neighbours"),
            _quantity(
                "same_type_neighbours", "share of tokens whose nearest neighbour is the same token"
            ),
            _quantity("mean_cosine", "mean cosine of pairs of tokens"),
            _quantity("effective_rank", "effective rank of centred directions"),
            _quantity(
                "rate_divergence",
                f"entropy that the mean flow of the block adds, in axes of both its layers{_RATES}",
                "nat",
                optional=True,
            ),
            _quantity(
                "rate_difference",
                f"change of `entropy_knn` in the same axes{_RATES}",
                "nat",
                optional=True,
            ),
            _quantity(
                "lambda_min",
                "least curvature of the effective potential of the block, 5 % quantile over "
                f"tokens{_RATES}",
                "1/block",
                optional=True,
            ),
        ),
    ),
    "samples": Table(
        purpose="how many tokens each sample of the cloud has, and how many were left out",
        keys=("sample",),
        columns=(
            Column("sample", "all: all tokens; types: one occurrence of each token"),
            Column("prompts", "prompts with a token in the sample"),
            Column("tokens", "tokens in the sample"),
            Column(
                "massive",
                "chosen tokens of both samples left out because they are longer than 20 times the "
                "median of their prompt",
            ),
            Column("repeated", "the same, because they have the state of another token"),
            Column("copies", "prompts left out because they repeat an earlier one"),
        ),
        optional=True,
    ),
    "entropy_controls": Table(
        purpose="entropy of the cloud in networks with random weights and on shuffled text",
        keys=("subject", "layer", "sample", "rank"),
        columns=(
            Column("subject", "shuffled text, or random twin with its number"),
            *_KEYS,
            _quantity("entropy_knn", "entropy by nearest neighbours in other prompts", "nat"),
            _quantity("entropy_gaussian", "entropy of the Gaussian of the same covariance", "nat"),
        ),
        optional=True,
    ),
    "output_entropy": Table(
        purpose="entropy of the output that the model would give from each layer",
        keys=("layer",),
        columns=(
            Column("layer", "layer: 0 is the state before the first block"),
            _quantity("output_entropy", "Shannon entropy, mean over tokens", "nat"),
        ),
        optional=True,
    ),
}
"""Tables of the cloud."""

STAGE = Stage(
    name="entropy",
    home=__name__,
    measure="measure.entropy",
    judge="judge.rise_and_fall",
    claims=(RISE_AND_FALL,),
    settings=(
        "batch", "seed", "points", "ranks", "neighbour", "halves", "surrogates", "output_tokens",
    ),
    tables=TABLES,
)  # fmt: skip
