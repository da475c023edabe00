"""Rows of the study of source 001: planted tables are judged as they were planted."""

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.field.pde_view import part_statements as parts
from flowscope.instruments.field.pde_view import statements
from flowscope.instruments.field.pde_view.cells import Cell, Numbers
from flowscope.instruments.field.pde_view.names import ARMS, SIMULATOR, TRANSFORMER

TASKS = ("listops", "topics")


class Planted:
    """A run that holds these tables."""

    def __init__(self, **tables):
        self._tables = {name: pd.DataFrame(rows) for name, rows in tables.items()}

    def tables(self):
        return list(self._tables)

    def read_table(self, name):
        return self._tables[name]


def networks(effect=0.0, noise=0.01, seeds=3, column="fidelity", arm="no_residual", **more):
    """Networks of all arms; one arm lies lower by an effect, or by a factor e^effect."""
    draw = np.random.default_rng(0)
    return [
        {"task": task, "arm": name, "seed": seed, "diverged": False,
         "gradient": np.exp(noise * draw.standard_normal()), "gradient_peak": 2.0,
         "accuracy": 0.5, "fidelity": 0.5 + noise * draw.standard_normal(), **more}
        | ({column: np.exp(effect + noise * draw.standard_normal())
            if column == "gradient" else 0.5 - effect + noise * draw.standard_normal()}
           if name == arm else {})
        for task in TASKS for name in ARMS for seed in range(seeds)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("effect", "seeds", "answer"),
    [(0.3, 3, "yes"), (-0.3, 3, "no"), (0.0, 3, "cannot be told"), (0.3, 1, "cannot be told")],
)
def test_fidelity_is_judged_between_arms_that_differ_in_residual_alone(effect, seeds, answer):
    rows = networks(effect, seeds=seeds)
    rows = [row for row in rows if row["arm"] not in ("no_norm", "neither")]
    row = parts.kept(Numbers(Planted(networks=rows)))
    assert row.agrees == answer
    assert row.by_chance == 0.1  # two tasks


@pytest.mark.parametrize(
    ("effect", "answer"), [(np.log(10), "yes"), (0.0, "no"), (np.log(3), "no")]
)
def test_gradients_are_ratios_without_over_with_norm(effect, answer):
    rows = networks(effect, column="gradient", arm="no_norm")
    rows = [row for row in rows if row["arm"] in (TRANSFORMER, "no_norm")]
    row = parts.gradients(Numbers(Planted(networks=rows)))
    assert row.agrees == answer
    if effect > 2:
        assert "ListOps 10" in row.measured or "ListOps 9.9" in row.measured


@pytest.mark.parametrize(("effect", "answer"), [(0.2, "yes"), (0.0, "no")])
def test_a_part_is_necessary_where_accuracy_falls_without_it(effect, answer):
    rows = networks(effect, column="accuracy", arm="no_norm")
    row = parts.necessary(Numbers(Planted(networks=rows)), "norm", "4.3.2")
    assert row.agrees == answer


def test_divergence_is_counted_among_the_arms_without_norm():
    rows = networks()
    assert parts.divergence(Numbers(Planted(networks=rows))).agrees == "no"
    for row in rows:
        row["diverged"] = row["arm"] in ("no_norm", "neither", SIMULATOR, "leak_0")
    found = parts.divergence(Numbers(Planted(networks=rows)))
    assert found.agrees == "yes"
    assert "24 of 24" in found.measured


@pytest.mark.parametrize(
    ("larger", "answer"), [({"transformer": 0.03}, "yes"), ({"transformer": 0.01}, "no"),
                           ({"transformer": np.nan}, "not measured")]
)  # fmt: skip
def test_arms_that_train_at_no_rate_decide_nothing(larger, answer):
    rates = {"no_norm": 0.01, "neither": np.nan, "no_residual": np.nan, **larger}
    rows = [{"arm": arm, "largest": rate} for arm, rate in rates.items()]
    assert parts.rates(Numbers(Planted(rates=rows))).agrees == answer


def aligned(value, half, column="cosine"):
    return [
        {"task": task, "path": SIMULATOR, column: value, f"{column}_low": value - half,
         f"{column}_high": value + half}
        for task in TASKS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "half", "answer"),
    [
        ("cosine", 0.99, 0.01, "yes"), ("cosine", 0.95, 0.03, "yes"), ("cosine", 0.9, 0.01, "no"),
        ("mse", 0.02, 0.001, "yes"), ("mse", 0.5, 0.01, "no"),
        ("mse", 0.5, np.nan, "cannot be told"),
    ],
)  # fmt: skip
def test_alignment_reaches_the_number_of_the_source_or_not(column, value, half, answer):
    run = Planted(alignment=aligned(value, half, column))
    assert statements.aligned(Numbers(run), column).agrees == answer


@pytest.mark.parametrize(
    ("kl", "even", "answer"),
    [(0.01, 0.5, "yes"), (0.1, 0.5, "no"), (0.01, 0.015, "cannot be told")],
)
def test_attention_that_uniform_attention_matches_decides_nothing(kl, even, answer):
    rows = [
        {"task": task, "path": path, **{f"{name}{end}": value for name in ("kl", "kl_matched")
                                        for end in ("", "_low", "_high")}}
        for task in TASKS
        for path, value in ((f"distilled {SIMULATOR}", kl), ("uniform", even))
    ]  # fmt: skip
    assert statements.attention(Numbers(Planted(attention=rows))).agrees == answer


@pytest.mark.parametrize(
    ("slope", "half", "answer"),
    [(-1, 0.05, "yes"), (-0.2, 0.05, "no"), (0.4, 0.1, "no"), (-0.7, 0.3, "cannot be told")],
)
def test_shorter_steps_converge_where_the_change_falls(slope, half, answer):
    rows = [
        {"task": task, "arm": TRANSFORMER, "slope": slope, "slope_low": slope - half,
         "slope_high": slope + half}
        for task in TASKS
    ]  # fmt: skip
    assert statements.order(Numbers(Planted(orders=rows))).agrees == answer


def test_an_empty_run_measures_nothing():
    table = statements.pde_statement_table(Planted())
    assert set(table["agrees"]) == {"not measured"}
    assert table["item"].is_unique


def test_sides_of_an_interval():
    cell = Cell(task="listops", value=1.0, low=0.5, high=1.5)
    assert (cell.above(0), cell.below(0), cell.above(1)) == ("yes", "no", "cannot be told")
    assert (cell.holds(0.6), cell.holds(2.0)) == ("yes", "no")
    assert cell.negative().above(-2) == "yes"
