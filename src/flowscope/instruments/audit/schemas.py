"""Tables of an audit: purpose, keys, and the unit and meaning of every column."""

from flowscope.lab.claim import ENDS, INTERVAL, Column, Table

__all__ = ["CONTRACTION", "DEPTH", "FLOW", "ROTATION"]

_LAYER = Column("layer", "layer, from 1; 0 is the embedding")
_HEAD = Column("head", "attention head, from 0")
_FIRST_LAYER = Column("first_layer", "first layer of the segment")
_LAST_LAYER = Column("last_layer", "last layer of the segment")
_PROMPT = Column("prompt", "number of the prompt, from 0")
_POSITION = Column("position", "position of the token in the prompt, from 0")
_TOKENS = Column("tokens", "number of tokens behind the row")
_STATUS = Column("status", "ok, or abstained where the row has no number")
_BECAUSE = Column("because", "why the row has no number; empty where it has")
_TWIN = "the same quantity for the model with random weights"
_MOVED = "total variation distance ½Σ|p′ − p| of the outputs before and after the step"


def _output(name: str, meaning: str, unit: str = "") -> Column:
    """Median over tokens with its interval; absent where the model has no output over outcomes."""
    return Column(name, f"{meaning}, median over tokens", unit, INTERVAL, optional=True)


def _share(name: str, meaning: str) -> Column:
    return Column(name, meaning, "", INTERVAL, optional=True)


_LAYERS = Table(
    purpose="every quantity along depth",
    keys=("layer",),
    columns=(
        _LAYER,
        _output(
            "relative_step",
            "‖Δz‖²/‖z‖² of the step into this layer, z the centred logits (the hidden state where "
            "`space` is hidden)",
        ),
        _output("entropy", "entropy of the output distribution read at this layer", "nat"),
        _output("p_max", "probability of the top token"),
        _output("tail_mass", "probability of all tokens but the top one, 1 − p_max"),
        _output("margin", "probability of the top token less that of the second"),
        _output("mobility_frobenius", "Frobenius norm of J = diag(p) − ppᵀ"),
        _output("mobility_trace", "trace of J, 1 − Σp²"),
        _output("oscillation", "largest less smallest change of a logit in the step", "logit"),
        _output("total_variation", _MOVED),
        _output("kl_divergence", "KL(p′‖p) of the outputs after and before the step", "nat"),
        _output("first_order", "total variation distance of the step to first order in Δz"),
        _share("agreement", "share of tokens whose top token is that of the last layer"),
        _share("locked_share", "share of tokens with `mobility_trace` below 0.001"),
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
        _FIRST_LAYER,
        _LAST_LAYER,
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
        Column("total_variation", f"{_MOVED}, median over tokens"),
        Column("velocity_change", "√relative_step over its mean in the layers beside it"),
    ),
)

_LOCKING = Table(
    purpose="how far a step moves the output, by tail mass",
    keys=("tail_mass_low",),
    columns=(
        Column("tail_mass_low", "least tail mass 1 − p_max of the bin"),
        Column("tail_mass_high", "largest tail mass of the bin"),
        Column("n", "steps of tokens in the bin"),
        Column("tv_median", f"{_MOVED}, median over the bin"),
        Column("tv_q25", "25 % quantile of that distance"),
        Column("tv_q75", "75 % quantile of that distance"),
        Column("bound_median", "exact bound on that distance by tail mass and oscillation, median"),
        Column("informative_share", "share of steps whose bound is below 0.99"),
    ),
)

_LOCKING_DEPTH = Table(
    purpose="the layer from which the top token never changes",
    keys=("layer",),
    columns=(
        Column("layer", "first layer from which the top token is the final one"),
        Column("count", "number of tokens"),
        Column("share", "share of all tokens"),
    ),
)

_TOKEN_MAP = Table(
    purpose="the token-by-layer map",
    keys=("prompt", "position", "layer"),
    columns=(
        _PROMPT,
        _POSITION,
        _LAYER,
        Column("mobility_frobenius", "Frobenius norm of J = diag(p) − ppᵀ"),
        Column("entropy", "entropy of the output distribution read at this layer", "nat"),
        Column("p_max", "probability of the top token"),
        Column("total_variation", f"{_MOVED} into this layer"),
        Column("token", "token that the model reads at this position"),
        Column("top_token", "token with the largest probability at this layer"),
    ),
)

_HEADS = Table(
    purpose="attention entropy by layer and head",
    keys=("layer", "head"),
    columns=(
        _LAYER,
        _HEAD,
        Column(
            "entropy_share",
            "entropy of an attention row over the largest it could have, mean over rows",
            beside=ENDS,
        ),
        Column("collapsed", "whether the upper end of the interval is below 0.05"),
        Column("random_weights", _TWIN),
    ),
)

_SIMPLEX_PATH = Table(
    purpose="one path on the simplex",
    keys=("layer",),
    columns=(
        _LAYER,
        Column("first", "probability of the token that is on top at the last layer"),
        Column("second", "probability of its strongest rival on the way"),
        Column("rest", "probability of all other tokens"),
        Column("first_token", "token that is on top at the last layer"),
        Column("second_token", "its strongest rival"),
        _PROMPT,
        _POSITION,
    ),
)

DEPTH = {
    "layers": _LAYERS,
    "segments": _SEGMENTS,
    "jumps": _JUMPS,
    "locking": _LOCKING,
    "locking_depth": _LOCKING_DEPTH,
    "tokens": _TOKEN_MAP,
    "heads": _HEADS,
    "simplex_path": _SIMPLEX_PATH,
}
"""Tables of the stage that reads every layer."""

_CURVATURE = Table(
    purpose="curvature of attention by layer and head",
    keys=("layer", "head"),
    columns=(
        _LAYER,
        _HEAD,
        Column(
            "kappa",
            "1 − W₁(P_i, P_j)/d(i, j) of two attention rows, median over pairs; above 0 the head "
            "brings points closer",
            beside=ENDS,
        ),
        Column("keys_permuted", "the same with the keys of both rows permuted"),
        Column("random_weights", _TWIN),
        Column("pairs", "pairs of rows that could be compared"),
        Column("left_out", "pairs of rows that could not"),
        Column("negative_share", "share of pairs with a curvature below 0"),
        Column("pinned_share", "share of pairs whose rows both look at one and the same key"),
        Column("kept_mass", "probability that the rows keep on the keys both see, median of least"),
        _BECAUSE,
        _STATUS,
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
        _BECAUSE,
        _STATUS,
    ),
)

CONTRACTION = {"curvature": _CURVATURE, "curvature_response": _RESPONSE, "evi": _EVI}
"""Tables of the stage that reads the curvature of attention."""

_ADEQUACY = Table(
    purpose="how well a fitted flow forecasts the layers of other prompts",
    keys=("first_layer", "last_layer", "layer", "horizon", "forecast"),
    columns=(
        _FIRST_LAYER,
        _LAST_LAYER,
        Column("layer", "layer that is forecast"),
        Column("horizon", "one layer ahead, or onward from the first state of the segment"),
        Column(
            "forecast",
            "flow (the chosen drift), a kind of drift (ridge, neighbours, perceptron), persistence "
            "(no motion), floor (true coordinates) or line (straight line of logits)",
        ),
        Column(
            "tv",
            "total variation distance of the forecast and the true output, median over tokens",
            beside=ENDS,
        ),
        Column("skill", "1 − Σtv/Σtv of persistence: above 0 the forecast is better", "", INTERVAL),
        _TOKENS,
    ),
)

_CLOUDS = Table(
    purpose="forecast and true states compared as clouds of points",
    keys=("layer", "forecast"),
    columns=(
        Column("layer", "layer that is forecast"),
        Column("forecast", "flow or persistence, onward"),
        Column("ks", "largest Kolmogorov–Smirnov distance of a coordinate", beside=INTERVAL),
        Column("mmd", "squared maximum mean discrepancy, Gaussian kernel, unbiased", "", INTERVAL),
    ),
)

_DRIFTS = Table(
    purpose="the kinds of drift that were fitted",
    keys=("first_layer", "last_layer", "half", "drift"),
    columns=(
        _FIRST_LAYER,
        _LAST_LAYER,
        Column("half", "half of the prompts that is forecast, 0 or 1"),
        Column("drift", "kind of drift: ridge, neighbours or perceptron"),
        Column("relative_error", "squared error on held-out prompts over that of zero drift"),
        Column("setting", "strength of the ridge, number of neighbours, or epochs of training"),
        Column("status", "ok, or stopped where the flow could not be integrated"),
        Column("because", "why it stopped"),
        Column("chosen", "whether this kind is the flow of its half"),
        Column("coordinates", "number of principal coordinates of the logits"),
        Column("variance_held", "share of the variance of the logits in these coordinates"),
        Column("route", "how the axes were computed: gram or streamed"),
    ),
)

_OVERLAY = Table(
    purpose="how far each layer moves the output, and the bounds on it",
    keys=("layer",),
    columns=(
        _LAYER,
        Column("tv", f"{_MOVED}, median over tokens"),
        Column("first_order", "the same distance to first order in Δz, median over tokens"),
        Column("restricted", "bound by the oscillation on the outcomes that hold the mass"),
        Column(
            "budget",
            "bound tanh(Σosc/4) over the writes of the block; empty where writes cannot be read",
        ),
        Column("budget_informative", "share of tokens whose `budget` is below 0.99"),
        Column("restricted_informative", "share of tokens whose `restricted` is below 0.99"),
        Column("exceeded", "tokens that exceed `budget`, and tokens that exceed `restricted`"),
        _TOKENS,
    ),
)

_BUDGET = Table(
    purpose="the error of the forecast and the budget of each token",
    columns=(
        Column("segment", "number of the segment, from 0, among those that were forecast"),
        _PROMPT,
        Column("error", "largest total variation distance of forecast and truth, onward"),
        Column("largest", "largest half oscillation of a step", "logit"),
        Column("squares", "sum of the squared half oscillations", "logit²"),
        Column("budget", "finite-depth budget Ξ, its constants fitted on half of the prompts"),
    ),
)

_DEPTH_LOSS = Table(
    purpose="how much the last layers of a language model contribute",
    keys=("removed",),
    columns=(
        Column("removed", "number of last layers that are left out"),
        Column("layer", "layer whose output is read instead"),
        Column("loss", "mean loss per token", "nat", INTERVAL),
        Column("increase", "loss less that of the whole model", "nat", INTERVAL),
        Column("mobility", "Frobenius norm of J of the output, mean over tokens", beside=INTERVAL),
        _TOKENS,
        Column("free", "whether so many layers can go for at most 0.01 nat"),
    ),
)

FLOW = {
    "adequacy": _ADEQUACY,
    "adequacy_clouds": _CLOUDS,
    "drifts": _DRIFTS,
    "overlay": _OVERLAY,
    "budget": _BUDGET,
    "depth_loss": _DEPTH_LOSS,
}
"""Tables of the stage that fits a flow."""

_ROTATION = Table(
    purpose="the share of the motion that rotates, by layer",
    keys=("layer",),
    columns=(
        _LAYER,
        Column(
            "normalised",
            "share of the energy of the motion that is rotation, R_norm; cross-fitted, may be "
            "below 0 by chance",
            beside=ENDS,
        ),
        Column("interval_method", "how the intervals were made"),
        Column("energy", "rotational energy R", beside=INTERVAL),
        Column("total", "energy of the whole motion"),
        Column("p_value", "p value of no rotation, against draws with the same noise"),
        Column("degree", "degree of the polynomial fields"),
        Column("linear", "R_norm in linear fields alone"),
        Column("gradient_control", "R_norm of a gradient field with the same noise"),
        Column("planted_control", "R_norm of that field with a planted rotation"),
        Column("planted_share", "share of rotation that was planted"),
        Column("epsilon", "regularisation of the diffusion"),
        Column("ridge", "ridge strength of the fit"),
        Column("functions", "functions that each component of the field is written in"),
        _TOKENS,
        _STATUS,
        Column("because", "why it abstained, or what qualifies the number"),
    ),
)

ROTATION = {"rotation": _ROTATION}
"""Table of the stage that measures rotation."""
