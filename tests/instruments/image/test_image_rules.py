"""Judgements on samplers: planted tables decide them."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from flowscope.flows.hodge import Settings, rotation_reading, stored_readings
from flowscope.instruments.image.parity.judge import judge_parity
from flowscope.instruments.image.parity.judge import parity as judge_parity_of_run
from flowscope.instruments.image.rotation.judge import gradient as judge_gradient_of_run
from flowscope.instruments.image.rotation.judge import judge_gradient
from flowscope.instruments.image.step_sizes.judge import judge_order
from flowscope.lab import Abstention, Claim

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def budget(*excesses, below=0.005, above=0.005, **columns):
    """Rows with these excesses over a budget of .01, at log snr −1, 0, 1 and so on."""
    excess = np.array(excesses)
    given = {"counted": True, "noise": 0.004, "budget": 0.01, "detectable": 0.03, "outside": 0.0}
    frame = pd.DataFrame(
        {"step": np.arange(1, len(excess) + 1), "log_snr": np.arange(len(excess)) - 1.0,
         "excess": excess, "excess_low": excess - below, "excess_high": excess + above,
         "distance": excess + 0.014, "images": 500}
    )  # fmt: skip
    return frame.assign(**given | columns)


def parity(*excesses, **columns):
    return judge_parity(budget(*excesses, **columns), claim=CLAIM, steps=50, seed=1)


def test_parity_fails_where_the_samplers_differ_beyond_their_step_errors():
    found = parity(0.01, 0.06, 0.03)
    assert (found.name, found.outcome, found.strength) == ("C", "fails", "clear")
    assert "differ by 0.06 [0.055, 0.065]" in found.because
    assert "after step 2 of 50" in found.because
    assert found.effect == pytest.approx(0.06)
    assert found.statistic.numbers() == pytest.approx(0.07)
    assert found.null.numbers() == pytest.approx(0.01)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.055, 0.065))


def test_parity_holds_where_every_time_excludes_the_limit():
    assert parity(-0.01, 0.01).outcome == "holds"
    assert parity(-0.01, 0.01).strength == ""
    undecided = parity(-0.01, 0.01, above=0.02)
    assert undecided.outcome == "abstains"
    assert "could have seen an excess of 0.03" in undecided.because
    assert "take about 2,000 images" in undecided.because  # (.02 / .01)² times as many


def test_a_time_of_noise_does_not_count():
    assert parity(0.3, 0.01, counted=[False, True]).outcome == "holds"
    nothing = parity(0.01, 0.01, counted=False)
    assert nothing.outcome == "abstains"
    assert "no verdict, because no step of this schedule" in nothing.because


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"noise": 0.12}, "too few images"),
        ({"budget": 0.12}, "take more steps"),
        ({"outside": 0.08}, "beyond the bins"),
    ],
)
@pytest.mark.parametrize("excess", [0.001, 0.3])
def test_noise_steps_and_lost_values_say_nothing_of_the_samplers(change, words, excess):
    found = parity(excess, **change)
    assert (found.outcome, found.decision, found.strength) == ("uninformative", "abstains", "")
    assert words in found.because


def test_few_images_or_ends_that_are_missing_decide_nothing():
    for change in ({"images": 7}, {"excess_high": math.nan}, {"excess_low": math.nan}):
        found = parity(0.3, **change)
        assert found.outcome == "abstains"
        assert "too few for an interval" in found.because
    assert parity(0.3, images=8).outcome == "fails"


def test_parity_fails_at_the_time_that_is_sure_and_not_at_the_largest():
    table = budget(0.08, 0.06)
    table["excess_low"] = [0.01, 0.055]
    found = judge_parity(table, claim=CLAIM, steps=50, seed=1)
    assert found.outcome == "fails"
    assert "after step 2 of 50" in found.because


@pytest.mark.parametrize("judge", [judge_parity_of_run, judge_gradient_of_run])
def test_a_guided_field_is_not_judged(judge):
    with pytest.raises(Abstention, match="guidance"):
        judge(SimpleNamespace(settings={"guidance": 2.0}))


def slopes(*rows):
    """(sampler, slope, low, high), or (sampler, reason)."""
    made = []
    for sampler, *told in rows:
        ok = len(told) == 3
        slope, low, high = told if ok else (math.nan,) * 3
        made.append(
            {"sampler": sampler, "observable": "square", "slope": slope, "low": low, "high": high,
             "method": "jackknife t", "first": 4, "last": 16, "images": 16,
             "status": "ok" if ok else "unresolved", "because": "" if ok else told[0]}
        )  # fmt: skip
    made.append(made[0] | {"observable": "mean", "slope": -3.0, "low": -3.1, "high": -2.9,
                           "status": "ok"})  # fmt: skip
    return pd.DataFrame(made)


CHANGES = pd.DataFrame(
    [{"sampler": sampler, "observable": observable, "steps": steps, "difference": -0.64 / steps,
      "low": -0.64 / steps - 0.002, "high": -0.64 / steps + 0.002}
     for sampler in ("ode", "sde") for observable in ("square", "mean") for steps in (4, 16)]
)  # fmt: skip


def order(*rows):
    return judge_order(slopes(*rows), CHANGES, claim=CLAIM, observable="square", seed=2)


def test_the_first_order_range_needs_both_intervals_near_minus_one():
    """Not −1 itself: a first-order scheme has it in the limit only."""
    near = order(("ode", -0.97, -0.98, -0.96), ("sde", -1.1, -1.2, -0.8))
    assert near.outcome == "holds"
    assert "error of the square at 32 steps, by its change from 16 steps: 0.04 ±" in near.because
    assert near.effect == pytest.approx(0.03)
    assert (near.interval.low, near.interval.high) == pytest.approx((0.02, 0.04))
    wide = order(("ode", -0.97, -0.98, -0.96), ("sde", -1.1, -2.0, -0.3))
    assert wide.outcome == "abstains"
    off = order(("ode", -0.97, -0.98, -0.96), ("sde", -0.5, -0.6, -0.4))
    assert off.outcome == "fails"
    assert "not within 0.25 of −1: sde" in off.because
    assert off.effect == pytest.approx(0.5)
    assert order(("ode", -2.0, -2.1, -1.9), ("sde", -1.0, -1.1, -0.9)).outcome == "fails"


@pytest.mark.parametrize("other", [("sde", "K = 8 is noise"), ("sde", "K = 16 is noise")])
def test_one_unresolved_sampler_says_nothing(other):
    for ode in (("ode", "K = 4 is noise"), ("ode", -1.0, -1.1, -0.9), ("ode", -3.0, -3.1, -2.9)):
        found = order(ode, other)
        assert (found.outcome, found.decision) == ("uninformative", "abstains")
        assert f"sde: {other[1]}" in found.because


def windows(share=0.0, n=200, count=3, spread=0.2, degree=2, seed=0):
    """Readings of a score −Σ⁻¹x with a rotation of so large a share, in windows of states."""
    g = torch.Generator().manual_seed(seed)
    rows, readings = [], []
    for k in range(count):
        x = torch.randn(2 * n, 2, generator=g).double() * torch.tensor([1.0, 0.5])
        smooth = -x * torch.tensor([1.0, 4.0])
        isotropic = (smooth * x).sum() / x.square().sum() * x
        beyond = smooth - isotropic
        turn = torch.stack([-2 * x[:, 1], 0.5 * x[:, 0]], 1)  # leaves the Gaussian as it is
        size = (beyond.square().sum() / turn.square().sum() * share / (1 - share)).sqrt()
        field = beyond + size * turn + spread * torch.randn(2 * n, 2, generator=g)
        groups = torch.arange(n).repeat(2)
        read = rotation_reading(x, field, groups=groups, seed=0, degree=degree,
                                settings=Settings(splits=2, draws=199, blocks=32))  # fmt: skip
        readings.append(read)
        rows.append(
            {"step": k + 1, "log_snr": float(k), "normalised": read.normalised.value,
             "gradient_control": read.control, "planted_control": read.planted,
             "planted_share": 0.05, "images": n, "rank": 2, "degree": read.degree,
             "beyond": 0.3, "represented": read.represented.value, "gradient_error_high": 0.02,
             "status": "ok", "because": ""}
        )  # fmt: skip
    return pd.DataFrame(rows), {"step": np.arange(count) + 1, **stored_readings(readings)}


@pytest.fixture(scope="module")
def turning():
    return windows(0.1)


@pytest.fixture(scope="module")
def quiet():
    return windows(0.0)


def gradient(table, arrays, degree=2):
    return judge_gradient(table, arrays, claim=CLAIM, degree=degree, seed=0)


def test_a_rotation_is_found_and_a_gradient_passes(turning, quiet):
    found = gradient(*turning)
    assert (found.outcome, found.strength) == ("fails", "clear")
    assert found.effect == pytest.approx(0.1, abs=0.04)
    assert found.p <= 0.05
    calm = gradient(*quiet)
    assert (calm.outcome, calm.strength) == ("holds", "")
    assert calm.interval.high < 0.05
    assert calm.p > 0.05


def test_a_rotation_in_one_window_is_enough(turning, quiet):
    table, arrays = (dict(quiet[1]), quiet[0].copy())[::-1]
    for name, values in turning[1].items():
        arrays[name] = np.concatenate([quiet[1][name][:2], values[2:]])
    table.loc[2] = turning[0].loc[2]
    found = gradient(table, arrays)
    assert found.outcome == "fails"
    assert "after step 3" in found.because
    noise = table.assign(log_snr=[1.0, 1.0, -3.1])
    assert gradient(noise, arrays).outcome == "holds"


def test_windows_of_noise_alone_are_not_judged(turning):
    table, arrays = turning
    found = gradient(table.assign(log_snr=-4.0), arrays)
    assert found.outcome == "abstains"
    assert "no verdict, because no window of steps has a log snr of -3" in found.because


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gradient_error_high": 1.1}, "as for random weights"),
        ({"gradient_error_high": math.nan}, "too few images"),
        ({"beyond": 0.001}, "nothing is left that could rotate"),
        ({"represented": 0.01}, "too little to judge"),
        ({"planted_control": 0.001}, "a planted share of 0.05 is read as"),
    ],
)
def test_a_score_that_cannot_be_read_says_nothing(turning, quiet, change, words):
    for table, arrays in (turning, quiet):
        found = gradient(table.assign(**change), arrays)
        assert (found.outcome, found.decision, found.strength) == ("uninformative", "abstains", "")
        assert words in found.because


def test_one_wrong_window_of_three_does_not_count(quiet, turning):
    table, arrays = quiet
    found = gradient(table.assign(gradient_error_high=[0.02, 0.02, 0.8]), arrays)
    assert found.outcome == "holds"
    assert "largest of 2 windows" in found.because


def test_linear_fields_alone_do_not_make_a_gradient():
    table, arrays = windows(0.0, degree=1)
    found = gradient(table, arrays)
    assert found.outcome == "abstains"
    assert "too few for degree 2" in found.because
    assert gradient(*windows(0.1, degree=1)).outcome == "fails"


def test_few_images_say_what_they_could_have_seen():
    table, arrays = windows(0.0, n=60, spread=3.0)
    found = gradient(table.assign(planted_control=0.05, represented=0.5), arrays)
    assert found.outcome == "abstains"
    assert "could have seen a share of" in found.because


def test_a_gradient_that_was_not_read_is_not_judged(quiet):
    silent = quiet[0].assign(status="abstained", because="too few")
    for table, told in ((silent, "too few"), (pd.DataFrame(), "switched off")):
        found = gradient(table, {})
        assert found.outcome == "abstains"
        assert told in found.because
    few = gradient(quiet[0].assign(images=6), quiet[1])
    assert "6 images are too few" in few.because


def stored(share, *, control=0.002, margin=0.01, null=0.003, blocks=0.01):
    """Two windows whose reading, control, null and blocks are set by hand."""
    rng, size = np.random.default_rng(0), 2
    table = pd.DataFrame(
        {"step": [1, 2], "log_snr": 1.0, "normalised": share, "gradient_control": control,
         "planted_control": control + 0.05, "planted_share": 0.05, "images": 200, "rank": 2,
         "degree": 2, "beyond": 0.3, "represented": 0.5, "gradient_error_high": 0.02,
         "status": "ok", "because": ""}
    )  # fmt: skip
    spread = rng.standard_normal((size, 32))
    spread -= spread.mean(1, keepdims=True)
    arrays = {
        "step": np.array([1, 2]), "controls": np.full((size, 9), control),
        "margin": np.full(size, margin), "normalised": np.full((size, 1), share),
        "normalised_blocks": share + blocks * spread,
        "null": null * rng.standard_normal((size, 199)),
    }  # fmt: skip
    return table, arrays


@pytest.mark.parametrize(
    ("share", "settings", "outcome"),
    [
        (0.06, {}, "fails"),
        (0.009, {"margin": 0.0, "null": 0.001}, "holds"),  # seen, and negligible
        (0.05, {"margin": 0.04, "null": 0.008, "blocks": 0.1}, "abstains"),  # p is above .05
        (0.05, {"margin": 0.045, "null": 0.02, "blocks": 0.1}, "abstains"),  # within the margin
        (0.03, {"control": 0.03, "margin": 0.03}, "holds"),  # gradients read the same
        (0.06, {"control": 0.055, "margin": 0.06, "blocks": 0.01}, "holds"),
    ],
)
def test_a_rotation_is_judged_by_its_size_its_p_and_its_controls(share, settings, outcome):
    found = gradient(*stored(share, **settings))
    assert found.outcome == outcome
    assert found.effect == pytest.approx(share - settings.get("control", 0.002))


def test_a_planted_share_must_be_seen_by_half():
    table, arrays = stored(0.06)
    seen = table.assign(planted_control=0.002 + 0.03)
    assert gradient(seen, arrays).outcome == "fails"
    assert gradient(table.assign(planted_control=0.002 + 0.02), arrays).outcome == "uninformative"


def test_half_of_the_windows_must_be_sound():
    table, arrays = stored(0.06)
    half = table.assign(gradient_error_high=[0.02, 0.6])
    assert gradient(half, arrays).outcome == "uninformative"
    assert gradient(table.assign(gradient_error_high=0.5), arrays).outcome == "fails"


WHY = "32 points carry at most 4 functions of a field; linear fields need 5. Pass more points."


def test_late_windows_that_could_not_be_read_are_the_reason(turning):
    table, arrays = turning
    unread = table.assign(
        status=["ok", "abstained", "abstained"], because=["", WHY, WHY], log_snr=[-5.0, -1.0, 2.0]
    )
    found = gradient(unread, arrays)
    assert found.outcome == "abstains"
    assert f"no window with a log snr of -3 or more could be read: {WHY[:30]}" in found.because
    assert "for any model" not in found.because


@pytest.mark.parametrize(("unread", "outcome"), [(1, "holds"), (2, "uninformative")])
def test_windows_that_could_not_be_read_count_as_windows(quiet, unread, outcome):
    table, arrays = quiet
    lost = [False] * (3 - unread) + [True] * unread
    table = table.assign(
        status=np.where(lost, "abstained", "ok"),
        because=np.where(lost, WHY, ""),
        gradient_error_high=np.where(lost, math.nan, 0.02),
    )
    found = gradient(table, arrays)
    assert found.outcome == outcome
    assert ("2 of 3 windows" in found.because) == (unread == 2)
    assert ("linear fields need 5" in found.because) == (unread == 2)
