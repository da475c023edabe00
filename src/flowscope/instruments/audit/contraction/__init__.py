"""P3 Contraction: whether attention brings its points closer together, and how it responds."""

from flowscope.instruments.audit.columns import BECAUSE, HEAD, LAYER, STATUS, TWIN
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["CONTRACTION", "STAGE", "TABLES"]


_HEADS = Table(
    purpose="attention entropy by layer and head",
    keys=("layer", "head"),
    columns=(
        LAYER,
        HEAD,
        Column(
            "entropy_share",
            "entropy of an attention row over the largest it could have, mean over rows",
            beside=ENDS,
        ),
        Column("collapsed", "whether the upper end of the interval is below 0.05"),
        Column("random_weights", TWIN),
    ),
)


_CURVATURE = Table(
    purpose="curvature of attention by layer and head",
    keys=("layer", "head"),
    columns=(
        LAYER,
        HEAD,
        Column(
            "kappa",
            "1 − W₁(P_i, P_j)/d(i, j) of two attention rows, median over pairs; above 0 the head "
            "brings points closer",
            beside=ENDS,
        ),
        Column("keys_permuted", "the same with the keys of both rows permuted"),
        Column(
            "effect",
            "κ less κ with keys permuted, mean over the pairs of a prompt, then over prompts; "
            "above 0 the head brings points closer than rows that merely overlap as much; "
            "earlier versions lack it and the next five columns",
            beside=INTERVAL,
            optional=True,
        ),
        Column(
            "joint_low",
            "lower end of intervals of `effect` that cover all heads together at 95 %",
            optional=True,
        ),
        Column(
            "joint_high",
            "upper end of intervals of `effect` that cover all heads together at 95 %",
            optional=True,
        ),
        Column(
            "overlap_correlation",
            "rank correlation over pairs of W₁ and the total variation distance of two rows; "
            "near 1 the curvature says nothing but how far rows overlap",
            optional=True,
        ),
        Column("random_weights", TWIN),
        Column("pairs", "pairs of rows that could be compared"),
        Column("left_out", "pairs of rows that could not"),
        Column("negative_share", "share of pairs with a curvature below 0"),
        Column("pinned_share", "share of pairs whose rows both look at one and the same key"),
        Column("kept_mass", "probability that the rows keep on the keys both see, median of least"),
        BECAUSE,
        STATUS,
    ),
)


_RESPONSE = Table(
    purpose="curvature under other temperatures and key norms",
    keys=("kind", "setting", "layer"),
    columns=(
        Column("kind", "what is swept: temperature or key_norm"),
        Column("setting", "factor on it; 1 is the model as it is"),
        Column("scope", "all layers together, or one layer"),
        Column("layer", "layer; empty where the scope is all"),
        Column("kappa", "curvature of attention, median over pairs and heads", beside=ENDS),
        Column("change", "`kappa` less that of setting 1, within pairs, median", beside=INTERVAL),
        Column("pairs", "pairs of rows and heads that could be compared"),
        Column("prompts", "prompts that were read"),
    ),
)


_EVI = Table(
    purpose="the evolution variational inequality along the output path",
    keys=("step",),
    columns=(
        Column("step", "layer that the step leads into"),
        Column(
            "slack",
            "slack of the inequality over W₂² to the final output, median over tokens; where it is "
            "not negative, some step size satisfies the inequality",
            beside=INTERVAL,
        ),
        Column(
            "progress", "1 − W₂²(after, final)/W₂²(before, final), median over tokens", "", INTERVAL
        ),
        Column("share", "share of tokens whose step satisfies the inequality", beside=INTERVAL),
        Column("share_shuffled", "the same with the layers in shuffled order", beside=INTERVAL),
        Column("share_straight", "the same on the straight line of logits", beside=INTERVAL),
        Column("energy_fell_share", "share of tokens whose KL to the final output fell"),
        Column("kept_mass", "probability on the outcomes that were compared, median"),
        Column("tokens", "tokens that could be read"),
        Column("left_out", "tokens that could not"),
        BECAUSE,
        STATUS,
    ),
)


CONTRACTION = Claim(
    name="P3",
    title="Contraction",
    says="attention brings points together more than rows that merely overlap as much",
    asks="Do two tokens attend to places that are closer together than the tokens themselves, "
    "beyond what the overlap of their attention gives anyway? The reference is the same attention "
    "with the keys shuffled: it overlaps as much, and does not know where the tokens lie.",
)


TABLES = {"heads": _HEADS, "curvature": _CURVATURE, "curvature_response": _RESPONSE, "evi": _EVI}

STAGE = Stage(
    name="contraction",
    home=__name__,
    measure="measure.measure",
    judge="judge.judge",
    uses=("variation",),
    claims=(CONTRACTION,),
    tables=TABLES,
)
