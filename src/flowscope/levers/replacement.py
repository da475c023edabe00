"""What levers on attention share: listening while a ``with`` block lasts, then undone."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self

from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.levers.selection import Selection
from flowscope.tap import AttentionCall, Tap

__all__ = ["Replacement"]


class Replacement(ABC):
    """Some attention calls of a model replaced, for as long as the ``with`` block lasts.

    Parameters
    ----------
    model, selection
        The model, and which of its calls.
    idle
        Whether there is nothing to do: then nothing is listened to, and the model stays bitwise
        itself.
    never
        A sentence on what is never selected, added when nothing is.
    """

    def __init__(
        self, model: nn.Module, selection: Selection, *, idle: bool, never: str = ""
    ) -> None:
        self._tap, self._selection = Tap(model), selection
        self._idle, self._never = idle, never
        self._undo = ExitStack()
        self._known = False

    def __enter__(self) -> Self:
        if not self._idle:
            self._undo.enter_context(self._tap)
            self._known = False
            self._forget()
            self._tap.on_attention(self._listen)
        return self

    def __exit__(self, *failure: object) -> None:
        self._undo.close()

    def _listen(self, call: AttentionCall) -> Tensor | None:
        if not self._known:  # the anatomy is there from the first call on
            self._refuse_absent()
            self._known = True
        return self._replaced(call) if self._selection.takes(call) else None

    def _refuse_absent(self) -> None:
        try:
            self._selection.refuse_absent(self._tap.anatomy)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} {self._never}".strip()) from error

    @abstractmethod
    def _forget(self) -> None:
        """Drop what an earlier block has summed."""

    @abstractmethod
    def _replaced(self, call: AttentionCall) -> Tensor:
        """The new output of a selected call."""
