"""The effect of a flow over the mean step of each layer, from sums per prompt alone."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ttest_1samp

from flowscope.instruments.audit.adequacy.rule import (
    decision_of,
    forecast_effect,
    linearised,
)


def table(n=12, *, still=1.0, mean=0.9, flow=0.7, floor=0.4, noise=0.0, seed=0):
    g = np.random.default_rng(seed)
    size = 1 + g.random(n) if noise else np.ones(n)
    columns = {"still": still, "mean_drift": mean, "flow": flow, "floor": floor}
    return pd.DataFrame(
        {"prompt": np.arange(n), **{k: size * (v + noise * g.normal(size=n) * (k == "flow"))
                                   for k, v in columns.items()}}
    )  # fmt: skip


def test_effect_is_the_skill_beyond_the_mean_drift():
    effect = forecast_effect(table())
    assert_allclose([effect.effect, effect.reference, effect.room], [0.2, 0.1, 0.5])
    assert_allclose(effect.share, 0.4)
    assert effect.strength == "clear"
    assert decision_of(effect) == "holds"


def test_a_harmful_mean_drift_is_no_reference():
    effect = forecast_effect(table(mean=1.3))
    assert_allclose([effect.effect, effect.reference], [0.3, 0.0], atol=1e-12)


def test_a_flow_that_only_beats_persistence_fails():
    effect = forecast_effect(table(mean=0.6))
    assert_allclose(effect.effect, -0.1)
    assert decision_of(effect) == "fails"


def test_no_room_is_uninformative_whatever_the_flow_does():
    assert decision_of(forecast_effect(table(mean=0.41))) == "uninformative"
    assert decision_of(forecast_effect(table(mean=0.41, flow=0.1))) == "uninformative"


def test_fewer_than_eight_prompts_abstain():
    assert decision_of(forecast_effect(table(n=7))) == "abstains"
    assert decision_of(forecast_effect(table(n=8))) == "holds"


def test_a_negligible_effect_does_not_hold():
    effect = forecast_effect(table(flow=0.88))
    assert effect.low > 0
    assert effect.strength == "negligible"
    assert decision_of(effect) == "abstains"


def test_linearised_values_have_the_ratio_as_mean_and_its_spread():
    g = np.random.default_rng(0)
    scale = 1 + g.random(4000)
    gain = 0.3 * scale + 0.1 * g.normal(size=4000)
    values = linearised(gain, scale)
    assert_allclose(values.mean(), gain.sum() / scale.sum(), rtol=1e-12)
    draws = [gain[rows].sum() / scale[rows].sum() for rows in g.integers(0, 4000, size=(400, 4000))]
    assert_allclose(values.std() / 4000**0.5, np.std(draws), rtol=0.12)


def test_interval_is_the_t_interval_where_prompts_weigh_alike():
    rows = table(noise=0.05)
    rows[["still", "mean_drift", "flow", "floor"]] /= rows[["still"]].to_numpy()
    effect = forecast_effect(rows)
    span = ttest_1samp(rows["mean_drift"] - rows["flow"], 0).confidence_interval(0.95)
    assert_allclose([effect.low, effect.high], [span.low, span.high])


def test_interval_of_the_smaller_gain_covers_it():
    """Equal references: the minimum of two gains must not be decided more often than nominal."""
    wrong = 0
    for seed in range(300):
        g = np.random.default_rng(seed)
        errors = 1 + 0.2 * g.normal(size=(4, 16))
        names = ["still", "mean_drift", "flow", "floor"]
        rows = pd.DataFrame({"prompt": range(16), **dict(zip(names, errors, strict=True))})
        wrong += forecast_effect(rows).low > 0
    assert wrong <= 300 * 0.05


def test_segments_of_a_prompt_are_added_up():
    rows = table(noise=0.05)
    parts = pd.concat([rows, rows]).sort_values("prompt")
    assert forecast_effect(parts).effect == pytest.approx(forecast_effect(rows).effect)
    assert len(forecast_effect(parts).over_mean) == 12
