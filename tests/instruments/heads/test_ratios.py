"""Rules M1 and M2 on arrays whose answer is known: noise, planted effects, guards, bad input."""

import numpy as np
import pandas as pd
import pytest

from flowscope.instruments.heads.geometry.judge import (
    FEWEST_TOKENS,
    judge_one_way,
    judge_sharpness,
)
from flowscope.instruments.heads.geometry.ratios import (
    FLOOR,
    distinct_prompts,
    log_ratios,
    prompt_effects,
    silent_share,
)
from flowscope.instruments.heads.geometry.tables import label_table, with_ratios

OPTIONS = {"level": 0.05, "chain": "unmasked", "seed": 0}


def drawn(
    seed=0,
    *,
    prompts=16,
    heads=24,
    references=3,
    effect=0.0,
    tokens=128,
    size=1.0,
    twins=0.0,
    text=0.0,
):
    """Entropy production of a model and of both references, lognormal over prompts and heads."""
    rng = np.random.default_rng(seed)
    level = size * np.exp(0.5 * rng.normal(size=heads))

    def noise(*shape):
        return np.exp(0.3 * rng.normal(size=shape))

    shift = np.exp(twins * rng.normal(size=(references, 1, 1)))
    return {
        "model": level * np.exp(effect) * noise(prompts, heads),
        "keys_permuted": level * noise(references, prompts, heads),
        "as_sharp": level * shift * noise(references, prompts, heads),
        "as_sharp_permuted": level * np.exp(-text) * shift * noise(references, prompts, heads),
        "random_weights": 0.01 * level * noise(prompts, heads),
        "effective_keys": 5 + rng.random((prompts, heads)),
        "tokens": np.full(prompts, tokens),
    }


def table_of(arrays):
    heads = arrays["model"].shape[1]
    return with_ratios(pd.DataFrame({"layer": 1, "head": range(heads)}), arrays)


def both(arrays):
    return (
        judge_sharpness(arrays, **OPTIONS),
        judge_one_way(arrays, table_of(arrays), **OPTIONS),
    )


@pytest.mark.parametrize(("effect", "outcome"), [(0.8, "holds"), (-0.8, "fails")])
def test_a_planted_effect_is_found_with_its_sign(effect, outcome):
    for verdict in both(drawn(effect=effect)):
        assert verdict.outcome == outcome
        assert float(verdict.effect) == pytest.approx(effect, abs=0.15)
        assert verdict.strength in ("clear", "strong")


def test_exchangeable_chains_are_decided_in_few_of_sixty_draws():
    wrong = [v.outcome in ("holds", "fails") for s in range(60) for v in both(drawn(s))]
    assert sum(wrong) <= 4  # 120 at 5 %, less what is negligible


def test_a_spread_of_twins_as_large_as_the_effect_decides_nothing():
    arrays = drawn(3, effect=0.5, twins=0.6)
    wide, narrow = (judge_sharpness(a, **OPTIONS) for a in (arrays, drawn(3, effect=0.5)))
    assert narrow.outcome == "holds"
    assert wide.outcome == "abstains"
    assert wide.interval.high - wide.interval.low > 2 * (narrow.interval.high - narrow.interval.low)


def test_flat_attention_is_uninformative():
    for verdict in both(drawn(size=1e-3, effect=0.8)):
        assert verdict.outcome == "uninformative"
        assert "too flat" in verdict.because


def test_a_reversible_chain_fails_because_its_null_is_not_flat():
    arrays = drawn()
    arrays["model"] = np.zeros_like(arrays["model"])
    for verdict in both(arrays):
        assert verdict.outcome == "fails"
        assert verdict.strength == "strong"


def test_short_prompts_are_uninformative_for_one_way_looks_only():
    sharp, one_way = both(drawn(tokens=FEWEST_TOKENS - 1, effect=0.8))
    assert sharp.outcome == "holds"
    assert one_way.outcome == "uninformative"
    assert "31 tokens" in one_way.because


@pytest.mark.parametrize("prompts", [1, 2, 7])
def test_few_prompts_abstain_and_say_how_many_are_needed(prompts):
    for verdict in both(drawn(prompts=prompts, effect=0.8)):
        assert verdict.outcome == "abstains"
        assert "at least 8 different prompts" in verdict.because


def test_copies_of_a_prompt_are_one_unit():
    arrays = drawn(prompts=2, effect=0.8)
    copied = {
        name: np.repeat(values, 8, axis=0 if values.ndim < 3 else 1)
        for name, values in arrays.items()
    }
    for verdict in both(copied):
        assert verdict.outcome == "abstains"
        assert "this run has 2" in verdict.because


def test_uniform_attention_is_uninformative_although_its_prompts_look_alike():
    arrays = {name: np.zeros_like(values) for name, values in drawn().items()}
    arrays["tokens"] = np.full(16, 128)
    arrays["effective_keys"] += 128
    for verdict in both(arrays):
        assert verdict.outcome == "uninformative"


def test_one_head_is_enough():
    for verdict in both(drawn(heads=1, effect=0.8)):
        assert verdict.outcome == "holds"


def test_heads_and_prompts_without_a_number_are_left_out():
    arrays = drawn(effect=0.8)
    whole = both(arrays)
    for name in ("model", "keys_permuted", "as_sharp", "as_sharp_permuted"):
        arrays[name][..., :3] = np.nan
    arrays["model"][4] = np.nan
    for verdict, before in zip(both(arrays), whole, strict=True):
        assert verdict.outcome == "holds"
        assert verdict.statistic.n == 15
        assert float(verdict.effect) == pytest.approx(float(before.effect), abs=0.1)


def test_no_number_at_all_is_not_measured():
    arrays = drawn()
    for name in ("keys_permuted", "as_sharp"):
        arrays[name][:] = np.nan
    sharp, one_way = both(arrays)
    assert "no scale of the logits" in sharp.because
    assert "no head has a number" in one_way.because


def test_a_missing_reference_gives_its_reason():
    arrays = drawn()
    del arrays["as_sharp"], arrays["keys_permuted"]
    sharp = judge_sharpness(arrays, "the weights are off-loaded", **OPTIONS)
    one_way = judge_one_way(arrays, table_of(arrays), "the mask is part of the chain", **OPTIONS)
    assert sharp.because.endswith("the weights are off-loaded")
    assert one_way.because.endswith("the mask is part of the chain")


def test_an_undecided_run_says_what_it_could_have_seen():
    for verdict in both(drawn(1)):
        assert verdict.outcome == "abstains"
        assert "could have seen an effect of" in verdict.because


def test_what_the_text_alone_gives_is_taken_off():
    arrays = drawn(4, effect=-0.3, text=-0.3)
    with_twins = judge_one_way(arrays, table_of(arrays), **OPTIONS)
    assert with_twins.outcome == "abstains"
    assert abs(float(with_twins.effect)) < 0.1
    assert "random twins as sharp read -0.3" in with_twins.because
    del arrays["as_sharp_permuted"]
    plain = judge_one_way(arrays, table_of(arrays), **OPTIONS)
    assert plain.outcome == "fails"
    assert "there is no random twin to compare with" in plain.because


def test_plain_random_weights_are_printed_and_not_judged():
    arrays = drawn(2)
    sharp = judge_sharpness(arrays, **OPTIONS)
    assert "is not judged" in sharp.because
    arrays["random_weights"] = arrays["random_weights"] * 1e-3
    assert judge_sharpness(arrays, **OPTIONS).effect == sharp.effect


def test_the_median_over_heads_has_mean_zero_for_skewed_exchangeable_chains():
    rng = np.random.default_rng(5)
    skewed = rng.gamma(0.3, size=(4, 4000, 5))  # logarithms far from symmetric
    effects = prompt_effects(log_ratios(skewed[0] + FLOOR, skewed[1:] + FLOOR))
    assert abs(effects.mean()) < 4 * effects.mean(0).std() / np.sqrt(4000)


def test_silent_heads_are_counted_by_the_length_of_the_text():
    null = np.array([[[0.1, 0.01]]])
    shares = [silent_share(null, np.array([n]), 0.05) for n in (10, 64, 512)]
    assert shares == [1.0, 0.5, 0.0]


def test_padding_noise_does_not_make_a_prompt_another():
    keys = np.array([[3.0, 2.0], [3.0 + 1e-5, 2.0], [3.1, 2.0]])
    assert distinct_prompts(keys / 7, keys).tolist() == [0, 2]


def test_prompts_with_flat_attention_are_not_taken_for_copies():
    """Found on random weights: effective keys of 127.8 of 128 differ by less than rounding."""
    keys = np.full((3, 4), 127.8)
    production = np.random.default_rng(0).uniform(0.9, 1.1, size=(3, 4)) * 1e-3
    assert distinct_prompts(production, keys).tolist() == [0, 1, 2]
    assert distinct_prompts(0 * production, keys).tolist() == [0]


def test_heads_that_differ_are_found_together():
    arrays = drawn(7, heads=40)
    arrays["model"][:, :5] *= np.exp(1.5)
    table = table_of(arrays)
    assert (table["log_ratio_permuted_joint_low"][:5] > 0).all()
    assert (table["log_ratio_permuted_joint_low"][5:] > 0).sum() == 0
    assert (table["log_ratio_permuted_p"][:5] <= 0.05).all()
    joint = table["log_ratio_permuted_joint_high"] - table["log_ratio_permuted_joint_low"]
    alone = table["log_ratio_permuted_high"] - table["log_ratio_permuted_low"]
    assert (joint >= alone).all()


def test_labels_are_counted_with_the_error_of_the_family():
    labels = ["steady state"] * 30 + ["equilibrium"] * 6 + ["undecided"] * 4
    joint = ["steady state"] * 20 + ["undecided"] * 20
    frame = pd.DataFrame({"label": labels, "label_joint": joint, "entropy_production_low": 0.1})
    rows = label_table(frame).set_index("label")
    assert rows["heads"].to_dict() == {"steady state": 30, "equilibrium": 6, "undecided": 4}
    assert rows["heads_joint"].to_dict() == {"steady state": 20, "equilibrium": 0, "undecided": 20}
    assert rows.loc["steady state", "expected_wrong"] == pytest.approx(0.025 * 40)
    assert rows.loc["undecided", "expected_wrong"] == 0
    assert rows.loc["steady state", "any_wrong_joint"] == pytest.approx(0.05)
