"""Every bad input of ``flowscope decode`` gets a sentence: what was expected, found, what to do."""

import functools
import json

import numpy as np
import pytest
import torch
from tests.instruments.decode.exact import infiller_of, prompts_of, two_kinds
from tests.instruments.decode.folders import denoiser_folder, two_way_llama
from tests.instruments.tiny import command

import flowscope as fs
from flowscope.errors import FlowscopeError
from flowscope.instruments.decode.calibration.file import read_calibration, refuse_other
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.models.infilling.templates import Template

SMALL = ["--task", "sudoku-4x4", "--prompts", "4", "--calibration", "20", "--alpha", ".2",
         "--policy", "threshold", "--set", "resamples=20", "--set", "windows=[2]",
         "--set", "controls=false"]  # fmt: skip
ONE = np.array([0, 1, 1, 0, 2, 2])


def rows(*several):
    return [(np.array(row), np.array(row) == 2) for row in several]


def nan_logits():
    return infiller_of(lambda ids: torch.full((*ids.shape, 2), torch.nan), 2)


def silent(causal=False):
    model = two_way_llama(causal=causal)
    del model.config.mask_token_id
    return model


def checked(ids):
    raise KeyError("grid")


CASES = {
    "causal model": (lambda: two_way_llama(causal=True), rows([3, 2, 2], [4, 2, 2]), {}, "causal"),
    "causal model without a mask": (
        lambda: silent(causal=True), rows([3, 2, 2], [4, 2, 2]), {}, "is causal: changing the last",
    ),
    "no mask token": (silent, rows([3, 2]), {}, "has no mask token"),
    "mask outside": (two_way_llama, rows([3, 2]), {"mask": 9999}, "outside of the vocabulary"),
    "mask in the prompt": (
        two_kinds, [(ONE, np.arange(6) > 4), (ONE[::-1].copy(), np.arange(6) > 4)], {},
        "not to be filled",
    ),
    "no masked position": (two_kinds, [(ONE, np.zeros(6, bool))], {}, "no masked position"),
    "empty answer": (two_kinds, rows([0, 2], [1, 2]), {"answer": 0}, "answer"),
    "alpha 0": (two_kinds, rows([0, 2], [1, 2]), {"alpha": 0.0}, "alpha"),
    "alpha 1": (two_kinds, rows([0, 2], [1, 2]), {"alpha": 1.0}, "alpha"),
    "delta 0": (two_kinds, rows([0, 2], [1, 2]), {"delta": 0.0}, "delta"),
    "delta 1.5": (two_kinds, rows([0, 2], [1, 2]), {"delta": 1.5}, "delta"),
    "alpha nan": (two_kinds, rows([0, 2], [1, 2]), {"alpha": float("nan")}, "alpha"),
    "overlap": (
        two_kinds, prompts_of(20, 1), {"calibration_texts": prompts_of(20, 1)[15:]},
        "5 of 20 fresh prompts are also calibration prompts",
    ),
    "one prompt": (two_kinds, prompts_of(1, 1), {}, "at least two"),
    "no prompt": (two_kinds, [], {}, "no prompt"),
    "calibration alone": (
        two_kinds, None, {"calibration_texts": prompts_of(3, 1)}, "Give the fresh prompts",
    ),
    "nan logits": (nan_logits, prompts_of(8, 1), {}, "returned nan as a logit"),
    "unknown policy": (two_kinds, prompts_of(8, 1), {"policy": ("profet",)}, "prophet"),
    "policy twice": (two_kinds, prompts_of(8, 1), {"policy": ("joint", "joint")}, "named once"),
    "window of no pass": (two_kinds, prompts_of(8, 1), {"windows": (0,)}, "at least one pass"),
    "broken checker": (two_kinds, prompts_of(8, 1), {"checker": checked}, "checker failed"),
    "no checker": (two_kinds, prompts_of(8, 1), {"checker": 7}, "must be a function"),
    "text for a function": (two_kinds, ["some text", "more"], {}, "no tokenizer"),
    "foreign token": (two_kinds, rows([7, 2], [1, 2]), {}, "outside of the vocabulary"),
    "file for a function": (
        two_kinds, prompts_of(100, 1), {"calibrate": "thresholds.json", "alpha": 0.3}, "no weights",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_bad_input_is_named_and_leaves_no_run(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, texts, options, words = CASES[case]
    given = {"controls": False, "maps": 1, "resamples": 9, **options}
    positional = () if texts is None else (texts,)
    with pytest.raises(FlowscopeError, match=words) as caught:
        fs.decode(make(), *positional, out=str(tmp_path / "run"), progress=False, **given)
    assert len(str(caught.value)) < 500
    assert not list(tmp_path.glob("**/report.html"))
    assert not list(tmp_path.glob("thresholds.json"))


def test_an_empty_region_is_refused_where_it_is_made():
    with pytest.raises(FlowscopeError, match="answer region of a template is empty"):
        Template(ids=ONE, blank=ONE == 2, region=np.zeros(6, bool))


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A folder, and the file of thresholds of a run on it."""
    place = tmp_path_factory.mktemp("calibrated")
    folder = denoiser_folder(place)
    outcome = command("decode", folder, *SMALL, "--calibrate", place / "t.json", "--out",
                      place / "run", "--json")  # fmt: skip
    assert outcome.exit_code in (0, 3), outcome.output
    return folder, place / "t.json", json.loads(outcome.stdout)


def again(calibrated, *options, folder=None):
    place = calibrated[1]
    return command("decode", folder or calibrated[0], *SMALL, *options, "--calibrate", place,
                   "--out", place.parent / "again")  # fmt: skip


def said(outcome):
    return " ".join(outcome.output.split())


def test_a_file_holds_what_it_was_made_with_and_is_used_by_the_next_run(calibrated):
    folder, place, first = calibrated
    content = json.loads(place.read_text())
    assert content["n"] == len(content["prompts"]) == first["measured"]["calibration_prompts"]
    assert (content["alpha"], content["delta"]) == (0.2, 0.05)
    entry = content["policies"]["threshold"]
    assert set(entry) == {"threshold", "errors", "n", "p_value", "needed", "because"}
    outcome = command("decode", folder, *SMALL, "--calibrate", place, "--seed", "5", "--out",
                      place.parent / "other", "--json")  # fmt: skip
    second = json.loads(outcome.stdout)
    assert second["measured"]["calibration_prompts"] == 0
    row, before = second["thresholds"][0], first["thresholds"][0]
    assert {k: row[k] for k in ("threshold", "errors", "n")} == {
        k: before[k] for k in ("threshold", "errors", "n")
    }
    assert content == json.loads(place.read_text())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--alpha", ".1", "--seed", "5"), "promises alpha = 0.2"),
        (("--delta", ".1", "--seed", "5"), "promises delta = 0.05"),
        (("--policy", "factor", "--seed", "5"), "no threshold of the policy 'factor'"),
        (("--order", "margin", "--seed", "5"), "calibrated with order = confidence"),
        (("--blanks", "3,3", "--seed", "5"), "answers of"),
        (("--set", "method=conformal", "--seed", "5"), "promises method"),
    ],
)
def test_a_file_of_something_else_is_refused(calibrated, options, words):
    outcome = again(calibrated, *options)
    assert outcome.exit_code == 1
    assert words in said(outcome)


def test_a_file_that_was_calibrated_on_a_fresh_prompt_is_refused(calibrated):
    file = read_calibration(str(calibrated[1]))
    template = Template(ids=np.zeros(8, int), blank=np.arange(8) < file.content["blanks"][0])
    config = DecodeConfig.model_validate(
        {"task": "sudoku-4x4", "alpha": 0.2, "policy": ("threshold",)}
    )
    refuse_other(file, file.content["marks"], config, [template])
    file.content["prompts"].append(template.mark)
    with pytest.raises(FlowscopeError, match="was calibrated on 1 of the 1 prompts"):
        refuse_other(file, file.content["marks"], config, [template])


def test_a_file_of_another_model_is_refused(calibrated, tmp_path):
    other = denoiser_folder(tmp_path, seed=9)
    outcome = again(calibrated, "--seed", "5", folder=other)
    assert outcome.exit_code == 1
    assert "was calibrated on another model" in said(outcome)


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": "other", "version": 1}', "null", "\xff"])
def test_a_file_that_holds_no_thresholds_is_refused(calibrated, tmp_path, content):
    place = tmp_path / "t.json"
    place.write_bytes(content.encode("latin-1"))
    outcome = command("decode", calibrated[0], *SMALL, "--calibrate", place, "--out", tmp_path)
    assert outcome.exit_code == 1
    assert "is not a file of calibrated thresholds" in said(outcome)


BROKEN = [
    (("blanks",), 5), (("blanks",), ["a", 3]), (("blanks",), [1]), (("prompts",), None),
    (("prompts",), [[1]]), (("reference",), []), (("marks",), 5), (("policies",), []),
    (("policies", "threshold"), 7), (("policies", "threshold", "threshold"), "x"),
    (("policies", "threshold", "threshold"), float("inf")), (("alpha",), "x"), (("model",), {}),
    (("policies", "threshold", "because"), 5), (("policies", "threshold", "n"), -1),
]  # fmt: skip


def changed(content, path, value):
    """A file's content with one value replaced."""
    copy = json.loads(json.dumps(content))
    *keys, last = path
    functools.reduce(dict.__getitem__, keys, copy)[last] = value
    return copy


@pytest.mark.parametrize(("path", "value"), BROKEN)
def test_a_file_with_a_broken_value_is_refused_and_the_value_is_named(
    calibrated, tmp_path, path, value
):
    content = json.loads(calibrated[1].read_text())
    del content["digest"]  # as in a file that flowscope 0.1 wrote before it had one
    place = tmp_path / "t.json"
    place.write_text(json.dumps(changed(content, path, value)))
    with pytest.raises(FlowscopeError, match="is not a file of calibrated thresholds") as caught:
        read_calibration(str(place))
    assert path[-1] in str(caught.value)


def test_a_threshold_that_was_changed_by_hand_is_no_promise(calibrated, tmp_path):
    content = json.loads(calibrated[1].read_text())
    place = tmp_path / "t.json"
    loose = changed(content, ("policies", "threshold", "threshold"), 0.3)
    place.write_text(json.dumps(loose))
    with pytest.raises(FlowscopeError, match="was changed after it was written"):
        read_calibration(str(place))
    place.write_text(json.dumps(content, indent=3))  # another layout is the same content
    assert read_calibration(str(place)).content == content
    del content["digest"]
    content["policies"]["threshold"]["threshold"] = -3.0
    place.write_text(json.dumps(content))
    with pytest.raises(FlowscopeError, match=r"threshold at -3, which no calibration tries"):
        read_calibration(str(place))


def test_a_file_in_a_folder_that_is_not_there_is_refused_before_anything_is_run(calibrated):
    outcome = command("decode", calibrated[0], *SMALL, "--calibrate", "nowhere/t.json")
    assert outcome.exit_code == 1
    assert "Make it first" in said(outcome)
