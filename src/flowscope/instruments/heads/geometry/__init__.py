"""Whether a walk along the attention of a head is irreversible, against two references."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["DIRECTED", "STAGE", "TABLES", "TRAINED"]


TRAINED = Claim(
    name="M1",
    title="Beyond random",
    says="attention is further from equilibrium than with random weights",
    asks="Does a random walk along attention have a direction, so that it differs from the same "
    "walk run backwards? The reference is the same network with random weights, whose nearly "
    "uniform attention has no direction.",
)


DIRECTED = Claim(
    name="M2",
    title="Beyond shuffled",
    says="attention is further from equilibrium than with shuffled keys",
    asks="Is that direction stronger than chance gives for attention of the same sharpness? The "
    "reference is the same attention with the keys shuffled.",
)


_BESIDE = INTERVAL | {"{}_random": "`{}` of the head with random weights"}


def _quantity(name: str, meaning: str, unit: str = "") -> Column:
    """Mean over prompts with its interval, beside the same head with random weights."""
    return Column(name, f"{meaning}, mean over prompts", unit, _BESIDE)


TABLES = {
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


STAGE = Stage(
    name="heads",
    home=__name__,
    measure="measure.geometry",
    judge="judge.irreversibility",
    claims=(TRAINED, DIRECTED),
    settings=("batch", "chain", "damping"),
    tables=TABLES,
)
