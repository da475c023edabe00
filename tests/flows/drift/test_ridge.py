import numpy as np
import pytest
import torch
from tests.flows.drift.worlds import euler_sample, seeded, with_velocities
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import drift_sample, feature_map, group_folds, ridge_drift


def brute_force(train, test, strength):
    """Weights and held-out squared error by an augmented least-squares problem, in numpy."""
    phi = feature_map(train)
    X = phi(train.times, train.states).numpy()
    v = train.velocities.numpy()
    N, F = X.shape[0], X.shape[1] - 1
    penalty = np.hstack([np.zeros((F, 1)), np.sqrt(N * strength) * np.eye(F)])
    W = np.linalg.lstsq(np.vstack([X, penalty]), np.vstack([v, np.zeros((F, v.shape[1]))]))[0]
    guess = phi(test.times, test.states).numpy() @ W
    return W, ((guess - test.velocities.numpy()) ** 2).sum()


def noisy_rotation(noise=0.1, **options):
    A = torch.tensor([[-0.5, 2.0, 0.0], [-2.0, -0.5, 0.0], [0.0, 0.3, -1.0]]).double()
    sample = euler_sample(lambda t, y: y @ A.T, **options)
    shaken = noise * torch.randn(sample.velocities.shape, generator=seeded(9)).double()
    return A, with_velocities(sample, sample.velocities + shaken)


def test_linear_drift_is_recovered():
    A, sample = noisy_rotation(noise=0.1, n=2000)
    y = torch.randn(500, 3, generator=seeded(1)).double()
    off = ridge_drift(sample)(0.4, y) - y @ A.T
    # 10,000 pairs with noise 0.1 and 11 features: 0.1·√(11/10⁴) = .0033 per coordinate.
    assert off.square().mean().sqrt() < 0.01


def test_exact_flow_gives_its_difference_quotient_and_not_its_generator():
    A = torch.tensor([[-1.0, 3.0], [-3.0, -1.0]]).double()
    times = torch.linspace(0, 1, 6).double()
    start = torch.randn(300, 2, generator=seeded(0)).double()
    flow = torch.stack([start @ torch.matrix_exp(t * A).T for t in times], 1)
    b = ridge_drift(drift_sample(flow, times, torch.arange(300)), strengths=[1e-10])
    quotient = (torch.matrix_exp(A / 5) - torch.eye(2).double()) * 5
    y = torch.randn(9, 2, generator=seeded(1)).double()
    assert_close(b(0.3, y), y @ quotient.T, atol=1e-5, rtol=1e-5)
    assert (y @ quotient.T - y @ A.T).abs().max() > 0.1


def test_weights_and_errors_are_those_of_brute_force():
    _, sample = noisy_rotation(n=40, layers=4, noise=1.0)
    strengths = (1e-3, 1e-1, 1.0)
    found = ridge_drift(sample, strengths=strengths, folds=4)
    fold = group_folds(sample.groups, 4)
    for strength in strengths:
        missed = [
            brute_force(sample.at(fold != k), sample.at(fold == k), strength)[1] for k in range(4)
        ]
        np.testing.assert_allclose(found.errors[strength], sum(missed) / len(sample), rtol=1e-6)
    W, _ = brute_force(sample, sample, found.strength)
    np.testing.assert_allclose(found.weights, W, atol=1e-8)
    assert found.strength == min(found.errors, key=found.errors.get)


def test_noise_asks_for_a_stronger_ridge_than_none():
    weak, strong = noisy_rotation(noise=0.0, n=60)[1], noisy_rotation(noise=20.0, n=60)[1]
    tried = (1e-6, 1e-2, 1e2)
    assert ridge_drift(weak, strengths=tried).strength == 1e-6
    assert ridge_drift(strong, strengths=tried).strength > 1e-6


def test_units_of_state_and_velocity_do_not_change_the_choice():
    _, sample = noisy_rotation(n=40, noise=1.0)
    other = with_velocities(sample, 50 * sample.velocities)
    object.__setattr__(other, "states", 50 * sample.states)
    first, second = ridge_drift(sample), ridge_drift(other)
    y = torch.randn(4, 3, generator=seeded(3)).double()
    assert first.strength == second.strength
    assert_close(50 * first(0.2, y), second(0.2, 50 * y))


def test_rank_is_one_less_than_the_features_because_layer_norm_sums_to_zero():
    """Nearly: ε in LayerNorm does not disturb the sum."""
    found = ridge_drift(noisy_rotation()[1])
    assert found.rank == len(found.features) - 2


def test_context_helps_where_the_drift_depends_on_it():
    rate = torch.randn(200, 1, generator=seeded(4)).double()
    y = torch.randn(200, 1, 2, generator=seeded(5)).double()
    paths = torch.cat([y, y + rate[:, None]], 1)
    sample = drift_sample(paths, torch.tensor([0.0, 1.0]).double(), torch.arange(200), rate)
    rich, plain = ridge_drift(sample, rich=True), ridge_drift(sample)
    assert min(rich.errors.values()) < 1e-3 < 0.5 < min(plain.errors.values())
    assert_close(rich(0.0, y[:, 0], rate), rate.expand(-1, 2), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"folds": 101}, "101 folds for 100 prompts"), ({"strengths": [0.0]}, "must be positive")],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        ridge_drift(noisy_rotation()[1], **options)


def test_a_world_at_rest_is_refused():
    _, sample = noisy_rotation()
    with pytest.raises(InvalidInputError, match="all be zero"):
        ridge_drift(with_velocities(sample, torch.zeros_like(sample.velocities)))
    still = drift_sample(
        torch.tensor([[[1.0], [2.0]]]).repeat(9, 1, 1), torch.tensor([0.0, 1.0]), torch.arange(9)
    )
    with pytest.raises(InvalidInputError, match="states must differ"):
        ridge_drift(still)
