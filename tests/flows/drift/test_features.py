import pytest
import torch
from tests.flows.drift.worlds import euler_sample, seeded, with_velocities
from torch.nn.functional import layer_norm
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import drift_sample, feature_map


def test_training_features_have_mean_zero_and_variance_one():
    sample = euler_sample(lambda t, y: t - y, r=4)
    phi = feature_map(sample, rich=True)(sample.times, sample.states)
    assert_close(phi[:, 0], torch.ones(len(sample)).double())
    assert_close(phi[:, 1:].mean(0), torch.zeros(phi.shape[1] - 1).double(), atol=1e-12, rtol=0)
    assert_close(phi[:, 1:].var(0, correction=0), torch.ones(phi.shape[1] - 1).double())


def test_columns_are_those_of_the_source():
    """y, y², LayerNorm(y), t, t², up to the affine map of the standardisation."""
    sample = euler_sample(lambda t, y: t - y, r=3)
    phi = feature_map(sample)
    raw = torch.cat(
        [sample.states, sample.states**2, layer_norm(sample.states, [3], eps=phi.floor),
         sample.times[:, None], sample.times[:, None] ** 2], 1,
    )  # fmt: skip
    assert phi.names == ("1", "y0", "y1", "y2", "y0²", "y1²", "y2²", "LN0", "LN1", "LN2", "t", "t²")
    assert_close(
        phi(sample.times, sample.states)[:, 1:], (raw - raw.mean(0)) / raw.std(0, correction=0)
    )


def test_rich_map_adds_products_and_context():
    y = torch.randn(50, 2, 3, generator=seeded(0)).double()
    c = torch.randn(50, 1, generator=seeded(1)).double()
    sample = drift_sample(y, torch.tensor([0.0, 1.0]).double(), torch.arange(50), c, ["H"])
    phi = feature_map(sample, rich=True, bilinear=2)
    assert phi.names[-2:] == ("y0·y1", "H")
    found = phi(0.0, sample.states, sample.context)[:, -2:]
    raw = torch.cat([sample.states[:, :1] * sample.states[:, 1:2], c], 1)
    assert_close(found, (raw - raw.mean(0)) / raw.std(0, correction=0))
    with pytest.raises(InvalidInputError, match="1 context columns; found None"):
        phi(0.0, sample.states)


def test_map_does_not_depend_on_the_unit_of_the_state():
    sample = euler_sample(lambda t, y: -y)
    grams = with_velocities(sample, sample.velocities)
    object.__setattr__(grams, "states", 1000 * sample.states)
    y = torch.randn(5, 3, generator=seeded(2)).double()
    assert_close(feature_map(sample)(0.1, y), feature_map(grams)(0.1, 1000 * y))


def test_constant_columns_are_dropped_by_name():
    sample = euler_sample(lambda t, y: -y * torch.tensor([1.0, 0.0]).double(), r=2, layers=2)
    sample.states[:, 1] = 7.0
    assert feature_map(sample).dropped == ("y1", "y1²", "t", "t²")


def test_time_may_be_one_number_or_one_per_row():
    sample = euler_sample(lambda t, y: t - y)
    phi, y = feature_map(sample), torch.randn(2, 5, 3, generator=seeded(3))
    assert_close(phi(0.3, y), phi(torch.full((2, 5), 0.3), y))
    assert phi(0.3, y).dtype == torch.float32


def test_nothing_that_varies_is_refused():
    flat = drift_sample(torch.ones(4, 2, 1), torch.tensor([0.0, 1.0]), torch.arange(4))
    with pytest.raises(InvalidInputError, match="all are constant"):
        feature_map(flat)
