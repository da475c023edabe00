"""Rows of the forecast: means, intervals over prompts and draws, trust, ranks beside peers."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from flowscope.instruments.field.forecast import RANK_ONLY, SIZE_AND_RANK
from flowscope.instruments.field.forecast.summary import Costs, cost_rows, kind_rows
from flowscope.instruments.field.headline import show

BLOCKS = 8


def costs(factor=None, *, prompts=6, draws=40, spread=0.3):
    """One kind of change whose measured cost is ``factor`` times its forecast, by block."""
    rng = np.random.default_rng(0)
    cost = np.linspace(1.0, 4.0, BLOCKS)
    seen = cost[:, None, None] * rng.lognormal(0, spread, (BLOCKS, prompts, draws))
    factor = np.ones(BLOCKS) if factor is None else np.asarray(factor)
    there = (factor * seen.mean((1, 2)))[:, None] * np.ones((1, prompts))
    return Costs(
        kinds=["skip"] * BLOCKS, layers=list(range(1, BLOCKS + 1)), bits=[np.nan] * BLOCKS,
        predicted=seen, measured=there, relative_error=cost[::-1, None] * np.ones((1, prompts)),
        turn=cost[:, None] * np.ones((1, prompts)), weight_error=[np.nan] * BLOCKS,
    )  # fmt: skip


def trust(given):
    return set(cost_rows(given, resamples=50, seed=0)["trust"])


def few(value):
    """All blocks as forecast but one."""
    return np.r_[np.ones(BLOCKS - 1), value]


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (np.ones(BLOCKS), SIZE_AND_RANK),
        (np.full(BLOCKS, 1.9), SIZE_AND_RANK),
        (np.full(BLOCKS, 2.1), RANK_ONLY),
        (np.full(BLOCKS, 0.4), RANK_ONLY),
        (few(3.0), SIZE_AND_RANK),
        (few(9.0), RANK_ONLY),
        (np.full(BLOCKS, np.nan), ""),
    ],
)
def test_trust_follows_the_median_and_the_total(factor, said):
    assert trust(costs(factor)) == {said}


def test_intervals_are_over_draws_as_well_as_prompts():
    many, one = costs(prompts=6, draws=4), costs(prompts=1, draws=40)
    for given in (many, one):
        rows = cost_rows(given, resamples=200, seed=0)
        assert (rows["low"] < rows["predicted"]).all()
        assert (rows["predicted"] < rows["high"]).all()
    same = replace(many, predicted=many.predicted.mean(2, keepdims=True).repeat(4, 2))
    whole, less = (cost_rows(given, resamples=200, seed=0) for given in (many, same))
    assert (whole["high"] - whole["low"]).mean() > (less["high"] - less["low"]).mean()


def test_kinds_print_ranks_beside_their_peers():
    given = costs(few(9.0))
    rows = cost_rows(given, resamples=50, seed=0)
    gains = np.r_[np.ones(BLOCKS - 1), 400.0]
    (kind,) = kind_rows(rows, given, gains, resamples=50, seed=0).to_dict("records")
    assert kind["rank"] == pytest.approx(1.0)
    assert kind["rank_turn"] == pytest.approx(1.0)
    assert kind["rank_relative_error"] == pytest.approx(-1.0)
    assert np.isnan(kind["rank_weight_error"])
    assert kind["ratio"] == pytest.approx(1.0)
    assert kind["ratio_total"] > 2
    assert kind["rank_sigma_max"] > 0.4


def test_terminal_of_eighty_columns_shows_kinds_and_changes(small):
    text = StringIO()
    show(small.result.to_json(), Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 or "report:" in max(lines, key=len)
    shown = text.getvalue()
    for words in ("gain ≥", "Forecast of a change", "quantise", "writes × 0.5", "F3 Block cost"):
        assert words in shown, words
