"""F3 on a forecast that is right, one of noise, one of the wrong size, and too few blocks."""

import numpy as np
import pytest

import flowscope as fs
from flowscope.instruments.field.forecast.judge import judge_forecast


def _verdict(*, noise=0.05, factor=1.0, blocks=20, prompts=10, error="noise"):
    rng = np.random.default_rng(1)
    cost = np.exp(rng.normal(0, 1, blocks))

    def seen(values, spread):
        return values * np.exp(rng.normal(0, spread, (prompts, blocks)))

    predicted = seen(np.exp(rng.normal(0, 1, blocks)) if noise is None else cost, noise or 0.05)
    peer = cost if error == "exact" else np.exp(rng.normal(0, 1, blocks))
    return judge_forecast(predicted, seen(peer, 0.05), seen(factor * cost, 0.05), seed=0)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "holds"),
        ({"factor": 5.0}, "fails"),
        ({"factor": 0.2}, "fails"),
        ({"noise": None, "error": "exact"}, "fails"),
        ({"blocks": 5}, "uninformative"),
        ({"prompts": 4}, "abstains"),
    ],
)
def test_forecast_needs_rank_and_size(changes, outcome):
    assert _verdict(**changes).outcome == outcome


def test_few_prompts_are_counted_in_each_half():
    """Eight prompts are four to forecast and four to measure: “give at least 8” would mislead."""
    assert "at least 8 prompts in each half of the texts" in _verdict(prompts=4).because


def test_as_good_as_the_relative_error_is_not_better():
    assert _verdict(error="exact").outcome != "holds"


def test_forecast_of_one_batch_abstains_and_says_why(tmp_path):
    texts = ["The river ran past the mill and the old bridge.", "A cat sat by the warm stove."]
    result = fs.field(texts=texts, batch=4, tokens=8, draws=2, only="F3", out=tmp_path / "run")
    verdict = {one.name: one for one in result.verdicts}["F3"]
    assert verdict.outcome == "abstains"
    assert "two batches" in verdict.because
    assert "set batch to 1" in result.forecast.reason
