"""Settings of the reading of the residual stream as a field."""

from flowscope.lab.config import MOST_INPUTS, ReadingConfig, setting

__all__ = ["FieldConfig"]


class FieldConfig(ReadingConfig):
    """Measure what each block does to the tokens: work, turning, spread and spectrum of its writes.

    Every block adds the writes of attention and of its feed-forward part to the tokens. The budget
    says how far each write turns a token, whether it draws tokens together, and what part of it
    comes from attention sinks. Writes a run folder with tables, the verdict Mixing and report.html.
    """

    prompts: int = setting(16, "Number of prompts", option=True, ge=1, le=MOST_INPUTS)
    batch: int = setting(4, "Prompts in one pass through the model", ge=1)
    twins: int = setting(2, "Networks with random weights that F2 is compared with", ge=1, le=64)
    bits: int = setting(3, "Bits of rounded weights in the forecast", option=True, ge=2, le=16)
    draws: int = setting(
        64, "Outputs drawn for the forecast, one backward pass each; 0 leaves it out", ge=0, le=4096
    )
