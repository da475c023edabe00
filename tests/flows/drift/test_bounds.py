import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.flows.drift.worlds import seeded
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows import step_statistics
from flowscope.flows.drift import first_order, restricted_bound
from flowscope.simplex import oscillation, total_variation


def laws(seed, *, rows=4, V=30, spread=4.0, size=2.0):
    z = spread * torch.randn(rows, V, generator=seeded(seed)).double()
    dz = size * torch.randn(rows, V, generator=seeded(seed + 1)).double()
    return torch.softmax(z, -1), torch.softmax(z + dz, -1), dz


def by_definition(p, q, dz, eta):
    order = np.argsort(-np.maximum(p, q))
    held = np.minimum(p[order].cumsum(), q[order].cumsum())
    size = 1 + np.argmax(held >= 1 - eta)
    return eta + (1 - eta) * np.tanh(np.ptp(dz[order[:size]]) / 4)


@given(st.integers(0, 10**6), st.floats(0, 12), st.floats(0, 8), st.floats(0, 0.5))
def test_total_variation_never_exceeds_its_bounds(seed, spread, size, eta):
    p, q, dz = laws(seed, spread=spread, size=size)
    moved = total_variation(p, q)
    bound = restricted_bound(p, q, dz, eta=eta)
    assert (moved <= bound + 1e-12).all()
    assert (bound <= 1 + 1e-12).all()
    assert (moved <= torch.tanh(oscillation(dz) / 4) + 1e-12).all()


@given(st.integers(0, 10**6), st.floats(1e-4, 0.3))
def test_bound_is_that_of_the_definition(seed, eta):
    p, q, dz = laws(seed)
    expected = [by_definition(*(x[i].numpy() for x in (p, q, dz)), eta) for i in range(4)]
    np.testing.assert_allclose(restricted_bound(p, q, dz, eta=eta), expected)


@pytest.mark.parametrize("osc", [0.1, 1.0, 9.0])
def test_two_outcomes_reach_the_bound(osc):
    dz = torch.tensor([osc, 0.0]).double()
    p = torch.softmax(-dz / 2, -1)
    q = torch.softmax(dz / 2, -1)
    assert_close(restricted_bound(p, q, dz, eta=0.0), total_variation(p, q))


def test_everything_counts_without_slack_and_the_far_tail_does_not_with_it():
    p, q, dz = laws(3, V=500, spread=6.0)
    assert_close(restricted_bound(p, q, dz, eta=0.0), torch.tanh(oscillation(dz) / 4))
    assert (restricted_bound(p, q, dz, eta=0.01) < 0.95 * torch.tanh(oscillation(dz) / 4)).any()


def test_constant_shift_of_the_step_changes_nothing():
    p, q, dz = laws(4)
    assert_close(restricted_bound(p, q, dz + 100.0), restricted_bound(p, q, dz))


def test_blocks_of_rows_are_put_back_in_order():
    p, q, dz = laws(5, rows=300, V=4000)
    found = restricted_bound(p.reshape(3, 100, -1), q.reshape(3, 100, -1), dz.reshape(3, 100, -1))
    assert_close(found[2, 7], restricted_bound(p[207], q[207], dz[207]))


def test_first_order_is_that_of_the_steps_and_the_slope_of_total_variation():
    p, _, dz = laws(6)
    steps = step_statistics(p.log(), p.log() + dz)
    assert_close(first_order(p, dz), steps.first_order)
    small = 1e-6 * dz
    assert_close(
        total_variation(p, torch.softmax(p.log() + small, -1)) / 1e-6, first_order(p, dz),
        rtol=1e-4, atol=1e-6,
    )  # fmt: skip


def test_impossible_input_is_refused():
    p, q, dz = laws(7)
    with pytest.raises(InvalidInputError, match="eta must lie"):
        restricted_bound(p, q, dz, eta=1.0)
    with pytest.raises(InvalidInputError, match="same shape"):
        restricted_bound(p, q[:2], dz)
