"""Label and line of a verdict, as every terminal, page and text shows them."""

__all__ = ["UNINFORMATIVE", "decision_text", "reason_text", "verdict_label", "verdict_line"]

UNINFORMATIVE = "uninformative: "
"""First words of the reason of a verdict whose claim could not have failed on the data."""


def verdict_label(name: str, title: str) -> str:
    """Short name of a verdict with its title; the name alone if there is no title.

    >>> verdict_label("P2", "Locking"), verdict_label("P2", "")
    ('P2 Locking', 'P2')
    """
    return f"{name} {title}".rstrip()


def decision_text(outcome: str, strength: str = "") -> str:
    """Outcome in capitals with its strength and the separator before its reason.

    >>> decision_text("holds"), decision_text("fails", "clear")
    ('HOLDS:', 'FAILS (clear):')
    """
    return f"{outcome.upper()} ({strength}):" if strength else f"{outcome.upper()}:"


def reason_text(because: str) -> str:
    """The reason without the word that the outcome before it already says.

    >>> reason_text("uninformative: every token is decided")
    'every token is decided'
    """
    return because.removeprefix(UNINFORMATIVE)


def verdict_line(name: str, title: str, outcome: str, because: str, strength: str = "") -> str:
    """One verdict as one line.

    >>> verdict_line("P2", "Locking", "fails", "2 of 9 steps exceed the bound", "clear")
    'P2 Locking  FAILS (clear): 2 of 9 steps exceed the bound'
    >>> verdict_line("P2", "Locking", "uninformative", "uninformative: every token is decided")
    'P2 Locking  UNINFORMATIVE: every token is decided'
    """
    decided = decision_text(outcome, strength)
    return f"{verdict_label(name, title)}  {decided} {reason_text(because)}"
