"""What was not computed, said out loud.

A record has no field that is ``None`` because nobody computed it: the field holds an
:class:`Unavailable` that says why. One prompt has no bootstrap interval; an abstained
measurement has no values; a run outside a repository has no commit.
"""

from dataclasses import dataclass

from flowscope.errors import InvalidInputError

__all__ = ["Unavailable"]


@dataclass(frozen=True, eq=False)
class Unavailable:
    """A value that is not there, and the reason.

    Parameters
    ----------
    reason
        Why there is no value; a reader sees it in place of the number.

    Raises
    ------
    InvalidInputError
        The reason is empty or not text.

    Examples
    --------
    >>> print(Unavailable("one prompt has no bootstrap interval"))
    unavailable: one prompt has no bootstrap interval
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise InvalidInputError(
                f"Unavailable needs a reason in words, found {self.reason!r}: "
                "say why the value is not there."
            )

    def __str__(self) -> str:
        return f"unavailable: {self.reason}"
