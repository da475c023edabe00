"""Change of entropy in every block, by two routes, and the flow behind it."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["MEAN_FLOW", "STAGE", "TABLES"]

MEAN_FLOW = Claim(
    name="L2",
    title="Mean flow",
    says="the mean flow explains the entropy change",
    asks="Does the entropy that the mean flow of each block adds follow the change of entropy "
    "between its two layers, better than the mean flow of other blocks does?",
)


def _quantity(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, meaning, unit, INTERVAL)


_SAMPLE = Column("sample", "all: all tokens; types: one occurrence of each token")
_BLOCK = Column("layer", "block, from 1")
_TERMS = (
    _quantity("difference", "change of entropy by nearest neighbours", "nat"),
    _quantity("gaussian", "change of entropy of the Gaussian of the same covariance", "nat"),
    _quantity("flow", "entropy that the mean flow adds, E log |det(I + ∇u)|", "nat"),
    _quantity("noise", "entropy that the rest of the velocity adds, ½ tr(Σ⁻¹ Cov)", "nat"),
    _quantity("rest", "`difference` less `flow` and `noise`", "nat"),
)
TABLES = {
    "rates": Table(
        purpose="change of entropy in each block and its terms, in axes of both its layers",
        keys=("layer", "sample", "rank"),
        columns=(
            _BLOCK,
            _SAMPLE,
            Column("rank", "principal coordinates of both layers together"),
            *_TERMS,
            _quantity(
                "lambda_min",
                "5 % quantile over tokens of the least eigenvalue of −sym ∇u: curvature of the "
                "effective potential; below 0 the flow expands. Directions from one half of the "
                "prompts, values from the other; the lower end is that of one fit to all",
                "1/block",
            ),
            _quantity("lambda_median", "median over tokens of the same", "1/block"),
            _quantity("expanding", "mean number of directions in which the flow expands"),
            _quantity(
                "turning",
                "share of the squared Jacobian that is antisymmetric (rotation), "
                "crossed between halves of the prompts: 0 on average without rotation",
            ),
            _quantity(
                "conditional_share",
                "variance of the velocity at a given state, fitted on other prompts, over all its "
                "variance",
            ),
            Column("explained", "share of squared velocities that the mean flow explains there"),
        ),
        optional=True,
    ),
    "curvature_spectrum": Table(
        purpose="eigenvalues of the mean of −sym ∇u, and of the covariance of what is left",
        keys=("layer", "sample", "number"),
        columns=(
            _BLOCK,
            _SAMPLE,
            Column("number", "of the eigenvalue, the least first"),
            Column("curvature", "eigenvalue of the effective potential", "1/block"),
            Column("conditional_variance", "eigenvalue of the conditional covariance"),
        ),
        optional=True,
    ),
    "turning_layers": Table(
        purpose="layers between which the entropy turns: its rate changes sign with intervals",
        keys=("sample", "route", "first"),
        columns=(
            _SAMPLE,
            Column("route", "difference: between clouds; flow: by the mean flow"),
            Column("first", "last block whose rate has the first sign"),
            Column("last", "first block whose rate has the other sign"),
            Column("kind", "maximum or minimum of the entropy"),
            _quantity("rate_first", "rate in the first of them; joint over blocks", "nat"),
            _quantity("rate_last", "rate in the last of them", "nat"),
            Column("expanding", "mean number of expanding directions in the blocks from first on"),
        ),
        optional=True,
    ),
    "memory": Table(
        purpose="whether a few coordinates, the same at all layers, move as a Markov process",
        keys=("layer",),
        columns=(
            _BLOCK,
            _quantity(
                "lag_correlation", "correlation of what the mean flow leaves with the next block's"
            ),
            Column("ahead", "blocks of the forecast"),
            Column("forecast_error", "relative error of the covariance that many blocks later"),
            Column("persistence_error", "the same if nothing changed"),
        ),
        optional=True,
    ),
    "refinement": Table(
        purpose="diffusion that source 003 reads from squared steps, with blocks in shorter steps",
        keys=("steps",),
        columns=(
            Column("steps", "steps that replace one block"),
            _quantity("diffusivity", "E‖Δx‖² / (2 d Δt) of unit directions"),
            Column("smooth", "what a smooth flow gives: that of one step over the steps"),
        ),
        optional=True,
    ),
    "rate_controls": Table(
        purpose="change of entropy in each block of networks with random weights, and its terms",
        keys=("subject", "layer", "sample"),
        columns=(
            Column("subject", "random twin with its number"),
            _BLOCK,
            _SAMPLE,
            Column("rank", "principal coordinates of both layers together"),
            *_TERMS,
        ),
        optional=True,
    ),
}
"""Tables of the rate."""

STAGE = Stage(
    name="rate",
    home=__name__,
    measure="measure.rate",
    judge="judge.mean_flow_explains",
    claims=(MEAN_FLOW,),
    settings=(
        "batch", "seed", "points", "ranks", "neighbour", "halves", "control_prompts",
        "refinements",
    ),
    tables=TABLES,
    uses=("entropy",),
)  # fmt: skip
