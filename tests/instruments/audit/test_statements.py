"""The table of claims: sides of intervals decide, what is missing is said to be."""

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.audit.track_t.statements import track_t_statement_table
from flowscope.records import Interval, Manifest, Measurement, Run, Unavailable, Verdict


def number(name, value, low=None, high=None):
    interval = Unavailable("none")
    if low is not None:
        interval = Interval(low=low, high=high, level=0.95, method="bootstrap")
    return Measurement(
        name=name, values=value, unit="1", n=8, estimator="mean", dtype="float64", interval=interval
    )


def verdict(name, statistic, decision="holds"):
    absent = Unavailable("synthetic")
    if statistic.status != "ok":
        decision = "abstains"
    spoken = statistic.status == "ok"
    return Verdict(
        name=name, claim=f"claim {name}", statistic=statistic, null=absent,
        effect=float(statistic.numbers()) if spoken else absent,
        interval=statistic.interval if spoken else absent, decision=decision, because="because",
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    absent = Unavailable("synthetic")
    manifest = Manifest(
        config_given={}, config_resolved={}, seeds={}, versions={}, device="cpu",
        weight_hashes=absent, data_hashes=absent, wall_time=absent, commit=absent,
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    made = Run.create(tmp_path / "run", manifest)
    made.write_verdicts(
        [
            verdict("P0", number("S", 0.08, 0.07, 0.09)),
            verdict("P1", number("skill", 0.1, 0.05, 0.15)),
            verdict("P2", number("rho", 0.6, 0.5, 0.7)),
            verdict("P3", number("kappa", 0.4, 0.3, 0.5)),
            verdict("P4", number("1 − G/E", 0.9, 0.8, 0.95)),
            verdict("P4r", number("R_norm", 0.2, 0.1, 0.3)),
        ]
    )
    made.write_measurements(
        [number("rank correlation of forecast error and budget", 0.3, -0.1, 0.6)]
    )
    return made


def fate(run):
    return track_t_statement_table(run).set_index("item")


def test_the_side_of_an_interval_decides(run):
    agrees = fate(run)["agrees"]
    assert agrees["P1 flow"] == "yes"
    assert agrees["prediction (i)"] == "cannot be told"
    assert agrees["P2 locking"] == "yes"


def test_what_was_not_measured_is_said_not_to_be(run):
    table = fate(run)
    for item in ("prediction (ii)", "P3 temperature", "identification", "P4 rotation"):
        assert table.loc[item, "agrees"] == "not measured"
        assert "not measured" in table.loc[item, "measured"]


def test_a_bound_that_cannot_fail_is_not_evidence(run):
    overlay = pd.DataFrame({"exceeded": [0, 0], "budget_informative": [0.0, 0.1]})
    run.write_table("overlay", overlay)
    assert fate(run).loc["P1 budget", "agrees"] == "cannot be told"
    run.write_table("overlay", overlay.assign(budget_informative=0.9))
    assert fate(run).loc["P1 budget", "agrees"] == "yes"
    run.write_table("overlay", overlay.assign(exceeded=1))
    assert fate(run).loc["P1 budget", "agrees"] == "no"


def test_rotation_must_be_negligible_to_agree(run):
    run.write_table("rotation", pd.DataFrame({"energy": [1.0, 3.0]}))
    row = fate(run).loc["P4 rotation"]
    assert row["agrees"] == "no"
    assert "mean R̂ 2" in row["measured"]


@pytest.mark.parametrize(("order", "agrees"), [(-1.0, "yes"), (0.2, "no")])
def test_settling_is_judged_by_its_order(run, order, agrees):
    table = pd.DataFrame({"n": [1, 2], "drift_order": order, "state_order": -1.0})
    run.write_table("identification", table.assign(state_distance=[0.1, 0.0]))
    assert fate(run).loc["identification", "agrees"] == agrees


def test_mobility_that_rises_first_disagrees(run):
    sweep = pd.DataFrame({"temperature": [0.5, 1.0, 2.0], "mobility": [0.2, 0.3, 0.1]})
    run.write_table("output_temperature", sweep.assign(loss=1.0, ece=0.1))
    assert fate(run).loc["temperature, mobility", "agrees"] == "no"
    run.write_table("output_temperature", sweep.assign(mobility=[0.3, 0.2, 0.1], loss=1.0, ece=0.1))
    assert fate(run).loc["temperature, mobility", "agrees"] == "yes"


def test_a_curvature_that_falls_disagrees(run):
    table = pd.DataFrame(
        {
            "kind": ["temperature"], "setting": [2.0], "scope": ["all"], "layer": [np.nan],
            "kappa": [0.3], "change": [-0.1], "change_low": [-0.2], "change_high": [-0.05],
        }
    )  # fmt: skip
    run.write_table("curvature_response", table)
    assert fate(run).loc["P3 temperature", "agrees"] == "no"
