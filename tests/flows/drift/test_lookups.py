"""Forecasts by the name and the place of a token alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import chosen_lookup, label_means, lookup_paths

TOKENS, PLACES, STATES, R = 5, 4, 6, 3
LABELS = torch.cartesian_prod(torch.arange(TOKENS), torch.arange(PLACES))


def additive(seed):
    """Paths that are a mean, a path of the token and a path of the position."""
    g = torch.Generator().manual_seed(seed)
    mean, tokens, places = (
        torch.randn(n, STATES, R, generator=g, dtype=torch.float64) for n in (1, TOKENS, PLACES)
    )
    return mean + tokens[LABELS[:, 0]] + places[LABELS[:, 1]]


def noise(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(len(LABELS), STATES, R, generator=g, dtype=torch.float64)


@given(st.integers(0, 2**31 - 1))
@settings(max_examples=20, deadline=None)
def test_additive_paths_are_forecast_exactly_from_any_first_state(seed):
    y = additive(seed)
    held = torch.zeros(len(y), dtype=torch.bool)
    held[seed % len(y)] = True  # every token and every place is still seen elsewhere
    lookup = label_means(y[~held], LABELS[~held], (0.0, 0.0))
    near, onward = lookup_paths(lookup, y[held], LABELS[held])
    torch.testing.assert_close(onward, y[held, 1:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(near, y[held, 1:], rtol=1e-6, atol=1e-6)


def test_effects_solve_the_ridge_regression():
    y, kappa = additive(1) + noise(1), (0.7, 3.0)
    lookup = label_means(y, LABELS, kappa)
    design = torch.cat(
        [torch.nn.functional.one_hot(LABELS[:, k]) for k in (0, 1)], 1
    ).double()  # fmt: skip
    penalty = torch.diag(torch.tensor([kappa[0]] * TOKENS + [kappa[1]] * PLACES).double())
    right = design.mT @ (y - y.mean(0)).flatten(1)
    exact = torch.linalg.solve(design.mT @ design + penalty, right).reshape(-1, STATES, R)
    torch.testing.assert_close(torch.cat(lookup.effects), exact, rtol=1e-6, atol=1e-7)


def test_rest_fades_at_its_rate_onward():
    g = torch.Generator().manual_seed(2)
    rates = torch.tensor([0.5, -0.25, 2.0], dtype=torch.float64)
    start = torch.randn(30, 1, 2, generator=g, dtype=torch.float64)
    growth = torch.cat([torch.ones(1).double(), rates.cumprod(0)])
    y = start * growth[:, None]
    none = torch.zeros(30, 0, dtype=torch.int64)
    lookup = label_means(y - y.mean(0), none, ())
    torch.testing.assert_close(lookup.rates, rates)
    onward = lookup_paths(lookup, (y - y.mean(0))[:4], none[:4])[1]
    torch.testing.assert_close(onward, (y - y.mean(0))[:4, 1:])


def test_unseen_and_left_out_labels_give_the_mean_path():
    y = additive(3)
    lookup = label_means(y, LABELS, (0.0, math.inf))
    assert not lookup.effects[1].any()
    unseen = lookup.means(torch.tensor([[TOKENS + 4, 0], [-1, PLACES]]))
    torch.testing.assert_close(unseen, y.mean(0).expand(2, -1, -1))


def test_one_pseudo_count_halves_a_label_seen_once():
    y = torch.tensor([[[0.0], [0.0]], [[0.0], [4.0]]])
    effects = label_means(y, torch.tensor([[0], [1]]), (1.0,)).effects[0]
    torch.testing.assert_close(effects[:, 1, 0], torch.tensor([-1.0, 1.0]).double())


@pytest.mark.parametrize(("spread", "kept"), [(3.0, True), (0.0, False)])
def test_labels_are_used_where_they_say_something(spread, kept):
    g = torch.Generator().manual_seed(4)
    labels = torch.randint(8, (400, 1), generator=g)
    paths = spread * torch.randn(8, STATES, R, generator=g)
    y = paths[labels[:, 0]] + torch.randn(400, STATES, R, generator=g)
    chosen = chosen_lookup(y, labels, torch.arange(400) % 5 == 0)
    assert (chosen.shrinkage[0] <= 2) is kept
    assert kept or chosen.shrinkage[0] >= 8


def test_shapes_that_do_not_fit_are_refused():
    y = torch.zeros(3, 2, 1)
    with pytest.raises(InvalidInputError, match="one row per path"):
        label_means(y, torch.zeros(2, 1, dtype=torch.int64), (1.0,))
    with pytest.raises(InvalidInputError, match="one column per"):
        label_means(y, torch.zeros(3, 1, dtype=torch.int64), (1.0, 1.0))
    with pytest.raises(InvalidInputError, match="all are spare"):
        label_means(y, torch.zeros(3, 1, dtype=torch.int64), (1.0,), torch.ones(3).bool())
    with pytest.raises(InvalidInputError, match="at least one shrinkage"):
        chosen_lookup(y, torch.zeros(3, 1, dtype=torch.int64), torch.tensor([1, 0, 0]).bool(), ())
