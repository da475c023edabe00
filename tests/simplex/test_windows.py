"""Bounds over a window of laws: closed forms, the chain of inequalities, no flip inside."""

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError


def random_paths(laws, paths, outcomes, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (laws, paths, outcomes)
    steps = size * torch.randn(shape, generator=generator, dtype=torch.float64)
    steps[0] *= 4 / size
    return torch.softmax(steps.cumsum(0), -1)


def test_a_drifting_coin_moves_further_than_the_published_bound():
    """E50: from .5 to .6 in 12 steps the source allows .029056."""
    first = torch.linspace(0.5, 0.6, 13, dtype=torch.float64)
    steps = simplex.path_steps(torch.stack([first, 1 - first], -1))
    bounds = simplex.window_bounds(steps, 12)
    assert_close(bounds.published.item(), 0.029056, rtol=0, atol=5e-7)
    assert_close(bounds.path.item(), 0.1)
    assert_close(bounds.corrected.item(), math.sqrt(12) * bounds.published.item())


@pytest.mark.parametrize("width", [1, 4, 12])
def test_each_bound_exceeds_the_one_before(width):
    laws = random_paths(20, 200, 5, 0.3)
    bounds = simplex.window_bounds(simplex.path_steps(laws), width)
    first, last = laws[: 20 - width].movedim(0, 1), laws[width:].movedim(0, 1)
    moved = simplex.total_variation(first, last)
    chain = [moved, bounds.path, bounds.roots, bounds.corrected]
    for smaller, larger in pairwise(chain):
        assert (smaller <= larger + 1e-12).all()
    assert_close(bounds.corrected, math.sqrt(width) * bounds.published)


def test_no_window_that_passes_a_corrected_rule_holds_a_flip():
    laws = random_paths(30, 2_000, 3, 0.05, seed=1)
    bounds = simplex.window_bounds(simplex.path_steps(laws), 8)
    assert 0.05 < bounds.passes.double().mean() < 0.95
    assert not bool((bounds.passes & ~bounds.same).any())
    assert not bool((bounds.passes_by_path & ~bounds.same).any())
    assert bool((bounds.passes_by_path | ~bounds.passes).all())


def test_the_published_comparison_alone_passes_windows_with_a_flip():
    """A margin that shrinks to 0 and grows again: only the second condition sees the flip."""
    flip = torch.tensor([[0.55, 0.45], [0.49, 0.51]], dtype=torch.float64)
    bounds = simplex.window_bounds(simplex.path_steps(flip), 1)
    assert bounds.margin.item() == pytest.approx(0.02)
    wide = torch.tensor([[0.6, 0.4], [0.48, 0.52]], dtype=torch.float64)
    assert not bool(simplex.window_bounds(simplex.path_steps(wide), 1).passes_as_published)
    drift = torch.cat([torch.linspace(0.8, 0.65, 13), torch.tensor([0.45])]).double()
    path = simplex.path_steps(torch.stack([drift, 1 - drift], -1))
    late = simplex.window_bounds(path, 12)
    assert late.passes_as_published.tolist() == [True, False]
    assert late.passes.tolist() == [False, False]


def test_a_certified_window_says_nothing_of_the_next_step():
    """Twelve equal laws pass every rule; the thirteenth is another answer."""
    laws = torch.tensor([[0.9, 0.1]] * 13 + [[0.1, 0.9]], dtype=torch.float64)
    bounds = simplex.window_bounds(simplex.path_steps(laws), 12)
    for passes in (bounds.passes_as_published, bounds.passes, bounds.passes_by_path):
        assert passes.tolist() == [True, False]
    assert laws[12].argmax() != laws[13].argmax()


def test_on_the_common_support_the_divergence_is_finite():
    """E52: infinite on the sets of each law, .001312 on their intersection."""
    laws = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.6, 0.4, 0.0, 0.0]], dtype=torch.float64)
    assert torch.isinf(simplex.path_steps(laws.flip(0)).divergence).all()
    matched = simplex.matched_support(laws, laws > 0)
    assert_close(simplex.path_steps(matched.flip(0)).divergence.item(), 0.001312, rtol=0, atol=5e-7)
    assert_close(matched.sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simplex.path_steps([[0.5, 0.5]]), "at least two laws"),
        (lambda: simplex.window_bounds(simplex.path_steps([[0.5, 0.5]] * 3), 3), "width of 3"),
        (
            lambda: simplex.matched_support(
                torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64) > 0
            ),
            "mass on the outcomes",
        ),
        (
            lambda: simplex.matched_support(torch.full((2, 2), 0.5), torch.ones(2, 3) > 0),
            "one truth value",
        ),
    ],
)
def test_bad_windows_get_a_sentence(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()
