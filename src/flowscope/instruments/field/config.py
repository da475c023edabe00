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
