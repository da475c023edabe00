"""Whether a walk along the attention of a head is irreversible, against chains as sharp."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ONE_WAY", "SHARPNESS", "STAGE", "TABLES"]


SHARPNESS = Claim(
    name="M1",
    title="Beyond sharpness",
    says="attention is more directed than random attention that is as sharp",
    asks="Does a random walk along attention have a direction, so that it differs from the same "
    "walk run backwards, more than sharpness alone gives it? The reference is the same network "
    "with random weights, its logits scaled until each head attends to as many keys.",
)


ONE_WAY = Claim(
    name="M2",
    title="Unreturned looks",
    says="a token that is looked at looks back less than chance",
    asks="Are the looks of tokens at each other less mutual than chance? The reference is the same "
    "attention with the keys shuffled, each token's weight on itself kept. Below it, looks are "
    "mutual.",
)


_BESIDE = INTERVAL | {"{}_random": "`{}` of the head with random weights"}


def _quantity(name: str, meaning: str, unit: str = "") -> Column:
    """Mean over prompts with its interval, beside the same head with random weights."""
    return Column(name, f"{meaning}, mean over prompts", unit, _BESIDE)


def _ratio(null: str, words: str) -> Column:
    """Log ratio of entropy production to a null, with its intervals and its p-value."""
    return Column(
        f"log_ratio_{null}",
        f"log of the entropy production over that {words}, mean over different prompts",
        "",
        INTERVAL
        | {
            "{}_joint_low": "lower end of the 95 % interval of `{}`, all heads together",
            "{}_joint_high": "upper end of the 95 % interval of `{}`, all heads together",
            "{}_p": "p-value of `{}` = 0, corrected for the number of heads (maximal t)",
        },
    )


TABLES = {
    "references": Table(
        purpose="what the heads are compared with, and on how many prompts",
        keys=("reference",),
        columns=(
            Column(
                "reference",
                "random weights; random weights, as sharp (logits scaled to the effective keys of "
                "the model's head); keys permuted",
            ),
            Column("prompts", "prompts on which the reference was read"),
            Column("repeats", "random twins, or permutations per prompt"),
            Column("because", "why there is no number; empty where there is one"),
        ),
        optional=True,
    ),
    "labels": Table(
        purpose="how many heads bear each label, and how many labels may be wrong",
        keys=("label",),
        columns=(
            Column("label", "steady state, equilibrium, undecided or refused"),
            Column("heads", "heads with this label, each by its own 95 % interval"),
            Column("expected_wrong", "most labels of `heads` that are wrong by chance, on average"),
            Column("heads_joint", "heads with this label by intervals that cover all heads"),
            Column("any_wrong_joint", "probability that any label of `heads_joint` is wrong"),
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
                "entropy_production_joint_low",
                "lower end of the 95 % interval of `entropy_production`, all heads together",
                "nat per step",
            ),
            Column(
                "entropy_production_joint_high",
                "upper end of the 95 % interval of `entropy_production`, all heads together",
                "nat per step",
            ),
            Column(
                "entropy_production_permuted",
                "`entropy_production` with the keys permuted, each token's weight on itself kept",
                "nat per step",
            ),
            _ratio("permuted", "with permuted keys"),
            Column(
                "entropy_production_as_sharp",
                "`entropy_production` of random twins whose head attends to as many keys",
                "nat per step",
            ),
            _ratio("as_sharp", "of random twins whose head attends to as many keys"),
            Column("steps", "length of the walk that the label asks about: mean tokens"),
            Column("label", "steady state, equilibrium, undecided or refused"),
            Column("label_joint", "the same from the intervals that cover all heads together"),
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


STAGE = Stage(
    name="heads",
    home=__name__,
    measure="measure.geometry",
    judge="judge.irreversibility",
    claims=(SHARPNESS, ONE_WAY),
    settings=("batch", "chain", "controls", "damping", "permutations"),
    tables=TABLES,
)
