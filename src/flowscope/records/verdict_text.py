"""Label and line of a verdict, as every terminal, page and text shows them."""

from collections.abc import Sequence

__all__ = [
    "GATE_WORDS",
    "UNINFORMATIVE",
    "Gate",
    "decision_text",
    "outcome_text",
    "reason_text",
    "verdict_label",
    "verdict_line",
]

UNINFORMATIVE = "uninformative: "
"""First words of the reason of a verdict whose claim could not have failed on the data."""


def verdict_label(name: str, title: str) -> str:
    """Short name of a verdict with its title; the name alone if there is no title.

    >>> verdict_label("P2", "Locking"), verdict_label("P2", "")
    ('P2 Locking', 'P2')
    """
    return f"{name} {title}".rstrip()


GATE_WORDS = ("readable as a flow", "not readable as a flow")
"""What a gate is called where it holds and where it fails, unless its claim has other words."""

Gate = Sequence[str] | None
"""Both words of a gate; None for a claim that is none."""


def outcome_text(outcome: str, gate: Gate = None) -> str:
    """Outcome in words; a gate says what may be read.

    >>> outcome_text("holds"), outcome_text("holds", GATE_WORDS), outcome_text("abstains", ("", ""))
    ('holds', 'readable as a flow', 'undecided')
    """
    if not gate:
        return outcome
    return {"holds": gate[0], "fails": gate[1]}.get(outcome, "undecided")


def decision_text(outcome: str, strength: str = "", gate: Gate = None) -> str:
    """Outcome in capitals with its strength and the separator before its reason.

    >>> decision_text("holds"), decision_text("fails", "clear")
    ('HOLDS:', 'FAILS (clear):')
    >>> decision_text("fails", gate=GATE_WORDS)
    'NOT READABLE AS A FLOW:'
    """
    outcome = outcome_text(outcome, gate)
    return f"{outcome.upper()} ({strength}):" if strength else f"{outcome.upper()}:"


def reason_text(because: str) -> str:
    """The reason without the word that the outcome before it already says.

    >>> reason_text("uninformative: every token is decided")
    'every token is decided'
    """
    return because.removeprefix(UNINFORMATIVE)


def verdict_line(
    name: str, title: str, outcome: str, because: str, strength: str = "", gate: Gate = None
) -> str:
    """One verdict as one line.

    >>> verdict_line("P2", "Locking", "fails", "2 of 9 steps exceed the bound", "clear")
    'P2 Locking  FAILS (clear): 2 of 9 steps exceed the bound'
    >>> verdict_line("P2", "Locking", "uninformative", "uninformative: every token is decided")
    'P2 Locking  UNINFORMATIVE: every token is decided'
    """
    decided = decision_text(outcome, strength, gate)
    return f"{verdict_label(name, title)}  {decided} {reason_text(because)}"
