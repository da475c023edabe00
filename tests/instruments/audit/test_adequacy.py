"""P1 on paths whose law is known: a flow is found where there is one, and only there."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.instruments.audit.synthetic_paths import LAYERS, PROMPTS, WIDTH, flow_paths, paths_of

from flowscope.evidence import resampled_counts
from flowscope.flows import drift
from flowscope.instruments.audit.adequacy import cross_forecasts as crossed
from flowscope.instruments.audit.adequacy import tables
from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts
from flowscope.instruments.audit.adequacy.forecasts import halves
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.records import Unavailable

A = torch.tensor(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)), dtype=torch.float32)
COUNTS = resampled_counts(PROMPTS, resamples=50, seed=0)


def segment(first=1, last=LAYERS):
    absent = Unavailable("synthetic")
    return SegmentEvidence(
        first=first, last=last, kind="segment", relative_variation=0.1, interval=absent,
        share_above=0.0, mass_residual=0.0, mass_bound=1.0, threshold=0.15,
        random_weights=absent, linear_interpolation=absent,
    )  # fmt: skip


@pytest.fixture(scope="module")
def flowing():
    return cross_forecasts(flow_paths(A), segment(), rank=WIDTH)


@pytest.fixture
def only_ridge(monkeypatch):
    monkeypatch.setattr(crossed, "KINDS", ("ridge",))


def test_a_linear_flow_is_forecast(flowing):
    assert flowing.chosen == ("ridge", "ridge")
    skill = tables.skill_of([flowing], "onward", COUNTS, 0)
    assert float(skill.numbers()) > 0.9
    assert float(skill.interval.low) > 0.85
    assert flowing.stopped == ""


def test_all_coordinates_leave_no_floor(flowing):
    floor = tables.skill_of([flowing], "onward", COUNTS, 0, "floor")
    assert float(floor.numbers()) > 0.999
    assert_allclose(flowing.coordinates.shares.sum(), 1.0, rtol=1e-6)


def test_every_prompt_is_forecast_by_a_drift_that_has_not_seen_it(flowing):
    assert set(flowing.prompt) == set(range(PROMPTS))
    second = halves(PROMPTS, 0)
    assert second.sum() == PROMPTS // 2


def test_tables_tell_every_layer_and_forecast(flowing):
    table = tables.adequacy_table([flowing], COUNTS)
    onward = table[table["horizon"] == "onward"]
    assert set(onward["forecast"]) == {
        "flow", "ridge", "neighbours", "perceptron", "mean", "scaled", "lookup", "persistence",
        "floor", "line",
    }  # fmt: skip
    assert sorted(set(table["layer"])) == list(range(1, LAYERS + 1))
    still = onward[onward["forecast"] == "persistence"]
    assert_allclose(still["skill"], 0.0, atol=1e-12)
    clouds = tables.cloud_table([flowing], 0)
    by = clouds.set_index(["forecast", "layer"])["mmd"]
    assert by["flow", LAYERS] < by["persistence", LAYERS]
    fits = tables.fit_table([flowing])
    assert fits.groupby("half")["chosen"].sum().tolist() == [1, 1]


def test_clouds_are_those_of_each_layer_alone(flowing):
    every = -(-len(flowing.prompt) // 192)
    groups, told = torch.from_numpy(flowing.prompt[::every]), tables.cloud_table([flowing], 3)
    still = flowing.y[:, :1].expand(-1, LAYERS, -1)
    for name, cloud in (("flow", flowing.predicted), ("persistence", still)):
        for row in told[told["forecast"] == name].itertuples():
            x, y = cloud[::every, row.layer - 1], flowing.y[::every, row.layer]
            generator = torch.Generator().manual_seed(3)
            drawn = drift.ks_draws(x, y, groups, draws=100, generator=generator).amax(1)
            kernel = drift.gaussian_kernel(drift.median_distance(x, y))
            found = drift.discrepancy(x, y, groups, kernel=kernel, draws=100, generator=generator)
            assert row.ks == float(drift.ks_distance(x, y).max())
            assert (row.ks_low, row.ks_high) == tuple(np.quantile(drawn, [0.025, 0.975]))
            assert row.mmd == found.value
            assert (row.mmd_low, row.mmd_high) == tuple(np.quantile(found.draws, [0.025, 0.975]))
        rows = told[told["forecast"] == name].drop(columns=["layer", "forecast"])
        generator = torch.Generator().manual_seed(3)
        pair = cloud[::every], flowing.y[::every, 1:]
        together = list(tables._layer_clouds(*pair, groups, generator))
        assert together == rows.to_dict("records"), "as on an accelerator"


def test_the_budget_is_fitted_and_covers_on_other_prompts(flowing):
    reading = tables.budget_reading([flowing], 0)
    assert (reading.table["budget"] > 0).all()
    assert -1 <= float(reading.correlation.numbers()) <= 1


def test_an_overlay_without_writes_says_nothing_about_the_budget(flowing):
    table = tables.overlay_table([flowing], COUNTS)
    assert table["budget"].isna().all()
    assert (table["exceeded"] == 0).all()
    assert (table["tv"] <= table["restricted"] + 1e-6).all()


def test_states_that_do_not_move_have_no_coordinates():
    g = torch.Generator().manual_seed(0)
    same = torch.ones(PROMPTS * 16, LAYERS + 1, WIDTH)
    found = cross_forecasts(paths_of(same, g), segment(), rank=4)
    assert "must vary" in found.reason


def test_a_rich_drift_sees_what_the_coordinates_do_not_tell(only_ridge):
    """A path that keeps its direction: only the step before tells where it goes."""
    g = torch.Generator().manual_seed(0)
    start = torch.randn(PROMPTS * 16, 1, WIDTH, generator=g)
    heading = 0.3 * torch.randn(PROMPTS * 16, 1, WIDTH, generator=g)
    hidden = start + heading * torch.arange(LAYERS + 1.0)[:, None]
    paths = paths_of(hidden, g)
    plain, rich = (cross_forecasts(paths, segment(), rank=4, rich=rich) for rich in (False, True))
    one = [tables.skill_of([found], "one layer", COUNTS, 0, "ridge") for found in (plain, rich)]
    assert float(one[1].numbers()) > float(one[0].numbers()) + 0.2
