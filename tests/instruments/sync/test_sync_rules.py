"""Judgements on replicas: planted tables decide them, and p values over layers hold their level."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.sync.commitment.judge import judge_commitment_order
from flowscope.instruments.sync.commitment.order_rule import Order, decision_steps, order_table
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.judge import DETECTABLE, judge_internal_gap
from flowscope.instruments.sync.internal_gap.tables import familywise, gap_arrays
from flowscope.instruments.sync.internal_gap.twins import layer_gaps, twin_arrays, twin_gaps
from flowscope.instruments.sync.synchronization_gap.ranks import layerwise_rank_correlation
from flowscope.lab import Claim
from flowscope.replica import ExchangeNull, exchange_null, gap_beyond_twins

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


STEPS = np.linspace(0, 16, 9)


def falling(middle, amount=1.0):
    """Distances that are lost near one step, by the step of letting go."""
    curve = 1 / (1 + np.exp((STEPS - middle) / 1.0))
    return 1 - amount + amount * (curve - curve[-1]) / (curve[0] - curve[-1])


def drawn(rng, middles, pairs, amount=1.0, noise=0.05):
    """Distances of pairs, a curve for each middle."""
    sizes = rng.gamma(16, 1 / 16, (pairs, 1))
    rows = [sizes * falling(middle, amount) for middle in middles]
    return np.stack(rows) * (1 + noise * rng.standard_normal((len(middles), pairs, len(STEPS))))


def order_data(
    coarse=(6.0, 6.0, 6.0), fine=(10.0, 10.0, 10.0), gaussian=(6.0, 10.0), *, pairs=24, amounts=1.0,
    ranks=(0.0,), spread=0.0, control=False, seed=0,
):  # fmt: skip
    """Distances of a model and of its control; ``ranks`` move the control's fine decision."""
    rng = np.random.default_rng(seed)
    curves = len(coarse)
    early, late = gaussian
    shifts = spread * rng.standard_normal(8)
    return {
        "steps": STEPS, "label": np.zeros(curves, int), "g": np.linspace(0.1, 1, curves),
        "control": np.array([control] * curves),
        "coarse": drawn(rng, coarse, pairs, amounts), "fine": drawn(rng, fine, pairs, amounts),
        "gaussian_coarse": np.stack([drawn(rng, [early] * curves, pairs) for _ in ranks]),
        "gaussian_fine": np.stack([drawn(rng, [late + r] * curves, pairs) for r in ranks]),
        "without_coarse": np.tile(falling(early), (8, curves, 1)),
        "without_fine": np.stack([np.tile(falling(late + x), (curves, 1)) for x in shifts]),
        "finals": np.array([64]),
    }  # fmt: skip


def judged_order(arrays, because=""):
    table = order_table(Order(arrays=arrays, seed=3), because)
    return judge_commitment_order(arrays, table, claim=CLAIM, seed=3)


def test_the_decision_step_of_a_sigmoid_is_its_middle():
    """Distance lost near one step in the middle of a fine grid: the mean step is that step."""
    steps = np.linspace(0, 100, 401)
    curve = 1 / (1 + np.exp((steps - 40) / 3))
    assert decision_steps(steps, curve) == pytest.approx(40, abs=0.01)
    assert decision_steps(steps, 5 * curve + 2) == pytest.approx(40, abs=0.01)
    assert np.isnan(decision_steps(steps, np.ones(401)))


@pytest.mark.parametrize(
    ("coarse", "outcome", "strength"),
    [(4.0, "holds", "clear"), (8.0, "fails", "clear"), (6.0, "abstains", "negligible")],
)
def test_the_order_is_decided_against_the_gaussian_not_against_zero(coarse, outcome, strength):
    """The plain gap is above 0 in all three."""
    found = judged_order(order_data(coarse=(coarse,) * 3))
    assert (found.name, found.outcome, found.strength) == ("C", outcome, strength)
    assert float(found.statistic.values) == pytest.approx(10 - coarse, abs=0.15)
    assert float(found.null.values) == pytest.approx(4, abs=0.15)
    assert found.effect == pytest.approx(6 - coarse, abs=0.2)
    assert found.interval.low < found.effect < found.interval.high
    assert "could have seen a difference of" in found.because
    assert "from 64 images" in found.because


def test_one_coupling_alone_does_not_decide():
    """The mean does: one of three couplings is far on the other side."""
    found = judged_order(order_data(coarse=(4.0, 4.0, 7.5)))
    assert found.outcome == "holds"
    assert "2 of 3 couplings lie above the Gaussian and 1 below" in found.because


def test_the_error_of_the_covariance_widens_the_interval():
    sure, unsure = (judged_order(order_data(coarse=(4.8,) * 3, spread=s)) for s in (0.0, 0.6))
    assert sure.outcome == "holds"
    assert unsure.outcome == "abstains"
    assert unsure.interval.high - unsure.interval.low > 2 * (sure.interval.high - sure.interval.low)


def test_a_verdict_does_not_hang_on_the_rank_of_the_covariance():
    found = judged_order(order_data(coarse=(4.8,) * 3, ranks=(0.0, 1.5)))
    assert found.outcome == "abstains"
    assert found.effect > 1
    assert found.interval.low < 0 < found.interval.high
    assert "union over 2 ranks" in found.interval.method


def test_an_order_without_transitions_is_uninformative():
    flat = order_data(amounts=0.0)
    assert judged_order(flat).outcome == "uninformative"
    half = order_data()
    half["fine"][:2] = 1 + 0.05 * np.random.default_rng(0).standard_normal(half["fine"][:2].shape)
    found = judged_order(half)
    assert found.outcome == "uninformative"
    assert "2 of 3 curves" in found.because
    third = order_data(coarse=(4.0,) * 3)
    third["fine"][:1] = half["fine"][:1]
    assert judged_order(third).outcome == "holds"


def noise_at(arrays, curves):
    """The same distances, of which some curves do not fall."""
    rng = np.random.default_rng(0)
    arrays["fine"][curves] = 1 + 0.05 * rng.standard_normal(arrays["fine"][curves].shape)
    return arrays


def test_half_of_the_couplings_without_a_transition_are_too_many():
    four = {"coarse": (4.0,) * 4, "fine": (10.0,) * 4}
    found = judged_order(noise_at(order_data(**four), slice(2)))
    assert found.outcome == "uninformative"
    assert "2 of 4 curves" in found.because
    assert judged_order(noise_at(order_data(**four), slice(1))).outcome == "holds"


def test_few_pairs_without_a_transition_abstain():
    found = judged_order(order_data(amounts=0.0, pairs=6))
    assert found.outcome == "abstains"


def test_shared_noise_beside_couplings_is_not_in_the_mean():
    arrays = order_data(coarse=(4.0, 4.0, 9.0))
    arrays["control"] = np.array([False, False, True])
    found = judged_order(arrays)
    assert found.effect == pytest.approx(2, abs=0.2)


def test_ranks_that_disagree_hide_small_differences():
    """What could have been seen grows by the distance between the ranks."""
    seen = []
    for ranks in ((0.0,), (0.0, 1.5)):
        because = judged_order(order_data(coarse=(4.8,) * 3, ranks=ranks)).because
        seen.append(float(re.search(r"have seen a difference of ([\d.]+)", because)[1]))
    assert seen[1] - seen[0] == pytest.approx(1.5, abs=0.3)


def test_a_gap_outside_the_run_is_uninformative():
    """Agreement that falls back: the mean step at which distance is lost lies after the run."""
    outside = order_data()
    outside["fine"] = outside["fine"] * 0 + np.r_[np.ones(5), np.full(3, 4.0), 0.5]
    outside["fine"] *= np.random.default_rng(0).gamma(100, 0.01, (3, 24, 1))
    found = judged_order(outside)
    assert found.outcome == "uninformative"
    assert "outside the run" in found.because


def test_one_coupling_is_enough_and_few_pairs_are_not():
    assert judged_order(order_data((4.0,), (10.0,))).outcome == "holds"
    few = judged_order(order_data(coarse=(2.0,) * 3, pairs=6))
    assert few.outcome == "abstains"
    assert "at least 8 pairs are needed" in few.because


def test_shared_noise_does_not_decide():
    assert judged_order(order_data(control=True)).because.endswith("no coupling was measured")


def test_a_control_that_cannot_be_made_is_told():
    arrays = {k: v for k, v in order_data().items() if not k.startswith(("gaussian", "without"))}
    table = order_table(Order(arrays=arrays, seed=0), "the images do not differ")
    assert set(table["status"]) == {"no control"}
    assert table["gap"].notna().all()
    assert table["excess"].isna().all()
    found = judged_order(arrays, "the images do not differ")
    assert found.outcome == "abstains"
    assert found.because.endswith("the control cannot be made: the images do not differ")


def test_pairs_that_are_copies_have_no_spread_and_break_nothing():
    arrays = order_data(coarse=(4.0,) * 3)
    for name in ("coarse", "fine"):
        arrays[name] = np.repeat(arrays[name][:, :1], 24, axis=1)
        arrays[f"gaussian_{name}"] = np.repeat(arrays[f"gaussian_{name}"][:, :, :1], 24, axis=2)
    found = judged_order(arrays)
    assert found.outcome in ("holds", "abstains")
    assert np.isfinite([found.interval.low, found.interval.high]).all()


def test_intervals_of_the_table_hold_for_all_couplings_together():
    """120 repeats of 8 couplings without an excess: the share with any outside is near 5 %.

    Four deviations are allowed.
    """
    missed = 0
    for seed in range(120):
        arrays = order_data((6.0,) * 8, (10.0,) * 8, seed=seed)
        table = order_table(Order(arrays=arrays, seed=seed))
        missed += bool(((table["excess_low"] > 0) | (table["excess_high"] < 0)).any())
    assert missed / 120 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 120)


def layer_data(
    values, *, latents=0.0, spread=0.1, pairs=24, draws=199, seed=0, twins=(0.0,) * 5, jitter=0.01
):
    """Arrays and table of R2 for layers with these log ratios, and for twins with theirs."""
    rng = np.random.default_rng(seed)
    observed = np.array([latents, *values])
    size = len(observed)
    null = spread * (rng.standard_normal(draws) + 0.5 * rng.standard_normal((size, draws)))
    left_out = spread / pairs * rng.standard_normal((size, pairs))
    nulls = [null_of(v, d) for v, d in zip(observed, null, strict=True)]
    band = np.quantile(null, [0.025, 0.975], axis=1)
    table = pd.DataFrame(
        {"g": 0.0, "layer": np.arange(size), "log_gap": observed, "null_low": band[0],
         "null_high": band[1], "p_all": [1.0, *familywise(nulls[1:])], "status": "ok",
         "because": ""}
    )  # fmt: skip
    arrays = {"layer": np.arange(size), "observed": observed, "draws": null, "left_out": left_out}
    shuffled = np.r_[0.0, np.ones(size - 1)] * np.asarray(twins)[:, None]
    shuffled[:, 1:] += jitter * rng.standard_normal((len(twins), 1))
    exchanged = spread * rng.standard_normal((len(twins), 1, draws))
    exchanged = exchanged + 0.5 * spread * rng.standard_normal((len(twins), *null.shape))
    changes = spread / pairs * rng.standard_normal((len(twins), size, pairs))
    arrays |= {"twin_observed": shuffled, "twin_draws": exchanged, "twin_left_out": changes}
    return arrays, table


def judged_layers(values, **kwargs):
    arrays, table = layer_data(values, **kwargs)
    return judge_internal_gap(arrays, table, claim=CLAIM, seed=0)


@pytest.mark.parametrize(
    ("values", "outcome", "strength"),
    [
        ([0.5, 0.4, 0.6], "holds", "clear"),
        ([-0.5, -0.4, -0.6], "fails", "clear"),
        ([0.02, -0.01, 0.0], "abstains", "negligible"),
    ],
)
def test_the_internal_gap_is_decided_by_the_mean_of_the_layers(values, outcome, strength):
    found = judged_layers(values)
    assert (found.name, found.outcome, found.strength) == ("C", outcome, strength)
    assert found.effect == pytest.approx(np.mean(values), abs=0.05)
    plain = float(re.search(r"p = (\S+) by exchange", found.because)[1])
    assert (plain <= 0.05) == (outcome != "abstains")
    assert "could have seen a mean log ratio of" in found.because
    statistic, null = float(found.statistic.values), float(found.null.values)
    assert statistic - null == pytest.approx(found.effect)


def test_a_log_ratio_is_told_as_a_share_of_the_energy():
    """A log ratio of −log 2 is half of the energy, one of log 2 is twice as much."""
    half, twice = (judged_layers([sign * math.log(2)] * 3, jitter=0.0, spread=1e-3)
                   for sign in (-1, 1))  # fmt: skip
    assert "weak modes keep 50% less" in half.because
    assert "weak modes keep 100% more" in twice.because


def test_what_the_latents_show_is_not_the_networks():
    assert judged_layers([0.5, 0.4, 0.6]).outcome == "holds"
    assert judged_layers([0.5, 0.4, 0.6], latents=0.5).outcome == "abstains"
    assert judged_layers([0.0, 0.1, 0.0], latents=0.6).outcome == "fails"


@pytest.mark.parametrize(("spread", "outcome"), [(0.2, "abstains"), (0.4, "uninformative")])
def test_silence_means_something_only_where_half_a_log_unit_would_have_been_seen(spread, outcome):
    found = judged_layers([0.02, -0.01, 0.0], spread=spread)
    assert found.outcome == outcome
    assert ("would have been detected, more than 0.5" in found.because) == (spread == 0.4)
    assert "this run could have seen a mean log ratio of" in found.because


def could_have_seen(verdict):
    return float(re.search(r"could have seen a mean log ratio of ([\d.]+)", verdict.because)[1])


@pytest.mark.parametrize(("sign", "outcome"), [(1, "holds"), (-1, "fails")])
def test_an_effect_that_was_seen_is_judged_however_wide_its_null(sign, outcome):
    found = judged_layers(sign * np.array([2.5, 2.4, 2.6]), spread=0.5)
    assert found.outcome == outcome
    assert could_have_seen(found) > DETECTABLE


def differences(planted, seed, network=0, *, pairs=24, layers=2, width=14):
    """Reading of drawn differences whose weak modes keep more or less, behind the same latents."""
    shared, rng = np.random.default_rng(seed), np.random.default_rng([seed, network])
    size, weak = np.exp(-0.35 * np.arange(width)), np.arange(width) >= width // 2
    common = shared.standard_normal((2, 1, pairs, width))
    first, noise = size * (
        0.8 * common + 0.6 * rng.standard_normal((2, layers + 1, pairs, width))
    )  # fmt: skip
    later = 0.6 * first + 0.8 * noise
    later[1:] *= np.exp(0.5 * planted * weak)
    rows = np.concatenate([first, later], 1)
    grams = rows @ rows.transpose(0, 2, 1)
    reading = {"clock": np.array([0]), "latent_gram": grams[:1], "clock_gram": grams[1:, None]}
    return gap_arrays(reading, 0, SyncConfig(pairs=pairs, band=6))


@pytest.mark.parametrize(("planted", "outcome"), [(2.0, "holds"), (-1.2, "fails")])
def test_a_planted_change_is_seen_or_the_run_says_that_it_could_not_have(planted, outcome):
    """What the run could have seen is the smallest log ratio with a power of .8."""
    answers = []
    for seed in range(2):
        arrays = differences(planted, seed)
        arrays |= twin_arrays(arrays, [differences(0, seed, k) for k in range(1, 6)])
        layers = {"layer": arrays["layer"], "log_gap": arrays["observed"], "null_low": 0.0}
        table = pd.DataFrame({**layers, "null_high": 0.0, "p_all": 1.0, "status": "ok"})
        found = judge_internal_gap(arrays, table, claim=CLAIM, seed=0)
        answers.append(found.outcome)
        if found.outcome != outcome:
            assert found.outcome in ("abstains", "uninformative")
            assert could_have_seen(found) > 0.9 * abs(found.effect)
    assert outcome == "fails" or answers == ["holds"] * 2, "24 pairs do see a large gap"


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_few_pairs_abstain_however_little_they_could_have_seen(spread):
    found = judged_layers([0.02, -0.01, 0.0], pairs=6, spread=spread)
    assert found.outcome == "abstains"
    assert "at least 8 pairs are needed" in found.because


def test_few_pairs_abstain():
    few = judged_layers([0.5, 0.4, 0.6], pairs=6)
    assert few.outcome == "abstains"
    assert "at least 8 pairs are needed" in few.because


def test_layers_on_both_sides_of_the_null_give_no_answer():
    found = judged_layers([1.5, *[-0.8] * 5], spread=0.05)
    assert found.outcome == "abstains"
    assert "1 layers lie above their null and 5 below" in found.because
    assert found.effect < 0


@pytest.mark.parametrize(
    ("twins", "outcome"),
    [
        ((0.0,) * 5, "holds"),
        ((0.5,) * 5, "abstains"),  # the weights in random order do the same
        ((1.0,) * 5, "fails"),
        ((0.0, 0.4, -0.4, 0.2, -0.2), "uninformative"),  # the model is one more of these
    ],
)
def test_the_internal_gap_is_that_beyond_the_same_weights_in_random_order(twins, outcome):
    """Against the exchange alone all four would hold."""
    found = judged_layers([0.5, 0.4, 0.6], twins=twins)
    assert found.outcome == outcome
    assert found.effect == pytest.approx(0.5 - np.mean(twins), abs=0.06)
    assert "the model alone +0.5" in found.because or "the model alone +0.4" in found.because


def test_a_random_network_is_one_more_of_its_twins():
    """400 networks whose mean gaps spread by .3: at most 5 % + four deviations lie outside."""
    rng, outside = np.random.default_rng(1), 0
    for seed in range(400):
        own, *others = 0.3 * rng.standard_normal(6)
        arrays, _ = layer_data([own] * 2, twins=others, jitter=0.0, spread=0.02, seed=seed)
        gap = gap_beyond_twins(layer_gaps(arrays), twin_gaps(arrays))
        outside += not gap.interval[0] <= 0 <= gap.interval[1]
    assert outside / 400 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)
    assert outside > 4, "nor is it much wider than it says"


def test_without_twins_there_is_no_verdict():
    arrays, table = layer_data([0.5, 0.4, 0.6])
    few = {name: values for name, values in arrays.items() if not name.startswith("twin")}
    found = judge_internal_gap(few, table, claim=CLAIM, seed=0, without_twins="no weights")
    assert found.outcome == "abstains"
    assert found.because.endswith("there are no networks with shuffled weights: no weights")


def test_layers_are_above_or_below_their_null_and_not_above_or_below_zero():
    """Nulls around .5: a log ratio of .2 lies below, one of .8 above."""
    arrays, table = layer_data([0.2, 0.8], spread=0.01)
    table[["null_low", "null_high"]] += 0.5
    table["p_all"] = [1.0, 0.01, 0.01]
    found = judge_internal_gap(arrays, table, claim=CLAIM, seed=0)
    assert found.outcome == "abstains"
    assert "1 layers lie above their null and 1 below" in found.because


def test_a_single_layer_far_out_does_not_make_the_interval():
    """The interval is that of the mean, wherever the furthest layer lies."""
    found = judged_layers([0.0, 0.0, 0.0, 0.9], spread=0.05)
    assert found.effect == pytest.approx(0.225, abs=0.03)
    assert found.interval.high < 0.9


def test_without_a_layer_or_without_latents_the_reason_is_told():
    arrays, table = layer_data([0.5, 0.5])
    table["because"] = ["", "too few modes", ""]
    own = ("layer", "observed", "draws", "left_out")
    rest = {name: arrays[name][1:] for name in own}
    found = judge_internal_gap(rest, table, claim=CLAIM, seed=0)
    assert (found.outcome, found.statistic.status) == ("abstains", "abstained")
    assert found.because.endswith("too few modes")
    none = judge_internal_gap({"layer": np.zeros(0)}, table.iloc[:0], claim=CLAIM, seed=0)
    assert none.because.endswith("nothing was measured")


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
