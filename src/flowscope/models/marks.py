"""What tells one model from another: its weights and its configuration."""

import re
import uuid
from typing import Any

from flowscope.models.loading import Loaded
from flowscope.records import Unavailable

__all__ = ["configuration_marks", "model_facts", "model_marks"]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object in memory, another one in each process


def model_marks(loaded: Loaded) -> dict[str, Any]:
    """Hash of the weights and the configuration of a model.

    Weights that cannot be hashed (off-loaded or quantised) get a new mark at each call: nothing
    tells two such models apart, so that no shard of one may be used for another.
    """
    weights = loaded.weight_hash
    if isinstance(weights, Unavailable):
        weights = uuid.uuid4().hex
    return {"weights": weights, "config": configuration_marks(loaded.model)}


def model_facts(loaded: Loaded, repeats: str = "") -> dict[str, str]:
    """What is said of a model beside its numbers: wrappers that were taken off, answers twice.

    Parameters
    ----------
    loaded
        The model.
    repeats
        How two answers to one input differ; empty where they are equal.
    """
    facts = {"unwrapped": ", ".join(loaded.wrappers), "repeats": repeats}
    return {name: words for name, words in facts.items() if words}


def configuration_marks(module: Any) -> dict[str, str]:
    """The configuration of a model: equal weights under another one give other numbers."""
    config: Any = getattr(module, "config", None)
    entries = config if hasattr(config, "items") else getattr(config, "__dict__", {})
    marks = {str(k): _ADDRESS.sub("", str(v)) for k, v in entries.items() if str(k)[:1] != "_"}
    return {**marks, "type": type(config).__qualname__}
