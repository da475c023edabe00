"""What flowscope raises: one base, a few kinds.

Every message is a sentence that says what was expected, what was found, and what to do.
"""

from typing import Any

__all__ = [
    "ConvergenceError",
    "FlowscopeError",
    "InvalidInputError",
    "LoadError",
    "LoadWarning",
    "MeasureWarning",
    "Missing",
    "ModelWarning",
    "RecordError",
    "RecordWarning",
    "TapError",
    "UnsupportedModelError",
    "WorkerError",
]


class FlowscopeError(Exception):
    """Base of every error that flowscope raises on purpose."""


class InvalidInputError(FlowscopeError, ValueError):
    """An argument breaks an assumption of the function it was given to."""


class ConvergenceError(FlowscopeError):
    """An iteration stopped short of its tolerance; ``partial`` holds what it had reached."""

    def __init__(self, message: str, partial: Any) -> None:
        super().__init__(message)
        self.partial = partial


class UnsupportedModelError(FlowscopeError):
    """The model cannot be read honestly; the message says why."""


class TapError(FlowscopeError):
    """The tap was used in a way it cannot honour."""


class LoadError(FlowscopeError):
    """A model, tokenizer or processor could not be loaded."""


class LoadWarning(UserWarning):
    """A checkpoint holds weights that its model does not use; the message names the first."""


class RecordError(FlowscopeError):
    """A record or a run folder could not be read or written."""


class WorkerError(FlowscopeError):
    """Processes that were to work on a run could not, or a piece of it failed again and again."""


class MeasureWarning(UserWarning):
    """A measurement runs in another way than the fastest; the message says why."""


class ModelWarning(UserWarning):
    """A model was not as a measurement needs it and was changed for its time; the message says."""


class RecordWarning(UserWarning):
    """Something in a run folder was not as it should be and was put right; the message says how."""


class Missing(FlowscopeError):  # noqa: N818 - a run folder may lack a table
    """A run folder lacks a table, a column or arrays; the message names what is missing.

    Verdicts whose judge meets it stay as they are; a page shows the message where the figure
    would be.
    """

    @property
    def reason(self) -> str:
        """The message."""
        return str(self)
