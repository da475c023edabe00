"""The gates: what passes, what fails, what abstains, and the figure that decided."""

import numpy as np
import pytest

from flowscope.evidence import not_measured
from flowscope.instruments.audit.variation.judge import SegmentEvidence, judge_variation
from flowscope.instruments.audit.variation.tables import segment_table
from flowscope.lab import Claim
from flowscope.records import Interval

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


def _judged(*segments):
    return judge_variation(segments, claim=CLAIM, n=8, dtype="float32", seed=0)


def test_a_gentle_segment_passes_and_jumps_abstain():
    verdict = _judged(
        _segment(1, 1, 3.3, "jump"), _segment(2, 29, 0.03), _segment(30, 30, 0.8, "jump")
    )
    assert verdict.decision == "holds"
    assert "layers 2–29" in verdict.because
    assert "not judged: layer 1, layer 30" in verdict.because
    assert verdict.effect == pytest.approx(0.03 - 0.2)
    assert verdict.interval.low == pytest.approx(0.027 - 0.2)
    assert verdict.statistic.interval.low == pytest.approx(0.027)


def test_a_rough_path_fails_with_its_figure():
    verdict = _judged(_segment(1, 12, 0.16))
    assert verdict.decision == "fails"
    assert "0.16, above the limit 0.15" in verdict.because


def test_lost_mass_fails_whatever_the_variation():
    verdict = _judged(_segment(1, 12, 0.01, residual=1e-6))
    assert verdict.decision == "fails"
    assert "miss a sum of 1 by 1e-06" in verdict.because


def test_nothing_but_jumps_abstains():
    verdict = _judged(_segment(1, 1, 3.3, "jump"), _segment(2, 3, 0.1, "jump"))
    assert verdict.decision == "abstains"
    assert verdict.statistic.status == "abstained"


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
