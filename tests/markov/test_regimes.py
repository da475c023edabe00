"""Labels and the walk lengths behind them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.markov.irreversibility import entropy_production
from flowscope.markov.regimes import judged, regime, steps_to_tell
from flowscope.markov.stationary import stationary_distribution


def ring(p, q):
    eye = torch.eye(3, dtype=torch.float64)
    return p * eye.roll(1, -1) + q * eye.roll(-1, -1) + (1 - p - q) * eye


def head(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(*shape, generator=generator, dtype=dtype), -1)


def test_the_label_changes_where_the_odds_reach_the_level():
    P, sigma = ring(0.3, 0.2), 0.1 * math.log(1.5)
    needed = math.log(1 / 0.05) / sigma
    below, above = math.floor(needed), math.ceil(needed)
    assert regime(P, None, steps=below).item() == "equilibrium"
    assert regime(P, None, steps=above).item() == "steady state"
    assert_close(steps_to_tell(sigma).item(), needed)
    assert regime(P, None, steps=below, level=0.2).item() == "steady state"


def test_an_observer_of_that_many_steps_has_those_mean_odds():
    """Simulated walks: mean log-odds of the direction are steps·EP."""
    p, q, steps, walks = 0.3, 0.2, 200, 4000
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(walks, steps, generator=generator)
    net = (u < p).sum(-1) - ((u >= p) & (u < p + q)).sum(-1)
    odds = net * math.log(p / q)
    sigma = entropy_production(ring(p, q), stationary_distribution(ring(p, q))).item()
    error = odds.double().std() / math.sqrt(walks)
    assert abs(odds.double().mean() - steps * sigma) < 4 * error
    assert error < 0.03 * steps * sigma


def test_a_reversible_chain_is_in_equilibrium_for_as_long_as_one_likes():
    K = head(8, 8) + head(8, 8).mT
    P = K / K.sum(-1, keepdim=True)
    assert regime(P, stationary_distribution(P), steps=1e12).item() == "equilibrium"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_stationary_law_nothing_is_driven(dtype):
    P = head(4, 40, 40, dtype=dtype)
    law = stationary_distribution(P)
    assert (regime(P, law, steps=1e18) == "steady state").all()
    assert (regime(P, law.to(dtype), steps=1e18) == "steady state").all()


def test_away_from_it_a_chain_is_driven_once_the_move_can_be_seen():
    P = head(8, 8)
    law = torch.full((8,), 1 / 8, dtype=torch.float64)
    step = law @ P
    divergence = (step * (step / law).log()).sum().item()
    needed = math.log(20) / divergence
    assert regime(P, None, steps=math.ceil(needed)).item() == "driven"
    assert regime(P, None, steps=math.floor(needed)).item() != "driven"


def test_mass_on_new_tokens_is_driven_at_once():
    assert regime(ring(0.3, 0.2), [1.0, 0.0, 0.0], steps=1).item() == "driven"


def test_a_one_way_ring_is_a_steady_state_at_once():
    assert regime(ring(0.5, 0.0), None, steps=1).item() == "steady state"


def test_labels_keep_the_shape_of_the_batch():
    P = torch.stack([ring(0.3, 0.3), ring(0.4, 0.1)])[:, None]
    assert regime(P, None, steps=50).tolist() == [["equilibrium"], ["steady state"]]


def test_a_causal_kernel_has_no_label():
    P = head(4, 4).tril()
    with pytest.raises(InvalidInputError, match="regime of a causal kernel"):
        regime(P / P.sum(-1, keepdim=True), None, steps=10)


def test_steps_to_tell_at_the_ends():
    assert steps_to_tell([0.0, math.inf]).tolist() == [math.inf, 0.0]


def test_an_interval_is_judged_by_both_ends():
    low, high = np.array([-0.1, 0.1, 0.4, 0.4]), np.array([0.2, 0.5, 0.5, math.inf])
    labels = judged(low, high, steps=10)
    assert labels.tolist() == ["equilibrium", "undecided", "steady state", "steady state"]
    assert judged(0.2, 0.2, steps=10).item() == "equilibrium"


def test_a_point_interval_is_judged_as_its_point():
    for seed in range(5):
        P = head(5, 5, seed=seed)
        pi = stationary_distribution(P)
        sigma = entropy_production(P, pi)
        for steps in (2, 10, 100):
            same = regime(P, pi, steps=steps).item()
            assert judged(sigma, sigma, steps=steps).item() == same


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: regime(ring(0.3, 0.2), None, steps=0), "steps"),
        (lambda: regime(ring(0.3, 0.2), None, steps=math.inf), "steps"),
        (lambda: regime(ring(0.3, 0.2), None, steps=5, level=0.0), "level"),
        (lambda: steps_to_tell(-1.0), "entropy_production"),
        (lambda: steps_to_tell(math.nan), "entropy_production"),
        (lambda: judged(0.5, 0.2, steps=5), "lower end"),
        (lambda: judged(math.nan, 0.2, steps=5), "low"),
    ],
)
def test_arguments_are_checked(call, said):
    with pytest.raises(InvalidInputError, match=said):
        call()


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.floats(0.0, 1.0), st.floats(1.0, 1e9))
def test_a_chain_of_two_states_is_never_a_steady_state(a, b, start, steps):
    P = [[1 - a, a], [b, 1 - b]]
    assert regime(P, None, steps=steps).item() != "steady state"
    assert regime(P, [start, 1 - start], steps=steps).item() != "steady state"


def test_a_reversible_chain_that_relaxes_is_no_steady_state():
    """At the uniform law it produces entropy, because it relaxes and not because it circulates."""
    P = [[0.9, 0.1], [0.3, 0.7]]
    produced = entropy_production(torch.tensor(P), torch.tensor([0.5, 0.5])).item()
    steps = 1.01 * math.log(20) / produced
    assert regime(P, None, steps=steps).item() != "steady state"
