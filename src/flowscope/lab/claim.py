"""What a verdict is about and what a table is for: words that are written once."""

from dataclasses import dataclass

from flowscope.errors import Missing

__all__ = ["Abstention", "Claim", "Missing", "Table"]


class Abstention(Exception):  # noqa: N818 - an outcome of a stage, not an error
    """A stage can say nothing about this subject; the message is the reason that is shown."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a verdict is about.

    Attributes
    ----------
    name
        Short name of the verdict, e.g. ``"P3"``.
    says
        The claim as a statement, e.g. "attention contracts distances between its rows".
    asks
        The same as a question to a reader who has not read the theory.
    unit
        What the numbers behind it are resampled over.
    """

    name: str
    says: str
    asks: str
    unit: str = "prompts"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a table of a run folder is for.

    Attributes
    ----------
    purpose
        What its rows say, in words that finish "this run has no table of …".
    keys
        Columns that together name a row.
    columns
        Columns that the table has besides its keys.
    optional
        Whether a complete run may lack the table: the report does not list it as missing.
    """

    purpose: str
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    optional: bool = False
