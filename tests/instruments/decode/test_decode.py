"""``flowscope decode`` on models with known answers: verdicts, document, findings, terminal."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from tests.instruments.decode.exact import (
    PAYLOAD,
    blank_templates,
    independent,
    infiller_of,
    noise,
    prompts_of,
    two_kinds,
)
from tests.instruments.decode.folders import denoiser_folder, two_way_llama
from tests.instruments.tiny import command, shown

import flowscope as fs
from flowscope.instruments.decode.policies.catalogue import POLICIES
from flowscope.models.infilling.templates import Template

EACH = [name for name in POLICIES if name not in ("plain", "reference")]
CONTRACT = {
    "name", "threshold", "passes", "rows", "seconds", "reference_passes", "same", "same_interval",
    "accuracy", "certified", "alpha", "delta", "n",
}  # fmt: skip


def run(folder, made, test, known, **options):
    """A run on calibration prompts and fresh ones of a function."""
    sizes = {"calibration": len(known), "prompts": len(test), "maps": 1, "resamples": 99}
    return fs.decode(
        made, test, calibration_texts=known, out=str(folder / "run"), progress=False,
        **{**sizes, **options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Half of the prompts are known at once, the others token by token."""
    prompts = prompts_of(200, seed=1)
    folder = tmp_path_factory.mktemp("planted")
    return run(folder, two_kinds(), prompts[100:], prompts[:100], policy=EACH, windows=(4, 2))


def test_certainty_saves_passes_where_half_of_the_prompts_are_known_at_once(planted):
    """A fixed number a pass must be 1; a calibrated threshold needs 1 pass or 6."""
    verdicts = {verdict.name: verdict for verdict in planted.verdicts}
    assert verdicts["D1"].outcome == "holds"
    assert verdicts["D2"].outcome == "holds"
    table = planted.policies.set_index(["policy", "kind"])
    easy = float((planted["trial_prompts"]["passes"] == 1).mean())
    assert table.loc[("threshold", "calibrated"), "saved"] == pytest.approx(easy * 5 / 6)
    assert table.loc[("plain", "calibrated"), "threshold"] == 1
    assert (planted["trial_prompts"]["passes"].isin([1, 6])).all()


def test_every_policy_is_tried_and_the_lossless_one_changes_nothing(planted):
    table = planted.policies
    published = table[table["kind"] == "published"]
    assert list(published["policy"]) == ["reference", *EACH]
    draft = published[published["policy"] == "draft"].iloc[0]
    assert draft["same"] == 1
    assert draft["certified"] == "strict"
    assert draft["passes"] < draft["reference_passes"] < draft["rows"]


def test_the_document_keeps_the_contract(planted):
    document = json.loads(json.dumps(planted.to_json(), allow_nan=False))
    assert {"model", "task", "policies", "window", "run"} <= set(document)
    assert all(set(row) >= CONTRACT for row in document["policies"])
    assert all({"W", "rule", "coverage", "later_flips"} <= set(row) for row in document["window"])
    kinds = {row["certified"] for row in document["policies"]}
    assert kinds == {"strict", "calibrated", "none"}
    for row in document["policies"]:
        low, high = row["same_interval"]
        assert low <= row["same"] <= high
        promised = row["certified"] == "calibrated"
        assert (row["alpha"] == 0.05 and row["delta"] == 0.05) if promised else row["alpha"] is None
        assert row["n"] == 100


def test_the_first_finding_says_which_threshold_to_use_and_what_it_saves(planted):
    first = planted.findings[0]
    row = planted["trial_prompts"].iloc[0]
    chosen = planted.thresholds.set_index("policy").loc[row["policy"], "threshold"]
    assert f"Use {row['policy']} at {chosen:g}" in first.next
    assert re.search(r"saves \d+\s% of the passes at no more than 5\s% changed", first.next)


def test_eighty_columns_hold_what_the_terminal_shows(planted):
    lines = shown("decode", planted.to_json()).splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert all(name in text for name in EACH)


def test_the_terminal_says_what_verification_costs_beside_the_rounds_it_saves(planted):
    document = planted.to_json()
    (draft,) = [row for row in document["policies"] if row["name"] == "draft"]
    text = " ".join(shown("decode", document).split())
    assert f"draft runs {draft['rows']:.1f} sequences a prompt" in text
    assert f" in {draft['seconds']:.2g} s; the reference {draft['reference_passes']:.1f}" in text
    draft["seconds"] = None
    text = " ".join(shown("decode", document).split())
    assert f"draft runs {draft['rows']:.1f} sequences a prompt; the reference" in text


def test_windows_of_a_chain_cover_what_has_held_still_and_flip_later(planted):
    """A hidden bit is read as 0 in every pass: windows of the published rule never see it move."""
    table = planted.window.set_index(["W", "rule"])
    assert (table["inside_flips"].fillna(0) == 0).all()
    published, corrected = (table.loc[(2, rule)] for rule in ("published", "corrected"))
    assert 0 < published["coverage"] <= 1
    assert published["later_flips"] > 0.1
    assert corrected["coverage"] <= published["coverage"]


@pytest.mark.parametrize("seed", [0, 1])
def test_sharp_noise_gets_no_green_verdict(tmp_path, seed):
    prompts = prompts_of(160, seed=seed)
    found = run(tmp_path, noise(), prompts[80:], prompts[:80])
    assert all(verdict.outcome in ("abstains", "uninformative") for verdict in found.verdicts)


def test_random_weights_get_no_green_verdict(tmp_path):
    prompts = [
        Template(ids=np.r_[ids[:3], np.zeros(6, int)], blank=np.arange(9) > 2)
        for ids in np.random.default_rng(0).integers(2, 12, (140, 9))
    ]
    prompts = list({prompt.mark: prompt for prompt in prompts}.values())
    model = two_way_llama(spread=0.6)
    found = run(tmp_path, model, prompts[70:], prompts[:70])
    assert all(verdict.outcome != "holds" for verdict in found.verdicts)


def test_a_promise_is_broken_where_fresh_prompts_are_of_another_kind(tmp_path):
    found = run(
        tmp_path, two_kinds(), prompts_of(200, 1, kinds=[1])[100:],
        prompts_of(200, 1, kinds=[0])[:100],
    )  # fmt: skip
    verdicts = {verdict.name: verdict.outcome for verdict in found.verdicts}
    assert verdicts["D2"] == "fails"
    assert verdicts["D1"] != "holds"


def test_bits_that_one_pass_fills_say_nothing_of_policies(tmp_path):
    made = independent(0.9999)
    length = [Template(ids=np.full(4 + k, 2), blank=np.ones(4 + k, bool)) for k in range(80)]
    found = run(tmp_path, made, length[:19], length[20:], policy=("threshold",), alpha=0.1)
    assert all(verdict.outcome == "uninformative" for verdict in found.verdicts)
    assert "one pass changes no answer" in found.verdicts[0].because


def test_half_precision_is_not_called_strict(tmp_path):
    model = two_way_llama().to(torch.bfloat16)
    rows = np.random.default_rng(1).integers(2, 12, (8, 6))
    prompts = [Template(ids=row, blank=np.arange(6) > 2) for row in rows]
    found = run(tmp_path, model, prompts[4:], prompts[:4], policy=("draft",), controls=False)
    assert set(found.policies["certified"]) == {"none"}


def depends_on_the_batch():
    """A function whose laws change with the number of rows, as rounding may in large batches."""

    def law(ids):
        flip = 1.0 if len(ids) > 40 else -1.0
        logits = torch.zeros(*ids.shape, 2)
        logits[..., 1] = 0.3 * flip * (1 + torch.arange(ids.shape[1]))
        return logits

    return infiller_of(law, 2)


def test_a_draft_that_changes_an_answer_is_not_called_strict(tmp_path):
    """What verifies drafts runs more rows at a time than the reference, and these laws see it."""
    prompts = prompts_of(60, seed=4)
    options = {"policy": ("draft",), "controls": False, "batch": 64}
    found = run(tmp_path, depends_on_the_batch(), prompts[30:], prompts[:30], **options)
    table = found.policies.set_index("policy")
    assert table.loc["draft", "same"] < 1
    assert table.loc["draft", "certified"] == "none"
    assert table.loc["reference", "certified"] == "strict"


def test_a_function_that_answers_in_half_precision_is_not_called_strict(tmp_path):
    made = two_kinds()
    half = replace(made, naming=lambda ids, present: made.naming(ids, present).half())
    prompts = prompts_of(40, seed=4)
    options = {"policy": ("draft",), "controls": False}
    found = run(tmp_path, half, prompts[20:], prompts[:20], **options)
    assert set(found.policies["certified"]) == {"none"}


def test_a_checker_decides_what_counts_as_the_answer(tmp_path):
    """The parity of an answer stays where two tokens change: fewer answers are different."""
    prompts = prompts_of(160, seed=2)
    options = {"policy": ("threshold",), "controls": False, "alpha": 0.3}
    whole = run(tmp_path / "a", noise(), prompts[80:], prompts[:80], **options)
    parity = run(
        tmp_path / "b", noise(), prompts[80:], prompts[:80],
        checker=lambda ids: sum(ids[-6:]) % 2, **options,
    )  # fmt: skip
    same = [r.policies.query("policy == 'threshold'")["same"].iloc[0] for r in (whole, parity)]
    assert same[1] > same[0] + 0.2


def ending():
    """The second blank is surely the end token 1; those behind it depend on the first one."""

    def law(ids):
        logits = torch.zeros(*ids.shape, 3)
        first = ids[:, PAYLOAD + 1]
        lean = torch.where(first < 3, 2, 0)
        logits[torch.arange(len(ids))[:, None], torch.arange(ids.shape[1]), lean[:, None]] = 6.0
        logits[:, PAYLOAD + 1] = torch.tensor([7.0, 0.0, 0.0])
        logits[:, PAYLOAD + 2] = torch.tensor([0.0, 9.0, 0.0])
        return logits

    return infiller_of(law, 3)


def test_what_stands_behind_the_end_of_an_answer_is_not_read(tmp_path):
    """Filled at once, two blanks behind the end token hold other tokens than the reference's."""
    prompts = prompts_of(80, seed=6, mask=3)
    options = {"policy": ("threshold", "joint"), "controls": False, "alpha": 0.2, "order": "margin"}
    asked = [
        run(tmp_path / str(eos), ending(), prompts[40:], prompts[:40], eos=eos, **options)
        for eos in (1, None)
    ]
    with_end, without = (found.policies.set_index(["policy", "kind"]) for found in asked)
    for name in ("threshold", "joint"):
        assert with_end.loc[(name, "published"), "same"] == 1
        assert with_end.loc[(name, "published"), "passes"] < 3
        assert without.loc[(name, "published"), "same"] == 0
    known = asked[0]["prompts"]["known"]
    assert (known == 1).all()


def test_a_region_decides_what_counts_as_the_answer(tmp_path):
    """Only the first blank of a chain is known at once."""

    def first_only(template):
        region = np.zeros(len(template), bool)
        region[np.flatnonzero(template.blank)[0]] = True
        return Template(ids=template.ids, blank=template.blank, region=region)

    prompts = [first_only(one) for one in prompts_of(160, seed=3, kinds=[1])]
    found = run(tmp_path, two_kinds(), prompts[80:], prompts[:80], policy=("prophet",))
    row = found.policies.query("kind == 'calibrated' and policy == 'prophet'").iloc[0]
    assert row["same"] == 1
    assert row["passes"] == 1


def test_a_stopped_run_goes_on_to_the_same_tables(tmp_path, monkeypatch):
    from flowscope.instruments.decode.trial import measure

    wanted = measure.outcome_of

    def stopped(bench, part, policy):
        if part.name == "test" and policy.name == "factor":
            raise KeyboardInterrupt
        return wanted(bench, part, policy)

    folder = denoiser_folder(tmp_path)
    options = ["--task", "sudoku-4x4", "--prompts", "6", "--calibration", "20", "--alpha", ".2",
               "--policy", "threshold,factor", "--set", "resamples=20",
               "--set", "windows=[2]"]  # fmt: skip
    straight = command("decode", folder, *options, "--out", tmp_path / "a", "--json")
    monkeypatch.setattr(measure, "outcome_of", stopped)
    assert command("decode", folder, *options, "--out", tmp_path / "b").exit_code == 130
    monkeypatch.setattr(measure, "outcome_of", wanted)
    again = command("decode", folder, *options, "--out", tmp_path / "b", "--json")
    one, two = (json.loads(outcome.stdout) for outcome in (straight, again))
    for name in ("policies", "prompts", "window", "calibration"):
        a, b = (fs.open_run(d["run"])[name] for d in (one, two))
        pd.testing.assert_frame_equal(a, b)


def test_a_policy_that_was_stopped_goes_on_behind_its_last_batch(tmp_path, monkeypatch):
    """A policy is kept batch by batch: drafts of a thousand prompts take most of an hour."""
    from flowscope.instruments.decode import outcomes

    wanted, seen = outcomes.filled, []

    def counted(made, canvas, policy, plan, **options):
        seen.append((policy.name, tuple(canvas.numbers.tolist())))
        if stop and policy.name == "draft" and canvas.numbers[0] == 4:
            raise KeyboardInterrupt
        return wanted(made, canvas, policy, plan, **options)

    monkeypatch.setattr(outcomes, "filled", counted)
    folder = denoiser_folder(tmp_path)
    options = ["--task", "sudoku-4x4", "--prompts", "6", "--calibration", "1", "--policy", "draft",
               "--set", "resamples=20", "--set", "windows=[2]", "--set", "batch=2",
               "--set", "controls=false", "--out", tmp_path / "run"]  # fmt: skip
    stop = True
    assert command("decode", folder, *options).exit_code == 130
    assert seen == [("draft", (0, 1)), ("draft", (2, 3)), ("draft", (4, 5))]
    seen.clear()
    stop = False
    again = json.loads(command("decode", folder, *options, "--json").stdout)
    assert seen == [("draft", (4, 5))]
    (draft,) = [row for row in again["policies"] if row["name"] == "draft"]
    assert draft["same"] == 1
    assert draft["seconds"] is None  # two batches of three were timed in the run before


def test_blank_prompts_of_one_length_are_one_prompt(tmp_path):
    made = independent(0.9)
    with pytest.raises(fs.errors.InvalidInputError, match="There is 1 prompt"):
        fs.decode(made, blank_templates(9, 4, made.mask), out=str(tmp_path / "r"), progress=False)


def test_too_few_prompts_have_no_threshold_and_the_finding_says_how_many_it_takes(tmp_path):
    prompts = prompts_of(40, seed=5)
    options = {"policy": ("threshold",), "controls": False, "alpha": 0.05}
    few = run(tmp_path / "a", two_kinds(), prompts[20:], prompts[:20], **options)
    assert few.thresholds["threshold"].isna().all()
    assert list(few.thresholds["needed"]) == [59]
    assert "(--calibration 59)" in few.findings[0].next
    more = run(
        tmp_path / "b", two_kinds(), prompts[20:], prompts[:20], **options | {"calibration": 99}
    )
    assert "at least 59 prompts: give more of them" in more.findings[0].next
    assert all(verdict.outcome == "abstains" for verdict in more.verdicts)
