"""P1 Forecast: whether a flow predicts the layers of other prompts beyond shift and lookup."""

from flowscope.instruments.audit.columns import (
    FIRST_LAYER,
    LAST_LAYER,
    LAYER,
    MOVED,
    PROMPT,
    TOKENS,
)
from flowscope.lab.claim import ENDS, INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["ADEQUACY", "STAGE", "TABLES"]


_ADEQUACY = Table(
    purpose="how well a fitted flow forecasts the layers of other prompts",
    keys=("first_layer", "last_layer", "layer", "horizon", "forecast"),
    columns=(
        FIRST_LAYER,
        LAST_LAYER,
        Column("layer", "layer that is forecast"),
        Column("horizon", "one layer ahead, or onward from the first state of the segment"),
        Column(
            "forecast",
            "flow (the chosen drift), a kind of drift (ridge, neighbours, perceptron), mean (mean "
            "step of each layer), scaled (mean step and a scale per layer), lookup (mean "
            "path of the same token and position), persistence (no motion), floor (true "
            "coordinates) or line (straight line of logits)",
        ),
        Column(
            "tv",
            "total variation distance of the forecast and the true output, median over tokens",
            beside=ENDS,
        ),
        Column("skill", "1 − Σtv/Σtv of persistence: above 0 the forecast is better", "", INTERVAL),
        TOKENS,
    ),
)


_SUM = "summed over tokens and layers, onward"


_SKILL = Table(
    optional=True,
    purpose="error of each forecast by prompt, from which P1 is judged",
    keys=("first_layer", "last_layer", "prompt"),
    columns=(
        FIRST_LAYER,
        LAST_LAYER,
        PROMPT,
        TOKENS,
        Column("still", f"total variation of “nothing changes” and the true output, {_SUM}"),
        Column("mean_drift", "the same for the mean step of each layer over other prompts"),
        Column("scaled_drift", "the same for that step with a scale per layer"),
        Column("lookup", "the same for the mean path of the same token and the same position"),
        Column("flow", "the same for the fitted flow; empty where it stopped"),
        Column("floor", "the same for the true coordinates: what a perfect flow would reach"),
        Column(
            "flow_half",
            "the same for the flow fitted on half as many prompts; empty where it stopped",
        ),
        Column(
            "flow_shuffled",
            "the same for the flow fitted with its layers in random order; empty where it stopped",
        ),
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
        FIRST_LAYER,
        LAST_LAYER,
        Column("half", "half of the prompts that is forecast, 0 or 1"),
        Column("drift", "kind of drift: ridge, neighbours or perceptron"),
        Column(
            "relative_error",
            "squared error of the coordinates onward over that of no motion, on a fifth of the "
            "fitting prompts that was left out of the fit; infinite where the flow stopped",
        ),
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
        LAYER,
        Column("tv", f"{MOVED}, median over tokens"),
        Column("first_order", "the same distance to first order in Δz, median over tokens"),
        Column("restricted", "bound by the oscillation on the outcomes that hold the mass"),
        Column(
            "budget",
            "bound tanh(Σosc/4) over the writes of the block; empty where writes cannot be read",
        ),
        Column("budget_informative", "share of tokens whose `budget` is below 0.99"),
        Column("restricted_informative", "share of tokens whose `restricted` is below 0.99"),
        Column("exceeded", "tokens that exceed `budget`, and tokens that exceed `restricted`"),
        TOKENS,
    ),
)


_BUDGET = Table(
    purpose="the error of the forecast and the budget of each token",
    columns=(
        Column("segment", "number of the segment, from 0, among those that were forecast"),
        PROMPT,
        Column("error", "largest total variation distance of forecast and truth, onward"),
        Column("largest", "largest half oscillation of a step", "logit"),
        Column("squares", "sum of the squared half oscillations", "logit²"),
        Column("budget", "finite-depth budget Ξ, its constants fitted on half of the prompts"),
    ),
)


ADEQUACY = Claim(
    name="P1",
    title="Forecast",
    says="a flow fitted on some prompts predicts the layers of other prompts better than a shift "
    "and a scale per layer, and better than a lookup by token and position",
    asks="Can a smooth rule, fitted on other prompts, predict the next layers better than the mean "
    "step of each layer, and better than what the token and its position tell?",
)


TABLES = {
    "adequacy": _ADEQUACY,
    "adequacy_skill": _SKILL,
    "adequacy_clouds": _CLOUDS,
    "drifts": _DRIFTS,
    "overlay": _OVERLAY,
    "budget": _BUDGET,
}

STAGE = Stage(
    name="adequacy",
    home=__name__,
    measure="measure.measure",
    judge="judge.judge",
    probes="measure.probes",
    uses=("variation",),
    claims=(ADEQUACY,),
    tables=TABLES,
)
