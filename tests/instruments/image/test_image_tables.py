"""Tables of the image track from planted readings."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import MixtureModel
from flowscope.instruments.image.parity.paths import PathRuns, principal_axes_of, rotation_windows
from flowscope.instruments.image.parity.tables import path_tables
from flowscope.instruments.image.stage import half_width, merged_groups
from flowscope.instruments.image.uturn.measure import (
    Turns,
    _correlations,
    _unit,
    _unrelated,
    uturn_table,
)


def turns(before, after, correlation):
    return Turns(
        times=[500], steps=[4], before=np.asarray(before), after=np.asarray([after]),
        correlation=np.asarray([correlation]), unrelated=0.25, shown=np.zeros((2, 1, 1, 2, 2)),
    )  # fmt: skip


def test_shares_have_wilsons_interval_and_the_chance_of_any_pairing():
    before, after = [0, 0, 1, 1, 2, 2, 2, 0], [0, 0, 1, 0, 2, 2, 1, 0]
    row = uturn_table(turns(before, after, [0.5] * 8), MixtureModel()).iloc[0]
    wilson = binomtest(6, 8).proportion_ci(method="wilson")
    assert (row["same_class"], row["low"], row["high"]) == pytest.approx(
        (0.75, wilson.low, wilson.high)
    )
    assert row["chance"] == pytest.approx(np.mean([[a == b for a in after] for b in before]))
    assert row["correlation_chance"] == 0.25
    assert row["entropy_at_least"] == pytest.approx(-math.log(0.75))


def test_chance_of_equal_classes_is_one_over_their_number():
    draws = np.random.default_rng(0)
    found = [
        uturn_table(turns(draws.integers(10, size=12), [0] * 12, [0.0] * 12), MixtureModel())
        for _ in range(400)
    ]
    assert np.mean([t["chance"].iloc[0] for t in found]) == pytest.approx(0.1, abs=0.01)


def test_chance_of_evenly_drawn_classes_is_not_that_of_pairs_of_different_images():
    """40 images, four of each of ten classes: .10, where pairs of different images have .077."""
    before = np.arange(40) % 10
    after = np.random.default_rng(0).permutation(before)
    table = uturn_table(turns(before, after, [0.0] * 40), MixtureModel())
    assert table["chance"].iloc[0] == pytest.approx(0.1, abs=1e-12)


def test_closed_forms_are_not_shown_where_sides_are_not_arms():
    told = turns([0] * 8, [0] * 8, [0.5] * 8)
    assert 0.5 <= uturn_table(told, MixtureModel())["exact"].iloc[0] <= 1
    assert math.isnan(uturn_table(told, MixtureModel(mu=1.0, s2=1.0))["exact"].iloc[0])
    nobody = turns([-1] * 8, [-1] * 8, [0.5, np.nan] * 4)
    row = uturn_table(nobody, MixtureModel()).iloc[0]
    assert math.isnan(row["same_class"])
    assert row["correlation"] == 0.5


def test_unrelated_images_are_compared_over_all_pairs():
    images = torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    wanted = [
        float(_correlations(images[i : i + 1], images[j : j + 1])[0])
        for i in range(6)
        for j in range(6)
        if i != j
    ]
    parts = [_unit(part).sum(0).numpy() for part in torch.split(images, 4)]
    assert _unrelated(np.sum(parts, axis=0), 6) == pytest.approx(np.mean(wanted))
    assert math.isnan(_unrelated(parts[0], 1))


def test_sums_along_paths():
    """Three equal steps on a straight line: length 3, tortuosity 1, quadratic variation 3."""
    ones = np.ones((3, 8, 3))
    told = PathRuns(
        times=np.asarray([2000, 1000, 0]), counts=np.zeros((3, 8, 3, 1, 4), np.int32),
        fine=np.zeros((2, 8, 3, 1, 4), np.int32),
        outside=np.zeros((3, 3)), sizes=ones, displacement=np.full((3, 8), 3.0),
        points=np.zeros(0, np.float32), scores=np.zeros(0, np.float32),
        shown=np.zeros(0, np.float32), finals=np.zeros(0, np.float32),
    )  # fmt: skip
    config = ImageConfig.resolved({"images": 8})
    steps, whole = path_tables(told, MixtureModel(), config)
    first = whole.set_index("sampler").loc["ode"]
    assert (first["variation"], first["tortuosity"], first["quadratic"]) == (3, 1, 3)
    assert (steps["size"] == 1).all()
    clock = -0.5 * math.log(MixtureModel().levels[-1]) + 0.5 * math.log(MixtureModel().levels[0])
    expected = whole.set_index("sampler")["expected_quadratic"]
    assert (expected["ode"], expected["sde"]) == (0, pytest.approx(2 * clock))


def test_windows_hold_every_inner_step_once():
    config = ImageConfig.resolved({"steps": 16, "rotation_times": 3})
    windows = rotation_windows(config)
    assert [len(w) for w in windows] == [5, 5, 5]
    assert sorted(step for window in windows for step in window) == list(range(1, 16))
    assert rotation_windows(ImageConfig.resolved({"rotation_times": 0})) == []
    assert len(rotation_windows(ImageConfig.resolved({"steps": 4, "rotation_times": 20}))) == 3


def test_axes_are_those_of_the_largest_spread():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 5, generator=generator) * torch.tensor([3.0, 1.0, 0.1, 0.1, 0.1]) + 7
    found = principal_axes_of(x.numpy(), 2)
    assert found.axes.shape == (5, 2)
    assert abs(float(found.axes[0, 0])) > 0.99
    y = found.coordinates(x.double(), 1.0)
    assert float(y.mean(0).abs().max()) < 1e-5
    assert principal_axes_of(x[:3].numpy(), 4).axes.shape == (5, 2)


def test_bins_widen_with_the_noise():
    model = MixtureModel()
    assert half_width(model, 0) == pytest.approx(model.amplitude, rel=0.03)
    assert half_width(model, len(model.levels) - 1) == pytest.approx(4, rel=0.03)
    counts = torch.arange(10).reshape(5, 1, 2)
    assert merged_groups(counts, 2).tolist() == [[[2, 4]], [[10, 12]], [[8, 9]]]
