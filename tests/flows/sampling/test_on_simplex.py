"""Flows on the simplex: closed forms, invariants, and two coordinates that must agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import replicator_path
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import simplex_flow
from flowscope.simplex import replicator_flow

COORDINATES = ["probabilities", "logits"]
GAME = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]], dtype=torch.float64)
START = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def game(t, p):
    return p @ GAME.mT


@pytest.mark.parametrize("coordinates", COORDINATES)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_a_constant_drift_is_the_replicator_flow(coordinates, seed):
    rng = np.random.default_rng(seed)
    p0, b = rng.dirichlet(np.ones(5), 3), rng.standard_normal(5) * 3
    drift = torch.tensor(b).expand(3, 5)
    path = simplex_flow(p0, lambda t, p: drift, [0.0, 0.7, 2.0], coordinates=coordinates)
    assert path.status == "ok"
    for k, t in enumerate([0.0, 0.7, 2.0]):
        exact = np.stack([replicator_path(row, b, t) for row in p0])
        np.testing.assert_allclose(path.states[k].numpy(), exact, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_rock_paper_scissors_keeps_the_product_and_returns(coordinates):
    """E10: Π p is conserved, and the orbit that left its start comes back to it."""
    times = np.linspace(0, 24, 961)
    path = simplex_flow(START, game, times, rtol=1e-9, atol=1e-12, coordinates=coordinates)
    product = path.states.prod(-1)
    assert_close(product, product[0].expand_as(product), rtol=1e-6, atol=0)
    away = (path.states - START).abs().amax(-1).numpy()
    left = int(np.argmax(away > 0.2))
    assert away[left:].min() < 5e-3


def test_the_two_coordinates_agree_on_a_drift_of_time_and_state():
    def drift(t, p):
        return torch.sin(3 * t) * GAME[0] + (p @ GAME) ** 2

    both = [
        simplex_flow(START, drift, [0.0, 1.0, 4.0], rtol=1e-9, atol=1e-12, coordinates=c).states
        for c in COORDINATES
    ]
    assert_close(both[0], both[1], rtol=1e-6, atol=1e-9)


@settings(max_examples=8, deadline=None)
@given(st.floats(-50, 50))
def test_a_constant_added_to_the_drift_changes_nothing(shift):
    plain, moved = (
        simplex_flow(START, lambda t, p, c=c: game(t, p) + c, [0.0, 2.0], rtol=1e-8).states
        for c in (0.0, shift)
    )
    assert_close(plain, moved, rtol=1e-6, atol=1e-8)


def test_mass_is_kept_to_rounding_without_projection():
    path = simplex_flow(START, game, np.linspace(0, 20, 50))
    assert path.mass_error < 1e-13
    assert (path.projections, path.most_negative) == (0, 0.0)


def test_an_outcome_without_mass_never_gets_any():
    p0 = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64)
    path = simplex_flow(p0, game, [0.0, 3.0])
    assert path.states[-1, 2] == 0.0
    assert_close(path.states[-1].sum(), torch.tensor(1.0, dtype=torch.float64))


def rushed(tolerance, coordinates="probabilities"):
    """A strong drift at a loose tolerance: the small entries are pushed below zero."""
    p0 = torch.tensor([[0.98, 0.01, 0.01], [0.5, 0.3, 0.2]], dtype=torch.float64)
    b = torch.tensor([400.0, 0.0, -300.0], dtype=torch.float64).expand(2, 3)
    return simplex_flow(
        p0,
        lambda t, p: torch.cos(40 * t) * b,
        np.linspace(0, 1, 41),
        rtol=0.3,
        atol=0.05,
        tolerance=tolerance,
        coordinates=coordinates,
    )


def test_states_that_left_the_simplex_are_projected_counted_and_told():
    path = rushed(1e-6)
    assert path.status == "left the simplex"
    assert "below zero" in path.because
    assert path.projections > 0
    assert path.stage_projections > 0
    assert path.most_negative < -1e-6
    assert path.states.min() >= 0
    assert_close(path.states.sum(-1), torch.ones(41, 2, dtype=torch.float64))


def test_within_the_tolerance_projections_are_only_counted():
    path = rushed(1.0)
    assert path.status == "ok"
    assert path.projections > 0


def test_logits_never_leave_the_simplex():
    path = rushed(1e-6, "logits")
    assert (path.status, path.projections, path.most_negative) == ("ok", 0, 0.0)
    assert path.mass_error < 1e-12


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_drift_that_blows_up_is_no_number(coordinates):
    path = simplex_flow(
        START, lambda t, p: GAME[0] * torch.log(1 - t), [0.0, 0.5, 2.0], coordinates=coordinates
    )
    assert path.status == "diverged"
    assert path.states[1].isfinite().all()
    assert path.states[2].isnan().all()


def test_single_precision_stays_single():
    path = simplex_flow(
        START.float(), lambda t, p: GAME[0].float(), [0.0, 1.0], rtol=1e-5, atol=1e-7
    )
    assert path.states.dtype == torch.float32
    assert_close(
        path.states[-1], replicator_flow(START.float(), GAME[0].float(), 1.0), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"p0": [0.5, 0.6]}, "sum to one"),
        ({"p0": [1.2, -0.2]}, "negative"),
        ({"p0": [1.0, 0.0], "coordinates": "logits"}, "never gets any"),
        ({"coordinates": "angles"}, "'logits'"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"times": [1.0, 1.0]}, "times must"),
        ({"drift": lambda t, p: p[0]}, "shape of x"),
    ],
)
def test_bad_input_gets_a_sentence(change, words):
    given_ = {"p0": [0.5, 0.5], "drift": lambda t, p: p, "times": [0.0, 1.0], **change}
    first = [given_.pop(k) for k in ("p0", "drift", "times")]
    with pytest.raises(InvalidInputError, match=words):
        simplex_flow(*first, **given_)
