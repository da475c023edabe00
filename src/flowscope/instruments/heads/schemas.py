"""Tables of the heads: purpose, keys, and the unit and meaning of every column."""

from flowscope.lab.claim import INTERVAL, Column, Table

__all__ = ["DIALS", "HEADS", "PORTRAIT"]

_BESIDE = INTERVAL | {"{}_random": "`{}` of the head with random weights"}


def _quantity(name: str, meaning: str, unit: str = "") -> Column:
    """Mean over prompts with its interval, beside the same head with random weights."""
    return Column(name, f"{meaning}, mean over prompts", unit, _BESIDE)


HEADS = {
    "references": Table(
        purpose="what the heads are compared with, and on how many prompts",
        keys=("reference",),
        columns=(
            Column("reference", "random weights, or keys permuted"),
            Column("prompts", "prompts on which the reference was read"),
            Column("because", "why there is no number; empty where there is one"),
        ),
        optional=True,
    ),
    "geometry": Table(
        purpose="how irreversible each head is",
        keys=("layer", "head"),
        columns=(
            Column("layer", "layer, from 1"),
            Column("head", "attention head, from 0"),
            Column("chain", "kernel of the walk: unmasked, damped or quasi-stationary"),
            _quantity(
                "entropy_production",
                "how irreversible a stationary walk over the tokens is; 0 at equilibrium",
                "nat per step",
            ),
            _quantity("displacement", "how far one step moves the uniform law, in total variation"),
            _quantity("gap", "1 − |λ₂| of the kernel: how fast a walk forgets its start"),
            _quantity("effective_keys", "exp of the entropy of an attention row", "keys"),
            _quantity("top_token", "largest probability of a token in the stationary law"),
            _quantity(
                "survival",
                "probability that a step is not absorbed; of the quasi-stationary chain alone",
            ),
            _quantity("flux_ratio", "size of the flux part of the scores over the metric part"),
            _quantity(
                "exact_share", "share of the antisymmetric part of the scores with a potential"
            ),
            _quantity("negative_share", "share of pairs of tokens with D < 0"),
            Column(
                "entropy_production_permuted",
                "`entropy_production` with the keys permuted",
                "nat per step",
            ),
            Column("steps", "length of the walk that the label asks about: mean tokens"),
            Column("label", "steady state, equilibrium, undecided or refused"),
            Column(
                "steps_to_tell",
                "steps after which a walk can be told from its reversal at the level of the label",
            ),
            Column("because", "why there is no number or no label; empty where there is"),
            Column("status", "ok, or abstained where the head has no number"),
            Column("weight_ratio", "‖antisymmetric‖/‖symmetric‖ part of B = W_QᵀW_K"),
            Column("weight_because", "why there is no `weight_ratio`"),
        ),
    ),
}
"""Tables of the stage that reads the geometry of every head."""

PORTRAIT = {
    "sentence": Table(
        purpose="the tokens of the sentence that the heads are shown on",
        keys=("position",),
        columns=(
            Column("position", "position in the sentence, from 0"),
            Column("token", "the token"),
        ),
    )
}
"""Table of the stage that keeps one sentence for the page."""

DIALS = {
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
