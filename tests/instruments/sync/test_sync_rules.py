"""Judgements on replicas: planted tables decide them, and p values over layers hold their level."""

import math

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.sync.commitment.judge import judge_commitment_order
from flowscope.instruments.sync.internal_gap.judge import judge_internal_gap
from flowscope.instruments.sync.internal_gap.tables import familywise
from flowscope.instruments.sync.synchronization_gap.ranks import layerwise_rank_correlation
from flowscope.lab import Claim
from flowscope.records import Measurement
from flowscope.replica import ExchangeNull, exchange_null

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def gaps(*rows, control=None):
    """Rows of (gap, low, high), or the reason why there is none."""
    made = []
    for number, row in enumerate(rows):
        ok = not isinstance(row, str)
        gap, low, high = row if ok else (math.nan,) * 3
        made.append(
            {"label": 0, "class": "a", "g": 0.1 * (number + 1), "control": False, "gap": gap,
             "low": low, "high": high, "n": 8, "status": "ok" if ok else "no transition",
             "because": "" if ok else row}
        )  # fmt: skip
    if control is not None:
        gap, low, high = control
        made.append(made[-1] | {"g": 0.0, "control": True, "gap": gap, "low": low, "high": high,
                                "status": "ok", "because": ""})  # fmt: skip
    return pd.DataFrame(made)


def order(*rows, control=None):
    return judge_commitment_order(gaps(*rows, control=control), claim=CLAIM, seed=3)


def test_coarse_before_fine_holds_when_the_least_gap_is_above_zero():
    found = order((5.0, 3.0, 7.0), (2.0, 0.5, 3.0), "fine: within noise")
    assert (found.name, found.decision) == ("C", "holds")
    assert found.effect == 2.0
    assert (found.interval.low, found.interval.high) == (0.5, 3.0)
    assert "at all 2 couplings with both transitions" in found.because
    assert "at g = 0.2" in found.because
    assert found.statistic.n == 8
    assert found.statistic.seed == 3


def test_coarse_before_fine_fails_at_the_coupling_that_says_otherwise():
    found = order((5.0, 3.0, 7.0), (-2.0, -3.0, -0.5), (0.1, -9.0, 9.0))
    assert found.decision == "fails"
    assert "at 1 of 3 couplings" in found.because
    assert (found.interval.low, found.interval.high) == (-3.0, -0.5)  # not the widest one
    assert found.effect == -2.0
    flipped = order((5.0, 3.0, 7.0), (2.0, 0.5, 3.0), (9.1, 9.0, 10.0))
    assert flipped.decision == "holds"


def test_coarse_before_fine_abstains_when_an_interval_holds_zero():
    found = order((5.0, 3.0, 7.0), (1.0, -1.0, 3.0))
    assert found.decision == "abstains"
    assert "lies above 0 at only 1 of 2 couplings" in found.because


def test_without_transitions_the_reasons_are_told():
    found = order("fine: within noise", "coarse: not placed")
    assert found.decision == "abstains"
    assert found.statistic.status == "abstained"
    assert "coarse: not placed; fine: within noise" in found.because


def test_the_control_does_not_decide():
    assert order((5.0, 3.0, 7.0), control=(-5.0, -7.0, -3.0)).decision == "holds"
    assert order("none", control=(5.0, 3.0, 7.0)).decision == "abstains"


def layers(values, p_all, *, null=(-0.5, 0.5), status="ok", because=""):
    values = np.asarray(values, dtype=float)
    return pd.DataFrame(
        {"g": 0.0, "layer": np.arange(len(values)) + 1, "log_gap": values, "low": values - 0.2,
         "high": values + 0.2, "null_low": null[0], "null_high": null[1], "p_all": p_all,
         "detectable": 0.7, "n": 16, "status": status, "because": because}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "p_all", "decision"),
    [
        ([0.1, 1.5, 0.2], [0.9, 0.01, 0.8], "holds"),
        ([0.1, -1.5, 0.2], [0.9, 0.01, 0.8], "fails"),
        ([0.1, 0.6, 0.2], [0.9, 0.06, 0.8], "abstains"),
    ],
)
def test_the_internal_gap_is_decided_by_the_furthest_layer(values, p_all, decision):
    found = judge_internal_gap(layers(values, p_all), claim=CLAIM, seed=0)
    assert (found.name, found.decision) == ("C", decision)
    assert found.effect == values[1]
    assert "over 3 layers; layer 2 is furthest" in found.because
    assert ("0.7 would have been detected" in found.because) == (decision == "abstains")
    assert isinstance(found.null, Measurement)
    assert float(found.null.values) == 0.0


def test_of_layers_with_the_same_p_value_the_furthest_is_told():
    """With 199 draws many layers share the smallest p value there is."""
    found = judge_internal_gap(layers([-0.8, -2.0, -1.0], [0.005] * 3), claim=CLAIM, seed=0)
    assert (found.decision, found.effect) == ("fails", -2.0)
    found = judge_internal_gap(layers([0.8, 2.0, 1.0], [0.005] * 3), claim=CLAIM, seed=0)
    assert (found.decision, found.effect) == ("holds", 2.0)
    assert "3 layers lie beyond their null" in found.because


def test_layers_on_both_sides_of_the_null_give_no_answer():
    found = judge_internal_gap(layers([0.9, *[-0.8] * 15], [0.005] * 16), claim=CLAIM, seed=0)
    assert found.decision == "abstains"
    assert "1 layers lie above their null and 15 below" in found.because


def test_the_latents_are_told_and_do_not_decide():
    given = layers([3.0], [0.005]).assign(layer=0)
    found = judge_internal_gap(
        pd.concat([given, layers([0.1, 0.2], [0.5, 0.6])]), claim=CLAIM, seed=0
    )
    assert found.decision == "abstains"
    assert "before any block: 3, already beyond their null; no verdict, because" in found.because


def modes(predicted, measured):
    """Layers by modes, as rows."""
    place = [(i + 1, k + 1) for i in range(len(predicted)) for k in range(len(predicted[0]))]
    flat = np.ravel(predicted), np.ravel(measured)
    rows = [{"layer": i, "mode": k, "predicted": p, "measured": m, "status": "ok"}
            for (i, k), p, m in zip(place, *flat, strict=True)]  # fmt: skip
    return pd.DataFrame(rows)


def wandering(generator, layers=16, memory=0.9):
    """A series along depth whose neighbours are alike."""
    steps = generator.standard_normal(layers)
    for layer in range(1, layers):
        steps[layer] = memory * steps[layer - 1] + (1 - memory**2) ** 0.5 * steps[layer]
    return steps[:, None]


def test_modes_of_one_layer_and_neighbouring_layers_do_not_count_as_many():
    """100 true nulls at 5 %: above 12 with probability .001. Permuted layers give about 30."""
    generator, passed = np.random.default_rng(0), 0
    for _ in range(100):
        first, second = (np.repeat(wandering(generator), 6, 1) for _ in range(2))
        jitter = 0.01 * generator.standard_normal((2, 16, 6))
        passed += (
            layerwise_rank_correlation(modes(first + jitter[0], second + jitter[1]))[1] <= 0.05
        )
    assert passed <= 12


def test_what_is_predicted_layer_by_layer_has_the_smallest_p():
    steps = np.random.default_rng(1).permutation(96.0 + np.arange(96)).reshape(16, 6)
    assert layerwise_rank_correlation(modes(steps, steps)) == (pytest.approx(1), 1 / 32)
    assert layerwise_rank_correlation(modes(steps, -steps)) == (pytest.approx(-1), 1 / 32)
    depth = np.arange(16.0)[:, None]
    assert layerwise_rank_correlation(modes(depth, depth))[1] == 2 / 32, "so does its mirror image"
    few = steps.copy()
    few[2:] = np.nan
    assert layerwise_rank_correlation(modes(few, few))[1] > 0.05, "most shifts leave no modes"


def test_the_side_is_that_of_the_null_not_of_zero():
    below = layers([0.1, 0.2], [0.5, 0.01], null=(0.6, 1.0))
    assert judge_internal_gap(below, claim=CLAIM, seed=0).decision == "fails"
    above = layers([-0.1, -0.2], [0.01, 0.5], null=(-1.0, -0.6))
    assert judge_internal_gap(above, claim=CLAIM, seed=0).decision == "holds"


def test_layers_that_abstained_are_left_out():
    read, unread = layers([1.0, 1.1], [0.01, 0.02]), layers([9.0], [0.001], status="abstained")
    found = judge_internal_gap(pd.concat([read, unread]), claim=CLAIM, seed=0)
    assert found.effect == 1.0
    silent = layers([math.nan], [math.nan], status="abstained", because="too few modes")
    found = judge_internal_gap(silent, claim=CLAIM, seed=0)
    assert found.decision == "abstains"
    assert found.because.endswith("too few modes")
    assert found.statistic.status == "abstained"


def null_of(observed, draws):
    return ExchangeNull(
        observed=observed, draws=np.asarray(draws), p_value=1.0, band=(0.0, 0.0), level=0.95,
        scale=1.0,
    )  # fmt: skip


def test_p_values_over_layers_count_the_largest_studentised_draw():
    draws = np.random.default_rng(0).standard_normal((2, 99))
    wide = [null_of(2.5, draws[0]), null_of(50.0, 100 * draws[1])]
    found = familywise([wide[0], None, wide[1]])
    assert math.isnan(found[1])
    assert found[2] > 0.5  # 50 is little where draws spread by 100
    scores = [np.abs(d - np.median(d)) / d.std() for d in draws]
    own = abs(2.5 - np.median(draws[0])) / draws[0].std()
    expected = (1 + (np.maximum(*scores) >= own).sum()) / 100
    assert found[0] == pytest.approx(expected)
    assert familywise([wide[0]])[0] <= found[0]
    assert all(math.isnan(p) for p in familywise([None, None]))


def test_a_layer_that_never_moves_is_never_beyond():
    still = null_of(0.0, np.zeros(99))
    found = familywise([still, null_of(9.0, np.random.default_rng(0).standard_normal(99))])
    assert found[0] == 1.0
    assert found[1] == 0.01


def test_p_values_over_layers_hold_their_level():
    """2000 repeats of 6 correlated layers, exchangeable with their draws, at a nominal 5 %.

    The share of repeats in which any layer is at most .05 must lie within four deviations of .05;
    uncorrected it would be near .25.
    """
    generator = np.random.default_rng(0)
    repeats, hits = 2000, 0
    for _ in range(repeats):
        common = generator.standard_normal(100)
        values = common + generator.standard_normal((6, 100)) * np.arange(1, 7)[:, None]
        hits += min(familywise([null_of(v[0], v[1:]) for v in values])) <= 0.05
    assert abs(hits / repeats - 0.05) < 4 * math.sqrt(0.05 * 0.95 / repeats)


def test_the_exchange_over_layers_holds_its_level_on_gram_matrices():
    """200 repeats without a change: first and later differences of one law, three layers."""
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        nulls = []
        for _ in range(3):
            first, noise = generator.standard_normal((2, 12, 30)) / np.arange(1, 31) ** 0.5
            later = 0.6 * first + 0.8 * noise
            rows = np.vstack([first, later])
            nulls.append(exchange_null(rows @ rows.T, 2, 2, draws=59, seed=0))
        hits += min(familywise(nulls)) <= 0.05
    assert hits / 200 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
