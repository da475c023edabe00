"""Two kinds of English text from seeded generators, which a short tuning learns.

*Accounts*: people gain and lose things, and the text keeps count. *Lineages*: who is whose child,
and questions about it. Both can be drawn in any number, so that no text is measured on which a
model was tuned.
"""

import random
from collections.abc import Callable
from itertools import pairwise

__all__ = ["GENERATORS", "accounts", "lineages"]

_PEOPLE = ("Tom", "Ann", "Ben", "Eva", "Sam", "Ida", "Max", "Lea", "Jon", "Mia")
_THINGS = ("apples", "coins", "books", "stones", "cards", "eggs", "pens", "shells")
_NAMES = (
    "Abel", "Boaz", "Cush", "Dan", "Eli", "Gad", "Ham", "Ira", "Jesse", "Kish", "Levi", "Nun",
    "Obed", "Perez", "Reu", "Seth", "Terah", "Uri", "Zadok",
)  # fmt: skip
_WORDS = 110


def accounts(draw: random.Random) -> str:
    """Text in which people gain and lose things.

    >>> accounts(random.Random(0))[:36]
    'Max has 3 pens. Max buys 9 pens. Now'
    """
    words: list[str] = []
    while len(words) < _WORDS:
        person, thing, count = draw.choice(_PEOPLE), draw.choice(_THINGS), draw.randint(2, 20)
        words += f"{person} has {count} {thing}.".split()
        for _ in range(draw.randint(2, 4)):
            change = draw.randint(1, 9)
            if change < count and draw.random() < 0.5:
                count -= change
                other = draw.choice([name for name in _PEOPLE if name != person])
                words += f"{person} gives {change} {thing} to {other}.".split()
            else:
                count += change
                words += f"{person} buys {change} {thing}.".split()
            words += f"Now {person} has {count} {thing}.".split()
    return " ".join(words)


def lineages(draw: random.Random) -> str:
    """Text that says who is whose child, and asks.

    >>> lineages(random.Random(0))[:30]
    'Perez was the father of Boaz, '
    """
    words: list[str] = []
    while len(words) < _WORDS:
        line = draw.sample(_NAMES, draw.randint(3, 5))
        pairs = list(pairwise(line))
        told = ", and ".join(f"{a} was the father of {b}" for a, b in pairs)
        words += f"{told}.".split()
        a, b = draw.choice(pairs)
        words += f"Who was the father of {b}? It was {a}.".split()
    return " ".join(words)


GENERATORS: dict[str, Callable[[random.Random], str]] = {"first": accounts, "second": lineages}
"""Generator of each kind of text that a child is tuned on."""
