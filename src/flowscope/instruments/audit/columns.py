"""Columns and settings that several stages of an audit share."""

from flowscope.lab.claim import INTERVAL, Column

__all__ = [
    "BECAUSE",
    "FIRST_LAYER",
    "HEAD",
    "LAST_LAYER",
    "LAYER",
    "MOVED",
    "PASS_SETTINGS",
    "POSITION",
    "PROMPT",
    "STATUS",
    "TOKENS",
    "TWIN",
    "output",
    "share",
]


LAYER = Column("layer", "layer, from 1; 0 is the embedding")


HEAD = Column("head", "attention head, from 0")


FIRST_LAYER = Column("first_layer", "first layer of the segment")


LAST_LAYER = Column("last_layer", "last layer of the segment")


PROMPT = Column("prompt", "number of the prompt, from 0")


POSITION = Column("position", "position of the token in the prompt, from 0")


TOKENS = Column("tokens", "number of tokens behind the row")


STATUS = Column("status", "ok, or abstained where the row has no number")


BECAUSE = Column("because", "why the row has no number; empty where it has")


TWIN = "the same quantity for the model with random weights"


MOVED = "total variation distance ½Σ|p′ − p| of the outputs before and after the step"


def output(name: str, meaning: str, unit: str = "") -> Column:
    """Median over tokens with its interval; absent where the model has no output over outcomes."""
    return Column(name, f"{meaning}, median over tokens", unit, INTERVAL, optional=True)


def share(name: str, meaning: str) -> Column:
    """Share of tokens with its interval; absent where the model has no output over outcomes."""
    return Column(name, meaning, "", INTERVAL, optional=True)


PASS_SETTINGS = ("batch", "curvature_pairs", "readout")
"""Settings that decide what the pass over all prompts leaves."""
