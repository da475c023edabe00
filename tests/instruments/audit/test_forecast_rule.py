"""The effect of a flow over a shift and a scale per layer, from sums per prompt alone."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ttest_1samp

from flowscope.instruments.audit.adequacy import judge as adequacy_judge
from flowscope.instruments.audit.adequacy.judge import judge_forecast
from flowscope.instruments.audit.adequacy.rule import copies, forecast_effect, integrated
from flowscope.records import Unavailable

NAMES = ("still", "mean_drift", "scaled_drift", "flow", "floor")


def table(n=12, *, mean=0.9, scaled=0.95, flow=0.7, floor=0.4, noise=0.0, seed=0, **more):
    """Prompts of unequal size whose forecasts have these errors, relative to standing still."""
    g = np.random.default_rng(seed)
    size = 1 + g.random(n)
    errors = dict(zip(NAMES, (1.0, mean, scaled, flow, floor), strict=True)) | more
    columns = {k: size * (v + noise * g.normal(size=n) * (k == "flow")) for k, v in errors.items()}
    return pd.DataFrame({"first_layer": 3, "last_layer": 9, "prompt": np.arange(n), **columns})


def test_effect_is_the_skill_beyond_the_best_reference():
    effect = forecast_effect(table())
    assert effect.reference == "mean_drift"
    assert_allclose([effect.effect, effect.room, effect.share], [0.2, 0.5, 0.4])
    scaled = forecast_effect(table(scaled=0.8))
    assert scaled.reference == "scaled_drift"
    assert_allclose([scaled.effect, scaled.room], [0.1, 0.4])


def test_harmful_references_leave_standing_still():
    effect = forecast_effect(table(mean=1.3, scaled=1.1))
    assert effect.reference == "still"
    assert_allclose(effect.effect, 0.3)


@pytest.mark.parametrize(
    ("errors", "outcome", "strength"),
    [
        ({}, "holds", "clear"),
        ({"flow": 0.45}, "holds", "strong"),
        ({"mean": 0.6}, "fails", "strong"),
        ({"scaled": 0.6}, "fails", "strong"),
        ({"flow": 0.88}, "abstains", "negligible"),
        ({"mean": 0.41}, "uninformative", ""),
        ({"mean": 0.41, "flow": 0.1}, "uninformative", ""),
    ],
)
def test_the_share_of_the_room_decides(errors, outcome, strength):
    verdict = judge_forecast(table(noise=1e-4, **errors))
    assert (verdict.outcome, verdict.strength) == (outcome, strength)


def test_noise_abstains():
    verdict = judge_forecast(table(flow=0.9, noise=0.2))
    assert verdict.outcome == "abstains"
    assert "contains 0" in verdict.because


def test_fewer_than_eight_prompts_abstain_and_say_how_many_are_needed():
    verdict = judge_forecast(table(n=7))
    assert verdict.outcome == "abstains"
    assert "at least 8 prompts are needed; this run has 7" in verdict.because
    assert judge_forecast(table(n=8)).outcome == "holds"


def test_the_reason_names_the_numbers():
    verdict = judge_forecast(
        table(noise=1e-3, flow_half=0.8, flow_shuffled=0.75), words="layers 3–9 (ridge)"
    )
    assert verdict.because.startswith("on held-out prompts a fitted flow removes 30.")
    assert "+20.0 points (95 %: +19." in verdict.because
    assert "against the mean step of each layer, of 50 points" in verdict.because
    assert "fitted on half as many prompts +10.0, with the layers in random order +15.0" in (
        verdict.because
    )
    assert verdict.because.endswith("layers 3–9 (ridge)")
    assert_allclose(float(verdict.null.numbers()), 0.1)


def test_a_stopped_refit_is_left_out_and_no_nan_is_said():
    rows = table(flow_half=0.8, flow_shuffled=0.75)
    rows.loc[3, "flow_half"] = np.nan
    effect = forecast_effect(rows)
    assert isinstance(effect.beyond("flow_half"), Unavailable)
    verdict = judge_forecast(rows)
    assert "half as many" not in verdict.because
    assert "random order" in verdict.because
    assert "nan" not in str(verdict)


def test_segments_where_the_flow_stopped_are_left_out_whole():
    rows = table()
    other = rows.assign(first_layer=11, last_layer=14)
    other.loc[2, "flow"] = np.nan
    both = pd.concat([rows, other])
    assert set(integrated(both)["first_layer"]) == {3}
    assert integrated(other).empty


def test_a_reference_that_stopped_in_one_segment_is_not_summed_over_the_rest():
    rows = table(flow_half=0.8)
    other = rows.assign(first_layer=11, last_layer=14, flow_half=np.nan)
    assert "flow_half" not in forecast_effect(pd.concat([rows, other])).skills


def test_an_output_that_never_changes_abstains():
    verdict = judge_forecast(table().assign(**dict.fromkeys(NAMES, 0.0)))
    assert verdict.outcome == "abstains"
    assert verdict.because == "no verdict, because the output does not change on these layers"


def test_copied_prompts_abstain():
    rows = table().assign(**{name: 1.0 for name in NAMES if name != "flow"})
    assert copies(rows) == 11
    verdict = judge_forecast(rows)
    assert verdict.outcome == "abstains"
    assert "11 of 12 prompts are copies of others" in verdict.because
    assert copies(table()) == 0


def test_interval_contains_the_t_interval_where_prompts_weigh_alike():
    rows = table(noise=0.05)
    rows[list(NAMES)] /= rows[["still"]].to_numpy()
    span = ttest_1samp(rows["mean_drift"] - rows["flow"], 0).confidence_interval(0.95)
    interval = forecast_effect(rows).interval
    assert interval.low <= span.low + 1e-12
    assert interval.high >= span.high - 1e-12
    assert interval.high - interval.low < 2 * (span.high - span.low)


def test_equal_references_are_decided_no_more_often_than_nominal():
    """Flow and references alike: the least of three gains is below 0, its truth is 0."""
    above = below = 0
    for seed in range(200):
        g = np.random.default_rng(seed)
        errors = 1 + 0.2 * g.normal(size=(5, 16))
        rows = pd.DataFrame({"prompt": range(16), **dict(zip(NAMES, errors, strict=True))})
        interval = forecast_effect(rows, seed=seed).interval
        above, below = above + (interval.low > 0), below + (interval.high < 0)
    assert above <= 200 * 0.025
    assert below <= 200 * 0.06


def test_segments_of_a_prompt_are_added_up():
    rows = table(noise=0.05)
    both = pd.concat([rows, rows.assign(first_layer=11)])
    assert_allclose(forecast_effect(both).effect, forecast_effect(rows).effect)
    assert forecast_effect(both).prompts == 12


def test_equal_prompts_whose_tokens_lie_at_other_places_abstain(monkeypatch):
    """They differ in the table and not in the medians of their layers."""
    rows = table(noise=0.02)
    assert judge_forecast(rows).outcome == "holds"

    class Folder:
        settings = ()

        def table(self, name, *columns):
            return rows if name == "adequacy_skill" else pd.DataFrame(columns=columns)

        def arrays(self, name):
            return {"relative_step": np.ones((12, 3))}

    folder = Folder()
    folder.settings = {"seed": 0}
    monkeypatch.setattr(adequacy_judge, "_segments", lambda *tables: "")
    (verdict,) = adequacy_judge.judge(folder)
    assert verdict.decision == "abstains"
    assert "11 of 12 prompts are copies of others" in verdict.because
