"""P0 Smoothness: how far each layer moves the output, and on which layers a flow may be read."""

from flowscope.instruments.audit.columns import (
    FIRST_LAYER,
    LAST_LAYER,
    LAYER,
    MOVED,
    PASS_SETTINGS,
    output,
    share,
)
from flowscope.lab.claim import ENDS, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["STAGE", "TABLES", "VARIATION"]


_LAYERS = Table(
    purpose="every quantity along depth",
    keys=("layer",),
    columns=(
        LAYER,
        output(
            "relative_step",
            "‖Δz‖²/‖z‖² of the step into this layer, z the centred logits (the hidden state where "
            "`space` is hidden)",
        ),
        output("entropy", "entropy of the output distribution read at this layer", "nat"),
        output("p_max", "probability of the top token"),
        output("tail_mass", "probability of all tokens but the top one, 1 − p_max"),
        output("margin", "probability of the top token less that of the second"),
        output("mobility_frobenius", "Frobenius norm of J = diag(p) − ppᵀ"),
        output("mobility_trace", "trace of J, 1 − Σp²"),
        output("oscillation", "largest less smallest change of a logit in the step", "logit"),
        output("total_variation", MOVED),
        output("kl_divergence", "KL(p′‖p) of the outputs after and before the step", "nat"),
        output("first_order", "total variation distance of the step to first order in Δz"),
        share("agreement", "share of tokens whose top token is that of the last layer"),
        share("locked_share", "share of tokens with `mobility_trace` below 0.001"),
        Column("segment", "number of the segment, from 0; −1 at layer 0", optional=True),
        Column("segment_kind", "start (layer 0), segment or jump", optional=True),
        Column("space", "hidden, for a model without an output over outcomes", optional=True),
        Column("status", "ok, or abstained where the segment did not pass its gate"),
    ),
)


_SEGMENTS = Table(
    purpose="the segments of the depth and their gate",
    keys=("first_layer", "last_layer"),
    columns=(
        Column("segment", "number of the segment, from 0"),
        Column("kind", "segment, or jump where a step is too large to be part of a flow"),
        FIRST_LAYER,
        LAST_LAYER,
        Column(
            "relative_variation",
            "Σ‖Δz‖²/Σ‖z‖² over the layers of the segment, median over tokens; the gate",
            beside=ENDS,
        ),
        Column("share_above", "share of tokens whose relative variation exceeds `threshold`"),
        Column("threshold", "largest relative variation that passes the gate"),
        Column("random_weights", "relative variation for the model with random weights"),
        Column("linear_interpolation", "relative variation of the straight line between the ends"),
        Column(
            "total_variation",
            "length of the path, Σ‖Δz‖, median over tokens. It is not the distance that "
            "`total_variation` is in every other table; `path_length` is the same number",
            "logit",
        ),
        Column("path_length", "length of the path, Σ‖Δz‖, median over tokens", "logit"),
        Column("quadratic_variation", "Σ‖Δz‖², median over tokens", "logit²"),
        Column("concentration", "nΣ‖Δz‖²/(Σ‖Δz‖)² of n steps: 1 for even steps, n for one jump"),
        Column("tortuosity", "length of the path over the distance of its ends"),
        Column("mass_residual", "largest |Σp − 1| of an output in float64"),
        Column("mass_bound", "largest residual that rounding explains"),
        Column("decision", "holds, fails or abstains"),
        Column("because", "reason of the decision"),
    ),
)


_JUMPS = Table(
    purpose="the steps that are too large to be part of a segment",
    keys=("layer",),
    columns=(
        Column("layer", "layer of the largest step of the jump"),
        Column("relative_step", "‖Δz‖²/‖z‖² of that step, median over tokens"),
        Column("total_variation", f"{MOVED}, median over tokens"),
        Column("velocity_change", "√relative_step over its mean in the layers beside it"),
    ),
)


_GATE = Table(
    purpose="the gate: segments cut on one half of the prompts and read on the other",
    keys=("cuts_from", "first_layer"),
    columns=(
        Column(
            "cuts_from", "half of the prompts that gave the cuts, even or odd; all if not split"
        ),
        Column("prompts", "prompts of the other half, on which the variation is read"),
        FIRST_LAYER,
        LAST_LAYER,
        Column("kind", "segment, or jump where a step is too large to be part of a flow"),
        Column(
            "relative_variation",
            "Σ‖Δz‖²/Σ‖z‖² over the layers of the segment on the other half, median over tokens",
            beside=ENDS,
        ),
        Column("threshold", "largest relative variation that passes the gate"),
        Column("random_weights", "relative variation for the model with random weights"),
        Column("decision", "holds (interval at most the threshold), fails (above it) or abstains"),
    ),
    optional=True,
)


VARIATION = Claim(
    name="P0",
    title="Smoothness",
    says="the output changes in steps small enough to be read as a flow",
    asks="On which layers does the output change smoothly enough to be read as a flow? This is a "
    "gate for the numbers that assume a flow, and no achievement: deep networks with random "
    "weights pass it too.",
    gate=True,
)


TABLES = {"layers": _LAYERS, "segments": _SEGMENTS, "gate": _GATE, "jumps": _JUMPS}

STAGE = Stage(
    name="variation",
    home=__name__,
    measure="measure.measure",
    judge="judge.judge",
    probes="measure.probes",
    settings=PASS_SETTINGS,
    claims=(VARIATION,),
    tables=TABLES,
)
