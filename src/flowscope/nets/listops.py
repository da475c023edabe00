"""ListOps: nested lists of digits whose value is a digit, from a seeded generator.

Every expression has the same number of tokens, so that no padding is needed. Digits are tokens 0
to 9; MAX, MIN, MED (the lower median) and SM (sum modulo 10) open a list, and one token closes it.
"""

import random
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["CLOSE", "OPERATIONS", "VOCABULARY", "listops"]

OPERATIONS = {"MAX": 10, "MIN": 11, "MED": 12, "SM": 13}
"""Token that opens the list of each operation."""
CLOSE = 14
"""Token that closes a list."""
VOCABULARY = 15
"""Number of different tokens."""

_SHORTEST = 4  # an operation, two digits, the closing token
_VALUES: dict[int, Callable[[Sequence[int]], int]] = {
    10: max,
    11: min,
    12: lambda values: sorted(values)[(len(values) - 1) // 2],
    13: lambda values: sum(values) % 10,
}


def listops(
    count: int, tokens: int, seed: int, depth: int = 3
) -> tuple[Int[Tensor, "count tokens"], Int[Tensor, "count"]]:
    """Expressions and their values.

    Parameters
    ----------
    count, tokens
        Number of expressions, and length of each.
    seed
        Seed of the generator; the same seed gives the same expressions on every machine.
    depth
        Most lists inside one another.

    Raises
    ------
    InvalidInputError
        For no expression, fewer than 4 tokens, or a depth below 1.

    Examples
    --------
    >>> expressions, values = listops(2, 12, seed=0)
    >>> expressions.shape, bool(((values >= 0) & (values < 10)).all())
    (torch.Size([2, 12]), True)
    """
    if count < 1 or tokens < _SHORTEST or depth < 1:
        raise InvalidInputError(
            f"ListOps needs count ≥ 1, tokens ≥ {_SHORTEST} and depth ≥ 1; got count {count}, "
            f"tokens {tokens}, depth {depth}."
        )
    draw = random.Random(seed)
    pairs = [_expression(tokens, depth, draw) for _ in range(count)]
    return torch.tensor([row for row, _ in pairs]), torch.tensor([value for _, value in pairs])


def _expression(tokens: int, depth: int, draw: random.Random) -> tuple[list[int], int]:
    """One expression of that many tokens, and its value."""
    if tokens == 1:
        digit = draw.randrange(10)
        return [digit], digit
    operation = draw.choice(sorted(_VALUES))
    parts = [_expression(size, depth - 1, draw) for size in _sizes(tokens - 2, depth, draw)]
    row = [operation, *(token for part, _ in parts for token in part), CLOSE]
    return row, _VALUES[operation]([value for _, value in parts])


def _sizes(room: int, depth: int, draw: random.Random) -> list[int]:
    """Lengths of the arguments of a list, at least two, in random order."""
    sizes: list[int] = []
    while room:
        longest = room if sizes else room - 1
        nested = depth > 1 and longest >= _SHORTEST and draw.random() < 0.5
        sizes.append(draw.randint(_SHORTEST, longest) if nested else 1)
        room -= sizes[-1]
    draw.shuffle(sizes)
    return sizes
