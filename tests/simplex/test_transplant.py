"""Transplanted steps: explicit for two outcomes, blind to labels and gauge, right near a vertex."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError
from flowscope.simplex import transplant


def _drawn(seed, n, v, spread=3.0):
    generator = torch.Generator().manual_seed(seed)
    z, step = torch.randn(2, n, v, generator=generator, dtype=torch.float64)
    donors = torch.randint(0, n, (n, 2), generator=generator)
    return spread * z, spread * z + step, donors


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 8), st.floats(-4, 4), st.booleans()), min_size=2, max_size=5)
)
def test_two_outcomes_move_by_a_difference_of_sigmoids(rows):
    """The leader's lead g becomes g + d, with the d of the donor, whichever outcome leads."""
    lead, widened = (torch.tensor([r[k] for r in rows], dtype=torch.float64) for k in (0, 1))
    flip = torch.tensor([r[2] for r in rows])
    before = torch.stack([lead, torch.zeros_like(lead)], -1)
    after = torch.stack([lead + widened, torch.zeros_like(lead)], -1)
    before, after = (torch.where(flip[:, None], z.flip(-1), z) for z in (before, after))
    donors = torch.roll(torch.arange(len(rows)), 1)[:, None]
    steps = simplex.transplanted_steps(before, after, donors)
    lent = widened[donors[:, 0]]
    gap = (torch.sigmoid(-lead) - torch.sigmoid(-lead - lent)).abs()
    assert_close(steps.transplanted[:, 0], gap, rtol=1e-9, atol=1e-14)
    assert_close(steps.tail_mass, torch.sigmoid(-lead))
    assert_close(steps.half_oscillation, widened.abs() / 2, rtol=1e-9, atol=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 7), st.integers(2, 9))
def test_labels_and_constants_change_nothing(seed, n, v):
    before, after, donors = _drawn(seed, n, v)
    generator = torch.Generator().manual_seed(seed + 1)
    steps = simplex.transplanted_steps(before, after, donors)
    relabelled = torch.stack([torch.randperm(v, generator=generator) for _ in range(n)])
    shift = 10 * torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    again = simplex.transplanted_steps(
        before.gather(-1, relabelled) + shift[0], after.gather(-1, relabelled) + shift[1], donors
    )
    for name in ("tail_mass", "total_variation", "transplanted", "half_oscillation"):
        assert_close(getattr(again, name), getattr(steps, name), rtol=1e-9, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 7), st.integers(2, 9))
def test_a_row_that_is_its_own_donor_makes_its_own_step(seed, n, v):
    before, after, _ = _drawn(seed, n, v)
    steps = simplex.transplanted_steps(before, after, torch.arange(n)[:, None])
    p, q = before.softmax(-1), after.softmax(-1)
    assert_close(steps.transplanted[:, 0], steps.total_variation)
    assert_close(steps.total_variation, simplex.total_variation(p, q), rtol=1e-9, atol=1e-14)
    assert_close(2 * steps.half_oscillation, simplex.oscillation(after - before))


def test_the_layout_follows_both_rankings():
    before = torch.tensor([[3.0, 1.0, 0.0], [0.0, 5.0, 2.0]], dtype=torch.float64)
    after = before + torch.tensor([[0.0, 0.0, 0.0], [0.7, -0.4, 0.2]], dtype=torch.float64)
    steps = simplex.transplanted_steps(before, after, [[1], [0]])
    laid_out = before[0] + torch.tensor([-0.4, 0.2, 0.7], dtype=torch.float64)
    expected = simplex.total_variation(before[0].softmax(-1), laid_out.softmax(-1))
    assert_close(steps.transplanted[0, 0], expected)
    assert steps.transplanted[1, 0] == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=6, max_size=6)
        | st.lists(st.sampled_from([-0.0, 0.0, 1.0, -1.0, 1.5]), min_size=6, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_the_ranking_by_bits_is_the_stable_sort(rows):
    z = torch.tensor(rows, dtype=torch.float32)
    expected = z.double().argsort(stable=True, dim=-1, descending=True)
    assert torch.equal(transplant._ranking(z), expected)


def test_blocks_of_rows_change_nothing(monkeypatch):
    before, after, donors = _drawn(0, 11, 6)
    whole = simplex.transplanted_steps(before, after, donors)
    monkeypatch.setattr(transplant, "_BLOCK", 13)
    parts = simplex.transplanted_steps(before, after, donors)
    assert torch.equal(parts.transplanted, whole.transplanted)
    assert torch.equal(parts.total_variation, whole.total_variation)


@pytest.mark.parametrize("lead", [10.0, 30.0, 60.0])
def test_a_small_step_near_a_vertex_keeps_its_digits(lead):
    getcontext().prec = 60
    before = torch.tensor([[lead, 0.0, -1.0]])
    after = before + torch.tensor([[0.0, 2.0**-10, 0.0]])
    steps = simplex.transplanted_steps(before, after, [[0]])

    def law(logits):
        weights = [Decimal(z).exp() for z in logits.double()[0].tolist()]
        return [weight / sum(weights) for weight in weights]

    gaps = [abs(q - p) for p, q in zip(law(before), law(after), strict=True)]
    exact = float(sum(gaps) / 2)
    assert steps.total_variation.item() == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    ("before", "after", "donors", "words"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), [[1], [0]], "one shape"),
        (np.zeros((2, 3)), np.zeros((2, 3)), [[1]], "donors must have shape"),
        (np.zeros((2, 3)), np.zeros((2, 3)), [[1], [2]], "from 0 to 1; found 1 to 2"),
        (np.zeros((2, 3)), np.full((2, 3), np.inf), [[1], [0]], "after must be finite"),
    ],
)
def test_what_does_not_fit_is_refused(before, after, donors, words):
    with pytest.raises(InvalidInputError, match=words):
        simplex.transplanted_steps(before, after, donors)
