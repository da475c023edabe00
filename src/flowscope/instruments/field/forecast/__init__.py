"""What a change of one block costs: forecast on half of the prompts, measured on the others."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["FORECAST", "STAGE", "TABLES"]

FORECAST = Claim(
    name="F3",
    title="Block cost",
    says="the forecast of rounding a block holds",
    asks="Does the forecast rank blocks by the cost of rounding them better than the relative "
    "error of their outputs, and is it right within a factor of 2, on prompts it has not seen?",
)

TABLES = {
    "forecast": Table(
        purpose="cost of each change of one block, forecast and measured on other prompts",
        keys=("kind", "layer"),
        columns=(
            Column("kind", "what is done to the block: skip, scale (by 0.9), quantise"),
            Column("layer", "block, from 1"),
            Column("bits", "bits of the rounded weights; empty for other changes"),
            Column("predicted", "forecast change of the output (Kullback–Leibler)", "nats/token"),
            Column("low", "lower end of the interval of the forecast over prompts", "nats/token"),
            Column("high", "upper end", "nats/token"),
            Column("measured", "the change, measured on the other prompts", "nats/token", INTERVAL),
            Column("relative_error", "size of the change of the block's output over the output"),
            Column("turn", "1 − cosine of the state with and without the change"),
            Column("weight_error", "size of the change of the weights over the weights"),
            Column("trust", "“size and rank”, or “rank only”: measured is beyond a factor of 2"),
        ),
    ),
    "forecast_prompts": Table(
        purpose="forecast or measured cost of each change on each prompt",
        keys=("kind", "layer", "prompt"),
        columns=(
            Column("kind", "what is done to the block"),
            Column("layer", "block, from 1"),
            Column("prompt", "number of the prompt, from 0"),
            Column("predicted", "forecast, on prompts of even batches", "nats/token"),
            Column("relative_error", "size of the change of the output over the output"),
            Column("turn", "1 − cosine of the state with and without the change"),
            Column("measured", "measured, on prompts of odd batches", "nats/token"),
        ),
    ),
}
"""Tables of the forecast."""

STAGE = Stage(
    name="forecast",
    home=__name__,
    measure="measure.forecast",
    judge="judge.forecast",
    claims=(FORECAST,),
    settings=("batch", "seed", "bits", "draws"),
    tables=TABLES,
)
