"""Label and line of a verdict, as every terminal, page and text shows them."""

__all__ = [
    "UNINFORMATIVE",
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


_GATE_WORDS = {"holds": "readable as a flow", "fails": "not readable as a flow"}


def outcome_text(outcome: str, gate: bool = False) -> str:
    """Outcome in words; a gate says what may be read.

    >>> outcome_text("holds"), outcome_text("holds", gate=True), outcome_text("abstains", gate=True)
    ('holds', 'readable as a flow', 'undecided')
    """
    return _GATE_WORDS.get(outcome, "undecided") if gate else outcome


def decision_text(outcome: str, strength: str = "", gate: bool = False) -> str:
    """Outcome in capitals with its strength and the separator before its reason.

    >>> decision_text("holds"), decision_text("fails", "clear"), decision_text("fails", gate=True)
    ('HOLDS:', 'FAILS (clear):', 'NOT READABLE AS A FLOW:')
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
    name: str, title: str, outcome: str, because: str, strength: str = "", gate: bool = False
) -> str:
    """One verdict as one line.

    >>> verdict_line("P2", "Locking", "fails", "2 of 9 steps exceed the bound", "clear")
    'P2 Locking  FAILS (clear): 2 of 9 steps exceed the bound'
    >>> verdict_line("P2", "Locking", "uninformative", "uninformative: every token is decided")
    'P2 Locking  UNINFORMATIVE: every token is decided'
    """
    decided = decision_text(outcome, strength, gate)
    return f"{verdict_label(name, title)}  {decided} {reason_text(because)}"
