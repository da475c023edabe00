"""Label and line of a verdict, as every terminal, page and text shows them."""

__all__ = ["decision_text", "verdict_label", "verdict_line"]


def verdict_label(name: str, title: str) -> str:
    """Short name of a verdict with its title; the name alone if there is no title.

    >>> verdict_label("P2", "Locking"), verdict_label("P2", "")
    ('P2 Locking', 'P2')
    """
    return f"{name} {title}".rstrip()


def decision_text(decision: str) -> str:
    """Decision in capitals with the separator before its reason.

    >>> decision_text("holds")
    'HOLDS:'
    """
    return f"{decision.upper()}:"


def verdict_line(name: str, title: str, decision: str, because: str) -> str:
    """One verdict as one line.

    >>> verdict_line("P2", "Locking", "fails", "2 of 9 steps exceed the bound")
    'P2 Locking  FAILS: 2 of 9 steps exceed the bound'
    """
    return f"{verdict_label(name, title)}  {decision_text(decision)} {because}"
