"""The ListOps generator against an evaluator that reads the tokens alone."""

import statistics

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.nets.listops import CLOSE, OPERATIONS, listops


def _value(row: list[int]) -> tuple[int, int]:
    """Value of an expression from its tokens, and its depth."""
    names = {token: name for name, token in OPERATIONS.items()}
    stack: list[tuple[str, list[int]]] = [("", [])]
    deepest = 0
    for token in row:
        if token in names:
            stack.append((names[token], []))
            deepest = max(deepest, len(stack) - 1)
        elif token == CLOSE:
            name, values = stack.pop()
            assert len(values) >= 2
            results = {
                "MAX": max(values),
                "MIN": min(values),
                "MED": statistics.median_low(values),
                "SM": sum(values) % 10,
            }
            stack[-1][1].append(results[name])
        else:
            stack[-1][1].append(token)
    assert len(stack) == 1
    assert len(stack[0][1]) == 1
    return stack[0][1][0], deepest


@pytest.mark.parametrize(("tokens", "depth"), [(4, 1), (5, 3), (9, 2), (24, 3), (48, 5)])
def test_values_equal_those_of_an_independent_evaluator(tokens: int, depth: int) -> None:
    expressions, values = listops(200, tokens, seed=1, depth=depth)
    answers = [_value(row) for row in expressions.tolist()]
    assert [value for value, _ in answers] == values.tolist()
    assert max(deepest for _, deepest in answers) <= depth
    if tokens >= 24:
        assert max(deepest for _, deepest in answers) == depth


def test_seed_decides_the_expressions() -> None:
    first, again, other = (listops(20, 16, seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("count", "tokens", "depth"), [(0, 8, 2), (1, 3, 2), (1, 8, 0)])
def test_impossible_sizes_are_refused(count: int, tokens: int, depth: int) -> None:
    with pytest.raises(InvalidInputError, match="ListOps needs"):
        listops(count, tokens, seed=0, depth=depth)
