"""The gates: what passes, what fails, what abstains, and the figure that decided."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flowscope.evidence import not_measured
from flowscope.instruments.audit.variation.cross_fit import gate_table, joined_segments
from flowscope.instruments.audit.variation.judge import (
    SegmentEvidence,
    interval_decision,
    judge_gate,
    stretches,
)
from flowscope.instruments.audit.variation.tables import segment_table
from flowscope.lab import Claim
from flowscope.records import Interval, Unavailable

CLAIM = Claim(name="C", says="what is judged", asks="Is it so?")


def _segment(first, last, value, kind="segment", residual=1e-16):
    return SegmentEvidence(
        first=first,
        last=last,
        kind=kind,
        relative_variation=value,
        interval=Interval(low=value * 0.9, high=value * 1.1, level=0.95, method="bootstrap"),
        share_above=0.0,
        mass_residual=residual,
        mass_bound=1e-12,
        threshold=0.15,
        random_weights=0.2,
        linear_interpolation=0.003,
    )


def _side(name, *rows, prompts=8):
    """Rows of the gate that one half of the prompts cuts: (first, last, low, high) or a jump."""
    made = []
    for first, last, *bounds in rows:
        low, high = bounds or (3.0, 4.0)
        decision = interval_decision(low, high, 0.15) if bounds else "abstains"
        made.append(
            {
                "cuts_from": name, "prompts": prompts, "first_layer": first, "last_layer": last,
                "kind": "segment" if bounds else "jump", "relative_variation": (low + high) / 2,
                "low": low, "high": high, "threshold": 0.15, "random_weights": 0.3,
                "decision": decision,
            }
        )  # fmt: skip
    return made


def _gate(even, odd):
    return pd.DataFrame(_side("even", *even) + _side("odd", *odd))


def _states(gate):
    return [(s.first, s.last, s.state) for s in stretches(gate)]


GENTLE, ROUGH, OPEN = (0.03, 0.05), (0.2, 0.3), (0.1, 0.2)


def test_layers_that_pass_both_ways_are_readable_and_others_are_named():
    gate = _gate([(1, 3), (4, 14, *GENTLE)], [(1, 4), (5, 14, 0.06, 0.08)])
    assert _states(gate) == [(1, 3, "jump"), (4, 4, "abstains"), (5, 14, "holds")]
    verdict = judge_gate(gate, units=16)
    assert verdict.decision == "holds"
    assert verdict.because.startswith("layers 5–14; 4 undecided; 1–3 too rough or a jump; ")
    assert "0.04 [0.03, 0.05] and 0.07 [0.06, 0.08] on the two halves" in verdict.because
    assert "limit 0.15, 0.3 with random weights" in verdict.because
    # The half that is rougher is the number of the verdict.
    assert float(verdict.statistic.numbers()) == pytest.approx(0.07)
    assert verdict.effect == pytest.approx(0.08)
    assert (verdict.interval.low, verdict.interval.high) == pytest.approx((0.07, 0.09))


@pytest.mark.parametrize(
    ("even", "odd", "decision"),
    [
        (GENTLE, GENTLE, "holds"),
        (ROUGH, ROUGH, "fails"),
        (GENTLE, ROUGH, "abstains"),
        (GENTLE, OPEN, "abstains"),
        (OPEN, OPEN, "abstains"),
        (ROUGH, OPEN, "abstains"),
        (ROUGH, (), "fails"),
        (GENTLE, (), "abstains"),
    ],
)
def test_both_halves_must_agree(even, odd, decision):
    verdict = judge_gate(_gate([(1, 12, *even)], [(1, 12, *odd)]), units=16)
    assert verdict.decision == decision
    assert ("no verdict, because" in verdict.because) == (decision == "abstains")


def test_the_whole_interval_decides_not_the_number():
    assert interval_decision(0.10, 0.16, 0.15) == "abstains"
    assert interval_decision(0.14, 0.16, 0.15) == "abstains"
    assert interval_decision(0.10, 0.15, 0.15) == "holds"
    assert interval_decision(0.151, 0.2, 0.15) == "fails"


def test_a_remnant_that_passes_both_ways_is_too_short_to_read():
    gate = _gate([(1, 5, *GENTLE), (6, 30)], [(1, 3), (4, 30, *GENTLE)])
    assert _states(gate) == [(1, 3, "abstains"), (4, 5, "jump"), (6, 30, "abstains")]
    assert judge_gate(gate, units=16).decision == "abstains"


def test_lost_mass_fails_whatever_the_variation():
    gate = _gate([(1, 12, *GENTLE)], [(1, 12, *GENTLE)])
    verdict = judge_gate(gate, units=16, lost_mass=True)
    assert verdict.decision == "fails"
    assert "miss a sum of 1" in verdict.because
    assert _segment(1, 12, 0.01, residual=1e-6).decision == "fails"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_nothing_but_jumps_abstains_in_plain_words(depth):
    verdict = judge_gate(_gate([(1, depth)], [(1, depth)]), units=16)
    assert verdict.decision == "abstains"
    assert verdict.statistic.status == "abstained"
    assert f"no 3 layers in a row lie between jumps (the model has {depth})" in verdict.because


@pytest.mark.parametrize("units", [1, 7])
def test_few_prompts_decide_nothing_but_say_which_layers_are_read(units):
    gate = pd.DataFrame(_side("all", (1, 2), (3, 14, *OPEN)))
    gate["decision"] = ["abstains", "holds"]
    verdict = judge_gate(gate, units=units)
    assert verdict.decision == "abstains"
    assert verdict.because.startswith("layers that later stages read: layers 3–14")
    assert f"at least 8 different prompts are needed; this run has {units}" in verdict.because


def _depth(steps, *, tokens=6, spread=0.3, seed=0, same=False):
    """Arrays of prompts whose squared relative steps scatter about those of each prompt."""
    rng = np.random.default_rng(seed)
    steps = np.asarray(steps, np.float64)
    prompts = len(steps)
    rows = np.repeat(steps, tokens, 0)
    if not same:
        rows = rows * np.exp(spread * rng.standard_normal(rows.shape))
    states = np.ones((len(rows), rows.shape[1] + 1))
    return {"prompt": np.repeat(np.arange(prompts), tokens), "step_sq": rows, "state_sq": states}


def _crossed(depth, distinct):
    settings = {"threshold": 0.15, "resamples": 50, "seed": 0}
    return gate_table(depth, Unavailable("none"), np.asarray(distinct), **settings)


def test_cuts_come_from_the_other_half():
    """The step into layer 4 is a jump on even prompts only: they cut, and odd ones do not."""
    steps = np.full((16, 12), 0.03)
    steps[::2, 3] = 3.0
    gate = _crossed(_depth(steps), range(16))
    even, odd = (gate[gate["cuts_from"] == name] for name in ("even", "odd"))
    assert set(gate["prompts"]) == {8}
    assert even["kind"].tolist() == ["segment", "jump", "segment"]
    assert odd["kind"].tolist() == ["segment"]
    # Odd cuts leave the jump of even prompts inside, where the variation is read.
    assert (
        float(odd["relative_variation"].iloc[0])
        > 0.15
        > float(even.loc[even["kind"] == "segment", "relative_variation"].max())
    )
    segments, crossed = joined_segments(stretches(gate))
    assert crossed == ("abstains", "fails", "abstains")  # layer 4: a jump, and too rough
    assert [len(s) for s in segments] == [3, 1, 8]
    assert judge_gate(gate, units=16).decision == "abstains"


def test_a_smooth_depth_passes_both_ways_and_a_rough_one_fails():
    for size, decision in ((0.03, "holds"), (0.5, "fails")):
        gate = _crossed(_depth(np.full((16, 12), size)), range(16))
        assert judge_gate(gate, units=16).decision == decision


def test_seven_prompts_are_not_split_and_the_number_decides_what_is_read():
    gate = _crossed(_depth(np.full((7, 12), 0.03)), range(7))
    assert set(gate["cuts_from"]) == {"all"}
    assert gate["decision"].tolist() == ["holds"]


def test_equal_prompts_are_no_evidence():
    depth = _depth(np.full((16, 12), 0.03), same=True)
    gate = _crossed(depth, [0])
    assert gate["decision"].tolist() == ["holds"]
    verdict = judge_gate(gate, units=1)
    assert verdict.decision == "abstains"
    assert "this run has 1" in verdict.because


def test_what_the_halves_say_replaces_the_number_of_all_prompts():
    by_number = _segment(1, 12, 0.1)
    assert by_number.decision == "holds"
    undecided = replace(by_number, crossed="abstains")
    assert undecided.decision == "abstains"
    assert "the two halves of the prompts disagree" in undecided.because
    assert replace(by_number, crossed="holds").because.endswith("on both halves of the prompts")
    assert replace(by_number, kind="jump", crossed="holds").decision == "abstains"


def test_what_was_not_measured_abstains_in_words():
    verdict = not_measured(CLAIM, "the model pools")
    assert (verdict.name, verdict.claim) == ("C", "what is judged")
    assert (verdict.decision, verdict.because) == (
        "abstains",
        "no verdict, because the model pools",
    )


def test_path_length_of_a_segment_is_the_sum_of_its_steps():
    depth = {"step_sq": np.array([[9.0, 16.0]])}
    table = segment_table(depth, [_segment(1, 2, 0.1)], np.array([5.0]))
    assert table["path_length"].tolist() == table["total_variation"].tolist() == [7.0]
