"""Contraction is judged against rows that overlap as much, on attention whose answer is known."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.known_attention import attention_arrays as curved
from benchmarks.known_attention import contraction_verdict as judged

from flowscope.instruments.audit.contraction.effects import joint_bounds, overlap_correlations
from flowscope.instruments.audit.contraction.judge import judge_contraction
from flowscope.instruments.audit.units import distinct_prompts


@pytest.mark.parametrize("heads", [1, 3])
def test_attention_to_other_keys_of_one_place_holds(heads):
    verdict = judged(curved("gathered", 0, heads=heads))
    assert (verdict.outcome, verdict.strength) == ("holds", "strong"), verdict.because
    assert f"over {heads} of {heads} heads" in verdict.because
    assert f"{heads} heads bring points together more than overlap does, 0 less" in verdict.because
    difference = float(verdict.statistic.numbers()) - float(verdict.null.numbers())
    assert verdict.effect == pytest.approx(difference)


def test_attention_to_opposite_sides_fails():
    verdict = judged(curved("opposite", 0))
    assert verdict.outcome == "fails"
    assert verdict.interval.high < 0


def test_uniform_attention_could_not_have_failed():
    verdict = judged(curved("uniform", 0))
    assert (verdict.outcome, verdict.decision) == ("uninformative", "abstains")
    assert float(verdict.statistic.numbers()) == pytest.approx(1.0)
    assert "overlap" in verdict.because


@pytest.mark.parametrize("kind", ["noise", "permuted"])
def test_attention_that_does_not_know_the_places_seldom_holds(kind):
    repeats = 60
    outcomes = [judged(curved(kind, seed, heads=1, pairs=3)).outcome for seed in range(repeats)]
    # At a level of .025 per side, six or more of 60 have a probability of .003.
    assert outcomes.count("holds") <= 5
    assert outcomes.count("fails") <= 5


def test_equally_far_points_are_uninformative():
    """Where all points are equally far, W₁ is total variation, whatever the rows are."""
    arrays = curved("noise", 1)
    arrays["curvature_transport"] = 2.0 * arrays["curvature_total_variation"]
    assert judged(arrays).outcome == "uninformative"
    rng = np.random.default_rng(0)
    arrays["curvature_transport"] = rng.permuted(arrays["curvature_transport"], axis=0)
    assert judged(arrays).outcome != "uninformative"


def planted(effect, *, prompts=16, null=0.5, spread=0.02, seed=0):
    """Verdict on numbers per prompt whose difference is planted."""
    rng = np.random.default_rng(seed)
    kappa = null + effect + spread * rng.standard_normal((prompts, 1, 2))
    heads = pd.DataFrame({"status": ["ok", "ok"], "because": "", "random_weights": 0.97})
    heads = heads.assign(joint_low=[0.1, -0.1], joint_high=0.2, overlap_correlation=0.5)
    return judge_contraction(kappa, np.full_like(kappa, null), heads)


@pytest.mark.parametrize(
    ("effect", "null", "outcome", "strength"),
    [
        (0.30, 0.5, "holds", "strong"),
        (0.10, 0.5, "holds", "clear"),
        (0.04, 0.5, "holds", "weak"),
        (0.015, 0.5, "abstains", "negligible"),
        (0.03, 0.9, "holds", "clear"),  # less is left open
        (-0.10, 0.5, "fails", "clear"),
    ],
)
def test_size_is_the_share_of_what_overlap_leaves_open(effect, null, outcome, strength):
    verdict = planted(effect, null=null, spread=0.004)
    assert (verdict.outcome, verdict.strength) == (outcome, strength)
    assert "0.97 with random weights" in verdict.because
    assert "1 heads bring points together more than overlap" in verdict.because


@pytest.mark.parametrize(("null", "outcome"), [(0.94, "fails"), (0.96, "uninformative")])
def test_a_share_of_nearly_nothing_decides_nothing(null, outcome):
    """Nearly uniform rows: κ and its permutation differ in the third decimal, and surely so."""
    verdict = planted(-0.005, null=null, spread=0.001)
    assert verdict.outcome == outcome
    assert ("overlap leaves only 0.040 open" in verdict.because) is (outcome == "uninformative")


@pytest.mark.parametrize("prompts", [1, 7])
def test_few_prompts_decide_nothing_and_say_how_many_are_needed(prompts):
    verdict = planted(0.3, prompts=prompts)
    assert verdict.outcome == "abstains"
    assert f"at least 8 different prompts are needed; this run has {prompts}" in verdict.because


def test_heads_that_say_nothing_make_the_verdict_abstain():
    heads = pd.DataFrame({"status": ["abstained"] * 2, "because": "every pair is pinned"})
    verdict = judge_contraction(np.ones((9, 1, 2)), np.ones((9, 1, 2)), heads)
    assert verdict.outcome == "abstains"
    assert "2 of 2 heads: every pair is pinned" in verdict.because


def test_a_prompt_without_pairs_is_no_unit():
    kappa = np.full((9, 1, 1), 0.6)
    kappa[2:] = np.nan
    heads = pd.DataFrame({"status": ["ok"], "because": "", "random_weights": np.nan})
    heads = heads.assign(joint_low=np.nan, joint_high=np.nan, overlap_correlation=0.5)
    verdict = judge_contraction(kappa, kappa - 0.1, heads)
    assert "this run has 2" in verdict.because


def test_joint_intervals_cover_all_heads_together_and_pointwise_ones_do_not():
    rng = np.random.default_rng(0)
    prompts, heads, repeats = 24, 40, 150
    missed = 0
    for seed in range(repeats):
        shared = rng.standard_normal((prompts, 1))
        values = 0.5 * shared + rng.standard_normal((prompts, heads))
        low, high = joint_bounds(values, seed=seed)
        missed += bool((low > 0).any() or (high < 0).any())
        alone = 2.069 * values.std(0, ddof=1) / np.sqrt(prompts)
        assert ((high - low) / 2 >= alone - 1e-3).all()
    assert 1 <= missed <= 17  # .05 of 150 are 7.5; 18 or more have a probability of .0007


def test_joint_interval_of_one_head_is_that_of_student():
    values = np.random.default_rng(1).standard_normal((30, 1))
    low, high = joint_bounds(values, seed=0)
    half = 2.045 * values.std(ddof=1) / np.sqrt(30)
    assert (high - low)[0] / 2 == pytest.approx(half, rel=0.12)
    assert (high + low)[0] / 2 == pytest.approx(values.mean())
    assert np.isnan(joint_bounds(values[:7], seed=0)).all()


def test_rank_correlation_of_transport_and_overlap():
    moved = np.array([[1.0, 4.0, 0.0], [2.0, 3.0, 0.0], [3.0, 1.0, 0.0], [9.0, 0.5, 0.0]])
    apart = np.array([[0.1, 0.1, 0.0], [0.2, 0.2, 0.0], [0.3, 0.3, 0.0], [0.4, 0.4, 0.0]])
    np.testing.assert_allclose(overlap_correlations(moved, apart), [1.0, -1.0, 1.0])
    assert np.isnan(overlap_correlations(moved[:2], apart[:2])[0])


def test_equal_prompts_are_one_unit():
    steps = np.random.default_rng(0).uniform(0.1, 0.2, size=(3, 5))
    repeated = np.concatenate([steps, steps * (1 + 1e-6), steps[:1]])
    assert distinct_prompts({"relative_step": repeated}).tolist() == [0, 1, 2]
