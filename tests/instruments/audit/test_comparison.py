"""Two audits side by side on planted arrays: what is called a change, paired and unpaired."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flowscope.instruments.audit.comparison import compared
from flowscope.records import Run

OLD = Path(__file__).parents[2] / "golden" / "folders" / "audit"


@pytest.fixture
def planted(tmp_path):
    """A function that writes a run whose prompts have these values of entropy."""
    count = iter(range(9))

    def write(entropy):
        run = Run.open(shutil.copytree(OLD, tmp_path / f"run{next(count)}"))
        run.write_arrays("prompts", {"entropy": entropy})
        return run

    return write


def smooth(prompts, seed):
    """Values of prompts at 11 depths with spread 1, half of it shared by all depths."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(prompts, 1)) + rng.normal(size=(prompts, 11))) / 2**0.5


def changed_depths(comparison):
    return [round(depth, 1) for depth in comparison.changes["depth"]]


def test_a_shift_of_one_spread_at_three_depths_is_found_there_alone(planted):
    first, second = smooth(48, 0), smooth(50, 1)
    second[:, 4:7] += 1
    comparison = compared(planted(first), planted(second))
    assert not comparison.paired
    assert changed_depths(comparison) == [0.4, 0.5, 0.6]
    assert "entropy changed at depths 0.4–0.6 (95 % simultaneous over 11" in comparison.summary[0]


def test_pairs_show_a_shift_that_unpaired_prompts_hide(planted):
    first = smooth(16, 0)
    second = first + 0.1 * smooth(16, 1)
    second[:, 4] += 0.3
    same, other = planted(first), planted(second)
    assert changed_depths(compared(same, other)) == [0.4]
    fewer = planted(second[:15])
    assert compared(same, fewer).changes.empty
    assert "give both runs the same texts, or read more" in compared(same, fewer).next_step


def test_unpaired_halves_of_one_law_are_rarely_called_different(planted):
    """40 pairs at 5 %: above 6 with probability .01; pointwise intervals flag about half."""
    joint = pointwise = 0
    runs = planted(smooth(12, 0)), planted(smooth(13, 0))
    for seed in range(40):
        for side, run in enumerate(runs):
            run.write_arrays("prompts", {"entropy": smooth(12 + side, 2 * seed + side)})
        table = compared(*runs).table
        joint += bool(table["changed"].any())
        pointwise += bool(((table["low"] > 0) | (table["high"] < 0)).any())
    assert joint <= 6
    assert pointwise > joint


@pytest.mark.parametrize(("first", "second"), [(7, 30), (30, 7), (1, 1)])
def test_fewer_than_eight_prompts_on_a_side_change_nothing(planted, first, second):
    comparison = compared(planted(smooth(first, 0)), planted(smooth(second, 1) + 9))
    assert comparison.changes.empty
    assert f"these have {first} and {second}" in comparison.summary[0]
    assert "at least 8 prompts" in comparison.next_step
    comparison.to_json()


def test_outcomes_are_compared_with_their_effects(planted):
    first, second = planted(smooth(9, 0)), planted(smooth(9, 0))
    verdict, *others = first.read_verdicts()
    first.write_verdicts(
        [replace(verdict, decision="abstains", outcome="uninformative", strength=""), *others]
    )
    second.write_verdicts([replace(verdict, decision="abstains", outcome="abstains"), *others])
    (row,) = compared(first, second).changed_verdicts.to_dict("records")
    assert (row["name"], row["first"], row["second"]) == (verdict.name, "uninformative", "abstains")
    assert row["first_effect"] == pytest.approx(float(verdict.effect))
    assert row["second_low"] == pytest.approx(float(verdict.interval.low))
