import pytest
import torch
from tests.flows.drift.worlds import euler_sample, one_step_error, seeded, waves, with_velocities
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import Training, perceptron_drift, ridge_drift


@pytest.fixture(scope="module")
def world():
    return tuple(euler_sample(waves, n=1500, r=2, layers=4, seed=s) for s in (0, 1))


def test_nonlinear_drift_beats_ridge(world):
    sample, new = world
    found = perceptron_drift(sample, width=64, generator=seeded(0))
    assert one_step_error(found, new) < 0.1 * one_step_error(ridge_drift(sample), new)


def test_same_seed_same_weights_and_the_global_generator_is_not_touched(world):
    short = Training(epochs=2)
    before = torch.get_rng_state()
    first, second, other = (
        perceptron_drift(world[0], width=8, generator=seeded(s), training=short) for s in (3, 3, 4)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.layers[0][0], second.layers[0][0])
    assert not torch.equal(first.layers[0][0], other.layers[0][0])


def test_weights_are_those_of_the_best_epoch(world):
    """On noise the held-out error has its minimum early, and training stops soon after it."""
    sample = world[0].at(world[0].groups < 60)
    noise = torch.randn(sample.velocities.shape, generator=seeded(5)).double()
    options = Training(epochs=40, patience=3)
    found = perceptron_drift(with_velocities(sample, noise), generator=seeded(0), training=options)
    best = found.errors.index(min(found.errors))
    assert len(found.errors) == best + 1 + 3
    energy = noise.square().sum(1).mean().item()
    assert one_step_error(found, with_velocities(sample, noise)) < 1.3 * energy


def test_spectral_bound_holds_for_every_layer_and_for_the_map(world):
    found = perceptron_drift(
        world[0], width=16, generator=seeded(0), spectral=0.7, training=Training(epochs=3)
    )
    norms = [torch.linalg.matrix_norm(W, 2).item() for W, _ in found.layers]
    assert max(norms) <= 0.7 * (1 + 1e-5)
    assert max(norms) > 0.69
    phi = found.features(world[0].times, world[0].states)
    v = found(world[0].times, world[0].states) / found.scale
    slope = (v[1:] - v[:-1]).norm(dim=1) / (phi[1:] - phi[:-1]).norm(dim=1)
    assert slope.max() <= 0.7**3


def test_a_drift_has_slopes_and_can_be_fitted_without_gradients(world):
    short = Training(epochs=1)
    with torch.no_grad():
        found = perceptron_drift(world[0], width=8, generator=seeded(0), training=short)
    y = torch.randn(3, 2, generator=seeded(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: found(0.3, x), y.requires_grad_())


def test_leading_axes_are_kept(world):
    found = perceptron_drift(world[0], width=8, generator=seeded(0), training=Training(epochs=1))
    y = torch.randn(4, 5, 2)
    assert_close(found(0.3, y), found(0.3, y.reshape(-1, 2)).reshape(4, 5, 2))


def test_one_prompt_is_refused(world):
    with pytest.raises(InvalidInputError, match="needs two prompts"):
        perceptron_drift(world[0].at(world[0].groups == 0), generator=seeded(0))
    with pytest.raises(InvalidInputError, match="spectral must be a positive"):
        perceptron_drift(world[0], generator=seeded(0), spectral=-1.0)


def test_prompts_that_stop_the_training_are_not_trained_on(world):
    """Velocities of length one in random directions: what is not seen is not guessed."""
    sample = world[0].at(world[0].groups < 15)
    wind = torch.randn(sample.velocities.shape, generator=seeded(8)).double()
    noise = with_velocities(sample, torch.nn.functional.normalize(wind))
    options = Training(epochs=60, patience=60)
    found = perceptron_drift(noise, generator=seeded(0), training=options)
    assert one_step_error(found, noise) < found.errors[-1]
    assert min(found.errors) > 0.85
