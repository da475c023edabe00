"""Transport by bounds, rotation by gradient controls: planted fields, run folders, bad input."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.rotation_panel import linear, log_sum_exp, rough_plane
from tests.instruments.audit.synthetic_paths import PROMPTS, WIDTH, flow_paths
from tests.instruments.audit.test_adequacy import segment
from tests.instruments.prompts import TEXTS

import flowscope as fs
from flowscope.flows.hodge import Settings, rotation_presence, rotation_reading
from flowscope.instruments.audit.rotation import ROTATION, TABLES, TRANSPORT
from flowscope.instruments.audit.rotation.judge import judge, judge_rotation, judge_transport
from flowscope.instruments.audit.rotation.measure import central_layers, layer_rotations, tables
from flowscope.instruments.audit.rotation.stored import restored, stored
from flowscope.lab.view import Records
from flowscope.records import Run, Unavailable

SEED = {"seed": 0, "units": 32}
LESS = Settings(splits=2, draws=400)
SMALL = {
    "prompts": 16, "tokens": 48, "resamples": 20, "controls": False, "rotation_rank": 4,
    "rotation_layers": 2, "batch": 4,
}  # fmt: skip


def readings(*fields, prompts=32, total_energy=None):
    """Readings of fields on the same prompts."""
    made = []
    for x, u in fields:
        groups = torch.arange(len(x)) * prompts // len(x)
        made.append(
            rotation_reading(x, u, groups=groups, seed=0, settings=LESS, total_energy=total_energy)
        )
    return made


@pytest.fixture(scope="module")
def turning():
    return readings(*(linear(seed, 1024, 0.3) for seed in (0, 1)))


@pytest.mark.parametrize(("p", "count"), [((0.04, 0.06), 1), ((0.3, 0.4), 0)])
def test_layers_are_counted_at_the_five_percent_level(p, count, turning, monkeypatch):
    made = rotation_presence(turning)
    changed = replace(made, layer_p=p, p=min(p))
    monkeypatch.setattr("flowscope.flows.hodge.rotation_presence", lambda readings: changed)
    verdict = judge_rotation(turning, **SEED)
    assert f"{count} of 2 layers rotate by themselves (5 % level" in verdict.because


def test_a_planted_rotation_is_found(turning):
    verdict = judge_rotation(turning, **SEED)
    assert (verdict.outcome, verdict.strength) == ("holds", "strong")
    assert verdict.p <= 0.05
    assert verdict.effect == pytest.approx(0.3, abs=0.1)
    low, high = float(verdict.interval.low), float(verdict.interval.high)
    assert 0 < low < verdict.effect < high
    shift = float(verdict.statistic.numbers()) - float(verdict.null.numbers())
    assert verdict.effect == pytest.approx(shift)
    assert "p " in verdict.because
    assert "2 of 2 layers rotate" in verdict.because


def test_a_gradient_outside_the_dictionary_is_not_called_rotation():
    fields = [log_sum_exp(seed, 1024) for seed in (0, 1, 5)]
    assert judge_rotation(readings(*fields), **SEED).outcome != "holds"


def test_steps_without_a_rule_leave_rotation_uninformative_and_transport_open():
    g = torch.Generator().manual_seed(0)
    x, u = torch.randn(2, 1024, 8, generator=g, dtype=torch.float64)
    noise = readings((x, u))
    verdict = judge_rotation(noise, **SEED)
    assert (verdict.outcome, verdict.decision) == ("uninformative", "abstains")
    assert "represent" in verdict.because
    assert isinstance(verdict.effect, Unavailable)
    assert judge_transport(noise, **SEED).outcome == "abstains"


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_rough_rotation_is_never_called_transport(seed, smooth):
    read = readings(rough_plane(seed, 2000, smooth=smooth))
    assert judge_transport(read, **SEED).outcome != "holds"


def test_transport_holds_for_a_gradient_and_fails_for_a_rotation():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 2, generator=g, dtype=torch.float64)
    spin = torch.stack([-x[:, 1], x[:, 0]], 1)
    still, round_ = (judge_transport(readings((x, u)), **SEED) for u in (-x, spin))
    assert (still.outcome, still.strength) == ("holds", "")
    assert float(still.interval.low) > 0
    assert still.effect == pytest.approx(0.5, abs=0.02)
    assert round_.outcome == "fails"
    assert float(round_.interval.high) < 0
    for verdict in (still, round_):
        assert "represent 100 % of it" in verdict.because
        gap = float(verdict.null.numbers()) - float(verdict.statistic.numbers())
        assert verdict.effect == pytest.approx(gap)


def test_what_lies_outside_the_coordinates_opens_the_bounds():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 2, generator=g, dtype=torch.float64)
    much = readings((x, -x), total_energy=10 * x.square().sum(1))
    verdict = judge_transport(much, **SEED)
    assert verdict.outcome == "abstains"
    assert "represent 10.0 % of it" in verdict.because
    assert verdict.because.endswith("one half lies between these bounds or in their intervals")


def test_a_p_above_the_level_silences_an_effect(turning):
    wide = [replace(one, null=one.null + 10 * one.null.std() * k)
            for k, one in zip((9, 9), turning, strict=True)]  # fmt: skip
    verdict = judge_rotation(wide, **SEED)
    assert (verdict.outcome, verdict.strength) == ("abstains", "")
    assert verdict.p > 0.05
    assert "no verdict, because the p value" in verdict.because


def test_controls_above_the_data_fail_rotation(turning):
    high = [replace(one, controls=(0.9,) * 9, margin=0.9) for one in turning]
    assert judge_rotation(high, **SEED).outcome == "fails"


@pytest.mark.parametrize("judged", [judge_rotation, judge_transport])
def test_fewer_than_eight_prompts_decide_nothing(turning, judged):
    verdict = judged(turning, seed=0, units=7)
    assert verdict.outcome == "abstains"
    assert "at least 8 different prompts are needed; this run has 7" in verdict.because


def test_arrays_hold_all_that_a_judge_needs(turning):
    arrays = stored([3, 4], turning)
    assert arrays["layer"].tolist() == [3, 4]
    for judged in (judge_rotation, judge_transport):
        one, two = judged(turning, **SEED), judged(restored(arrays), **SEED)
        assert one.because == two.because
        assert (one.effect, one.p) == (two.effect, two.p)


def test_the_middle_layers_of_passing_segments_are_read():
    assert central_layers([segment(1, 4), segment(7, 12)], 12, 4) == [4, 7, 8, 9]
    assert central_layers([segment(2, 3)], 12, 10) == [2, 3]


def read_paths(paths, rank=WIDTH, wanted=(3, 4), prompts=PROMPTS):
    return layer_rotations(
        paths, [segment()], wanted, distinct=np.arange(prompts), rank=rank, seed=0
    )


def verdicts_of(layers):
    read = [one.reading for one in layers]
    return judge_transport(read, seed=0, units=20), judge_rotation(read, seed=0, units=20)


def test_a_rotating_flow_and_a_contracting_one_are_told_apart():
    turn = torch.zeros(WIDTH, WIDTH)
    for k in (0, 2, 4):
        turn[k, k + 1], turn[k + 1, k] = 3.0, -3.0
    paths = flow_paths(turn, noise=0.02)
    # A turn of the states is one of the logits only if the output keeps lengths.
    U = torch.linalg.qr(paths.readout._tail.weight).Q
    paths.readout._tail.weight = U - U.mean(0)
    transport, rotation = verdicts_of(read_paths(paths))
    assert (transport.outcome, rotation.outcome) == ("fails", "holds")
    transport, rotation = verdicts_of(read_paths(flow_paths(-torch.eye(WIDTH), noise=0.02)))
    assert transport.outcome == "holds"
    assert rotation.outcome != "holds"


def test_fewer_coordinates_leave_energy_outside():
    paths = flow_paths(-torch.eye(WIDTH), noise=0.02)
    whole, part = (read_paths(paths, rank, (3,))[0] for rank in (WIDTH, 2))
    assert (whole.coordinates, part.coordinates) == (WIDTH, 2)
    assert part.reading.energy == pytest.approx(whole.reading.energy, rel=1e-6)
    assert part.reading.represented.value < 0.8 < whole.reading.represented.value


def test_a_prompt_that_repeats_another_is_left_out():
    few = read_paths(flow_paths(-torch.eye(WIDTH)), wanted=(3,), prompts=9)[0]
    assert (few.prompts, few.tokens) == (9, 9 * 16)


def test_a_layer_that_cannot_be_read_has_a_row_with_its_reason():
    layers = read_paths(flow_paths(-torch.eye(WIDTH)), wanted=(3,), prompts=2)
    table, arrays = tables(layers)
    assert arrays == {}
    assert list(table) == list(TABLES["rotation"].schema)
    assert table["status"].tolist() == ["abstained"]
    assert "group" in table["because"].iloc[0]


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    out = tmp_path_factory.mktemp("rotation") / "run"
    return fs.audit(out=out, only=("P4",), **SMALL)


def test_an_audit_judges_both_claims_from_its_folder(audit):
    made = {v.name: v for v in audit.verdicts}
    table = audit.run.read_table("rotation")
    assert list(table) == list(TABLES["rotation"].schema)
    assert len(table) == 2
    again = {v.name: v for v in judge(Records(run=Run.open(audit.run.folder)))}
    assert set(again) == {TRANSPORT.name, ROTATION.name}
    for name, verdict in again.items():
        assert verdict.because == made[name].because
        assert verdict.outcome == made[name].outcome
    bound = float(made[TRANSPORT.name].statistic.numbers())
    assert bound == pytest.approx(1 - table["gradient_share"].mean())
    assert "represent" in made[TRANSPORT.name].because
    assert (table["rotation_share"] <= 1 - table["gradient_share"]).all()
    assert table["p_adjusted"].dropna().ge(table["p_value"].dropna()).all()


def test_three_prompts_are_too_few_and_the_reason_says_how_many(tmp_path):
    found = fs.audit(texts=TEXTS, out=tmp_path / "run", only=("P4",), **{**SMALL, "prompts": 3})
    reasons = {v.name: v.because for v in found.verdicts}
    for name in (TRANSPORT.name, ROTATION.name):
        assert "8 different prompts are needed; this run has 3" in reasons[name]


def test_too_few_tokens_say_what_they_carry():
    table = pd.DataFrame({"layer": [4], "prompts": [16], "status": ["abstained"],
                          "because": ["20 points in 8 coordinates carry too little"]})  # fmt: skip

    folder = SimpleNamespace(settings={"seed": 0}, table=lambda *names: table)
    for verdict in judge(folder):
        assert verdict.outcome == "abstains"
        assert "no verdict, because no layer could be measured; layer 4: 20 points" in (
            verdict.because
        )


def test_motion_that_is_hardly_represented_is_uninformative_even_where_one_layer_speaks(turning):
    x, u = linear(0, 1024, 0.3)
    far = readings((x, u), total_energy=40 * u.square().sum(1))[0]
    assert far.represented.value < 0.02
    seen = readings((x, u), total_energy=8 * u.square().sum(1))[0]
    assert 0.05 < seen.represented.value < 0.07
    verdict = judge_rotation([far, far, seen], **SEED)
    assert (verdict.outcome, verdict.decision) == ("uninformative", "abstains")
    assert "of the motion over 3 central layers" in verdict.because
    assert judge_rotation([seen], **SEED).outcome == "holds"
