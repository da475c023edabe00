"""Settings of the reading of the residual stream as a field."""

from typing import Annotated

from pydantic import Field

from flowscope.lab.config import MOST_INPUTS, ReadingConfig, setting

__all__ = ["FieldConfig"]

Scale = Annotated[float, Field(ge=-1000, le=1000)]
"""What a write or the stream is multiplied by."""


class FieldConfig(ReadingConfig):
    """Measure what each block does to the tokens: work, turning, spread and spectrum of its writes.

    Every block adds the writes of attention and of its feed-forward part to the tokens. The budget
    says how far each write turns a token, whether it draws tokens together, and what part of it
    comes from attention sinks. Jacobians name stiff blocks, and a forecast says what rounding,
    skipping or scaling a block costs. Writes a run folder with tables, the verdicts F1 to F3 and
    report.html.
    """

    prompts: int = setting(16, "Number of prompts", option=True, ge=1, le=MOST_INPUTS)
    batch: int = setting(4, "Prompts in one pass through the model", ge=1)
    twins: int = setting(2, "Networks with random weights that F2 is compared with", ge=1, le=64)
    jacobians: bool = setting(True, "Whether Jacobians of the blocks are bounded")
    jacobian_tokens: int = setting(
        64, "Tokens of the first prompt at which Jacobians are taken", ge=2, le=MOST_INPUTS
    )
    products: int = setting(
        30, "Most steps of Lanczos for each end of a Jacobian's spectrum", ge=1, le=10_000
    )
    interventions: bool = setting(
        True, "Whether writes and norms of all blocks are scaled, removed or frozen in turn"
    )
    write_scales: tuple[Scale, ...] = setting(
        (0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2.0), "Scales of the writes of all blocks, tried in turn"
    )
    residual_scales: tuple[Scale, ...] = setting(
        (0.0, 0.9, 0.97, 0.99, 1.01, 1.03), "Scales of the stream at every addition, tried in turn"
    )
    bits: int = setting(3, "Bits of rounded weights in the forecast", option=True, ge=2, le=16)
    draws: int = setting(
        64, "Outputs drawn for the forecast, one backward pass each; 0 leaves it out", ge=0, le=4096
    )
