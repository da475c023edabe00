"""P2 Locking: whether a nearly decided token is moved less than another token's step would."""

from flowscope.instruments.audit.columns import LAYER, MOVED, PROMPT
from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["LOCKING", "STAGE", "TABLES"]


_LOCKING = Table(
    purpose="how far a step moves the output, by tail mass",
    keys=("tail_mass_low",),
    columns=(
        Column("tail_mass_low", "least tail mass 1 − p_max of the bin"),
        Column("tail_mass_high", "largest tail mass of the bin"),
        Column("n", "steps of tokens in the bin, over all layers"),
        Column("tv_median", f"{MOVED}, median over the bin"),
        Column("tv_q25", "25 % quantile of that distance"),
        Column("tv_q75", "75 % quantile of that distance"),
        Column("bound_median", "exact bound on that distance by tail mass and oscillation, median"),
        Column("informative_share", "share of steps whose bound is below 0.99"),
    ),
)


_PER_E = "log per factor e of tail mass"


_SLOPES = Table(
    optional=True,
    purpose="how movement against a transplanted step depends on tail mass, by layer",
    keys=("layer",),
    columns=(
        LAYER,
        Column(
            "slope",
            "slope of log(TV / TV of another token's step) on log tail mass, within prompts; below "
            "0, nearly decided tokens are moved more than another token's step would move them",
            _PER_E,
            INTERVAL,
        ),
        Column("size_slope", "slope of the log of ½ osc(Δz), the size of the step", _PER_E),
        Column(
            "contribution",
            "part of the common slope of the mixed layers that comes from this layer; they add up "
            "to it, and a layer that is not mixed has none",
            _PER_E,
        ),
        Column("tokens", "tokens whose steps were compared at this layer"),
        Column("decided", "share of them whose top token has more than half of the probability"),
        Column("log_tail_sd", "standard deviation of log tail mass within prompts", "log"),
        Column(
            "mixed",
            "whether between 10 % and 90 % of tokens are decided before this layer: the verdict "
            "is made from these layers",
        ),
        Column("steps", "steps of all tokens that were checked against the exact bound"),
        Column("exceeded", "how many of these exceed the exact bound; it is a theorem, so 0"),
    ),
)


_PROMPTS = Table(
    optional=True,
    purpose="the part of every prompt in the locking slope of the mixed layers",
    keys=("prompt",),
    columns=(
        PROMPT,
        Column("tokens", "tokens whose steps were compared"),
        Column("steps", "steps of these tokens at mixed layers"),
        Column("freedom", "these steps less the mixed layers, each of which has its own mean"),
        Column("squares", "sum of squares of log tail mass about the mean of prompt and layer"),
        Column("products", "sum of its products with log(TV / TV of another token's step)"),
        Column("size_products", "sum of its products with the log of the size of the step"),
        Column(
            "pseudo_value",
            "jackknife pseudo-value of the common slope: what the interval of the verdict is "
            "taken over; empty where the prompt has no spread",
            _PER_E,
        ),
    ),
)


LOCKING = Claim(
    name="P2",
    title="Locking",
    says="a token that is nearly decided is moved less than another token's step would move it",
    asks="Once the top token has nearly all probability, do the layers themselves hold back? Any "
    "step moves a nearly decided output little; the question is whether the token's own step moves "
    "it even less than the step of another token would.",
)


TABLES = {"locking": _LOCKING, "locking_slopes": _SLOPES, "locking_prompts": _PROMPTS}

STAGE = Stage(
    name="locking",
    home=__name__,
    measure="measure.measure",
    judge="judge.judge",
    probes="measure.probes",
    settings=("batch", "locking_tokens", "readout", "seed"),
    uses=("variation",),
    claims=(LOCKING,),
    tables=TABLES,
)
