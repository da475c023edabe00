"""Counterexamples to statements of source 000 on the late-window certificate (§8.3).

``docs/theory/errata.md`` lists the statements by number.
"""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowscope.simplex import path_steps, window_bounds


def kl(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0.0)
    return terms.sum()


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


# E50


def drifting_window(steps=12):
    first = np.linspace(0.5, 0.6, steps + 1)
    return np.stack([first, 1 - first], axis=1)


def test_window_bound_without_the_window_length_is_false():
    """A Bernoulli drifting from 0.5 to 0.6 in 12 equal steps."""
    path = drifting_window()
    divergence = sum(kl(b, a) for a, b in pairwise(path))
    moved = total_variation(path[0], path[-1])
    published = np.sqrt(divergence / 2)
    assert_allclose(moved, 0.1)
    assert_allclose(published, 0.029056, atol=5e-7)
    assert moved > 3.4 * published


def test_window_bound_with_the_window_length_holds():
    rng = np.random.default_rng(0)
    for _ in range(200):
        logits = np.cumsum(0.3 * rng.standard_normal((13, 6)), axis=0)
        path = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        divergences = [kl(b, a) for a, b in pairwise(path)]
        moved = total_variation(path[0], path[-1])
        sum_of_roots = np.sqrt(np.array(divergences) / 2).sum()
        assert moved <= sum_of_roots <= np.sqrt(12 * sum(divergences) / 2) + 1e-12


# E51


def margin(p):
    top = np.sort(p)[::-1]
    return top[0] - top[1]


def test_a_move_smaller_than_the_margin_can_flip_the_label():
    p, q = np.array([0.55, 0.45]), np.array([0.49, 0.51])
    assert_allclose([total_variation(p, q), margin(p)], [0.06, 0.10])
    assert total_variation(p, q) < margin(p)
    assert p.argmax() != q.argmax()


def test_a_move_smaller_than_half_the_margin_never_flips_the_label():
    rng = np.random.default_rng(1)
    checked = 0
    for _ in range(20_000):
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        q = 0.8 * p + 0.2 * q
        if total_variation(p, q) < margin(p) / 2:
            checked += 1
            assert p.argmax() == q.argmax()
    assert checked > 1000


# E52


def test_divergence_across_two_visible_sets_is_infinite():
    """Renormalised on its own visible set each, the two laws have different supports."""
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.6, 0.4, 0.0, 0.0])
    assert np.isinf(kl(p, q))


def test_divergence_on_the_common_support_is_finite():
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.6, 0.4, 0.0, 0.0])
    common = (p > 0) & (q > 0)
    restricted = [law[common] / law[common].sum() for law in (p, q)]
    assert_allclose(kl(*restricted), 0.001312, atol=5e-7)


# E109


@pytest.mark.parametrize("width", [1, 8, 12, 100])
def test_a_window_of_equal_laws_is_certified_and_the_next_law_flips(width):
    """No bound on the window reads the next law: it may be anything."""
    window = np.tile([0.9999, 0.0001], (width + 1, 1))
    bounds = window_bounds(path_steps(window), width)
    assert bool(
        bounds.passes_as_published.all() & bounds.passes.all() & bounds.passes_by_path.all()
    )
    assert float(bounds.corrected.max()) == 0.0
    following = np.vstack([window, [0.0001, 0.9999]])
    assert following[-1].argmax() != following[-2].argmax()


# E110


def test_coverage_falls_with_the_width_of_the_window():
    """Each window of 12 that passes holds windows of 8 that pass, by every rule."""
    rng = np.random.default_rng(2)
    narrower = 0
    for scale in (0.01, 0.05, 0.2):
        logits = rng.normal(size=(1, 300, 3)) + scale * rng.normal(size=(30, 300, 3)).cumsum(0)
        laws = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        steps = path_steps(laws)
        for rule in ("passes_as_published", "passes", "passes_by_path"):
            wide, narrow = (getattr(window_bounds(steps, w), rule).any(-1) for w in (12, 8))
            assert bool((narrow | ~wide).all())
            narrower += int((narrow & ~wide).sum())
    assert narrower > 0
