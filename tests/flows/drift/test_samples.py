import pytest
import torch
from tests.flows.drift.worlds import euler_paths, euler_sample, seeded
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import as_drift, carried, drift_sample, mean_drift, persistence


def test_pairs_of_euler_paths_hold_the_field_itself():
    def field(t, y):
        return t - y**2

    sample = euler_sample(field)
    assert_close(sample.velocities, field(sample.times[:, None], sample.states))


def test_pairs_rebuild_their_path():
    paths = torch.randn(3, 5, 2, generator=seeded(1), dtype=torch.float64)
    times = torch.tensor([0.0, 0.1, 0.4, 0.5, 1.0], dtype=torch.float64)
    sample = drift_sample(paths, times, torch.tensor([4, 4, 9]))
    steps = (sample.velocities.reshape(3, 4, 2) * times.diff()[:, None]).cumsum(1)
    assert_close(paths[:, :1] + steps, paths[:, 1:])
    assert sample.groups.tolist() == [4] * 8 + [9] * 4
    assert_close(sample.times.reshape(3, 4), times[:-1].expand(3, 4))


def test_context_of_a_token_goes_with_each_of_its_steps():
    paths, times, prompts = torch.randn(2, 4, 1), torch.linspace(0, 1, 4), torch.tensor([0, 1])
    fixed = drift_sample(paths, times, prompts, torch.tensor([[5.0], [6.0]]), ["entropy"])
    assert fixed.context.flatten().tolist() == [5.0] * 3 + [6.0] * 3
    assert fixed.context_names == ("entropy",)
    moving = drift_sample(paths, times, prompts, torch.arange(6.0).reshape(2, 3, 1))
    assert moving.context.flatten().tolist() == list(range(6))


def test_persistence_is_zero_and_leaves_a_path_where_it_is():
    y = torch.randn(4, 3)
    assert_close(persistence()(0.3, y), torch.zeros(4, 3))
    path = euler_paths(persistence(), y, torch.linspace(0, 1, 5))
    assert_close(path, y[:, None].expand(-1, 5, -1))


def test_mean_drift_is_the_mean_of_each_layer_and_held_until_the_next():
    sample = euler_sample(lambda t, y: t + y, n=40)
    b = mean_drift(sample)
    at = sample.times.unique()
    for t in at:
        mean = sample.velocities[sample.times == t].mean(0)
        assert_close(b(t, torch.zeros(2, 3).double()), mean.expand(2, 3))
        assert_close(b(t + 0.1, torch.zeros(2, 3).double()), mean.expand(2, 3))
    rows = b(at, torch.zeros(len(at), 3).double())
    assert_close(rows[1], b(at[1].item(), torch.zeros(1, 3).double())[0])


def test_a_carried_context_is_held_fixed():
    b = as_drift(lambda t, y, c: c * y, name="own rate")
    held = carried(b, torch.tensor([[1.0], [2.0]]))
    assert_close(held(0.0, torch.ones(2, 1)), torch.tensor([[1.0], [2.0]]))
    assert held.name == "own rate"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"times": torch.tensor([0.0, 0.5, 0.5])}, "increase strictly"),
        ({"times": torch.tensor([0.0, 0.5])}, "need times"),
        ({"paths": torch.zeros(2, 1, 1)}, "at least two layers"),
        ({"paths": torch.full((2, 3, 1), torch.nan)}, "finite"),
        ({"context": torch.zeros(3, 1)}, "context must have shape"),
        ({"context": torch.zeros(2, 1), "context_names": ["a", "b"]}, "one name per context"),
    ],
)
def test_a_sample_that_makes_no_sense_is_refused(change, words):
    arguments = {
        "paths": torch.zeros(2, 3, 1), "times": torch.tensor([0.0, 0.5, 1.0]),
        "groups": torch.tensor([0, 1]),
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=words):
        drift_sample(**(arguments | change))


def test_a_drift_of_another_shape_is_refused():
    with pytest.raises(InvalidInputError, match="must return the shape of y"):
        as_drift(lambda t, y: y[:, :1], name="narrow")(0.0, torch.zeros(2, 3))
