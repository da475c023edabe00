"""What a change of one block costs: forecast on half of the prompts, measured on the others."""

from flowscope.lab.claim import INTERVAL, Claim, Column, Table
from flowscope.lab.instrument import Stage

__all__ = ["FORECAST", "RANK_ONLY", "SIZE_AND_RANK", "STAGE", "TABLES"]

SIZE_AND_RANK, RANK_ONLY = "size and rank", "large change: rank only"
"""How far the forecast of a kind of change can be trusted."""

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
            Column("low", "lower end of its interval, over prompts and draws", "nats/token"),
            Column("high", "upper end", "nats/token"),
            Column("measured", "the change, measured on the other prompts", "nats/token", INTERVAL),
            Column("relative_error", "size of the change of the block's output over the output"),
            Column("turn", "1 − cosine of the state with and without the change"),
            Column("weight_error", "size of the change of the weights over the weights"),
            Column(
                "trust",
                "“size and rank”, or “large change: rank only” where measured over forecast of the "
                "kind, as median over blocks or of all together, is beyond a factor of 2; empty "
                "where none was measured",
            ),
        ),
    ),
    "forecast_kinds": Table(
        purpose="how well the forecast of each kind of change agrees with what was measured",
        keys=("kind",),
        optional=True,
        columns=(
            Column("kind", "what is done to the block: skip, scale (by 0.9), quantise"),
            Column("blocks", "blocks that were measured"),
            Column("ratio", "measured cost over forecast, median over blocks"),
            Column("ratio_total", "sum of measured costs over sum of forecasts"),
            Column("rank", "rank correlation of forecast and measured cost", "", INTERVAL),
            Column("rank_relative_error", "the same of the relative error of the block's output"),
            Column("rank_turn", "the same of 1 − cosine (block influence where it is skipped)"),
            Column("rank_weight_error", "the same of the relative error of the weights"),
            Column(
                "rank_sigma_max",
                "rank correlation of σ_max with the distance of the ratio from 1, in logarithms",
            ),
            Column("trust", "as in the table “forecast”"),
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
