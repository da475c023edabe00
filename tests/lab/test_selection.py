"""``only``: which stages run, that they decide as in a full run, and what the folder holds."""

import io
import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests.instruments.decode.folders import denoiser_folder
from tests.instruments.prompts import TEXTS
from tests.lab import toy
from tests.lab.toy import MADE, TOY, ToyConfig
from tests.models.synthetic_pipelines import pixel_folder

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.lab import engine
from flowscope.lab.registry import instrument, instrument_names, instruments, studies
from flowscope.lab.result import open_run
from flowscope.lab.running.selection import only_names, selected

STAGES = [(one.name, stage.name) for one in instruments() for stage in one.stages]
CLAIMS = {"audit": "P3", "heads": "M2", "field": "F2", "image": "I3"}


def names(stages):
    return [stage.name for stage in stages]


def test_stages_that_a_stage_builds_on_are_selected_with_it():
    first, second, third, last = (
        replace(toy.NEVER, name=name, claims=(), uses=uses)
        for name, uses in [("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ())]
    )
    stages = (first, second, third, last)
    assert names(selected(stages, ("c",))) == ["a", "b", "c"]
    assert names(selected(stages, ("d", "b"))) == ["a", "b", "d"]
    assert selected(stages, ()) == stages


def test_stage_whose_claim_must_hold_is_selected():
    assert names(selected(TOY.stages, ("T2",))) == ["fall", "follow"]


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InvalidInputError, match=r"named 'fal'\. Did you mean 'fall'"):
        selected(TOY.stages, ("fal",))
    with pytest.raises(InvalidInputError, match="Known names: T1, T2, T3, fall, never, follow"):
        engine.run(TOY, ToyConfig(), only="X9")


def test_one_string_is_a_list_of_names_and_must_hold_one():
    assert only_names("P0,step sizes ,") == ("P0", "step sizes")
    assert only_names(["P0"]) == ("P0",)
    assert only_names(None) == only_names(()) == ()
    with pytest.raises(InvalidInputError, match="names of claims or stages"):
        only_names(" , ")


@pytest.mark.parametrize("name", instrument_names())
def test_every_stage_builds_on_earlier_stages_alone(name):
    one = instrument(name)
    added = [study.stages for study in studies().values() if study.instrument is one]
    for stages in (one.stages, *((*one.stages, *more) for more in added)):
        for place, stage in enumerate(stages):
            assert set(stage.uses) <= set(names(stages[:place])), stage.name


def test_run_of_one_claim_holds_its_tables_alone_and_says_so(tmp_path):
    MADE.clear()
    folder = tmp_path / "run"
    result = engine.run(TOY, ToyConfig(), folder=folder, only=("T1",))
    assert [verdict.name for verdict in result.verdicts] == ["T1"]
    assert set(result.tables) == {"fall"}
    assert result.only == ("T1",)
    assert "T1" in str(result.table_or_reason("follow"))
    whole = engine.run(TOY, ToyConfig(), folder=folder)
    assert MADE == ["change"]
    assert "only" not in whole.settings
    assert [verdict.name for verdict in whole.verdicts] == ["T1", "T2", "T3"]
    assert set(engine.run(TOY, ToyConfig(), folder=folder, only="T1").tables) == {"fall"}


def test_run_without_claims_does_not_abstain_and_one_of_abstentions_does(tmp_path):
    silent = replace(TOY, stages=(replace(toy.FALL, claims=(), judge=""), *TOY.stages[1:2]))
    assert not engine.run(silent, ToyConfig(), folder=tmp_path / "a", only="fall").abstained
    assert engine.run(silent, ToyConfig(), folder=tmp_path / "b", only="never").abstained


def test_judging_again_decides_the_selected_claims_alone(tmp_path):
    result = engine.run(TOY, ToyConfig(silent=True), folder=tmp_path / "run", only="T3")
    engine.rejudge(
        SimpleNamespace(
            instrument=replace(TOY, studies=()),
            run=result.run,
            verdicts=result.verdicts,
            settings=result.settings,
        )
    )
    assert [verdict.name for verdict in result.verdicts] == ["T3"]


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """A small run of each instrument."""
    denoiser = pixel_folder(tmp_path_factory.mktemp("classes"), names=["cat", "dog", "owl"])
    reading = {"texts": TEXTS, "resamples": 20, "batch": 2, "control_prompts": 2}
    image = {
        "images": 64, "steps": 20, "doubling": (10, 20), "bins": 8, "family_images": 64, "rank": 2,
        "rotation_times": 1, "information_images": 8, "uturn_images": 8,
        "uturn_times": 2, "resamples": 20, "draws": 39,
    }  # fmt: skip
    sync = {
        "pairs": 8, "steps": 6, "couplings": (0.2, 1.0), "interventions": 6, "resamples": 20,
        "draws": 39, "kept": 3,
    }  # fmt: skip
    filler = denoiser_folder(tmp_path_factory.mktemp("filler"))
    decode = {
        "task": "sudoku-4x4", "prompts": 8, "calibration": 8, "alpha": 0.5, "windows": (2,),
        "policy": ("threshold", "prophet"), "resamples": 20,
    }  # fmt: skip
    return {
        "audit": lambda **more: fs.audit(**reading, flow_rank=8, **more),
        "heads": lambda **more: fs.heads(**reading, flux=(0.5,), temperatures=(), **more),
        "field": lambda **more: fs.field(
            **reading, tokens=24, twins=1, draws=4, jacobians=False, interventions=False, **more
        ),
        "decode": lambda **more: fs.decode(str(filler), **decode, **more),
        "sync": lambda **more: fs.sync(str(denoiser), **sync, **more),
        "image": lambda **more: fs.image("mixture", **image, **more),
    }


@pytest.fixture(scope="module")
def full(calls, tmp_path_factory):
    """Folder of the full run of an instrument, made once."""
    folders = {}

    def folder(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name) / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", os.fstat)
                calls[name](out=folders[name])
        return folders[name]

    return folder


def written(folder):
    """Verdicts as they are written, byte for byte, by name."""
    content = json.loads((folder / "verdicts.json").read_text())
    return {verdict["name"]: json.dumps(verdict) for verdict in content["verdicts"]}


@pytest.mark.parametrize("name", CLAIMS)
def test_one_claim_is_decided_as_in_the_full_run(name, calls, full, tmp_path):
    every = written(full(name))
    calls[name](out=tmp_path / "run", only=(CLAIMS[name],))
    verdicts = written(tmp_path / "run")
    assert CLAIMS[name] in verdicts
    assert verdicts == {claim: every[claim] for claim in verdicts}


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_one_stage_alone_gives_its_tables_and_makes_no_other_shards(
    name, stage, calls, full, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(full(name), folder)
    shards = sorted(path.name for path in folder.glob("shards/*"))
    result = calls[name](out=folder, only=stage)
    assert sorted(path.name for path in folder.glob("shards/*")) == shards
    ran = selected(instrument(name).stages, (stage,))
    declared = {table for one in ran for table in one.tables}
    before = open_run(full(name)).run
    assert set(result.tables) == declared & set(before.tables())
    for table in result.tables:
        assert result.tables[table].equals(before.read_table(table)), table
    claims = {claim.name for one in ran for claim in one.claims}
    expected = {claim: text for claim, text in written(before.folder).items() if claim in claims}
    assert written(folder) == expected
    result.judge()
    assert written(folder) == expected
    assert result.report().is_file()
    document, console = result.to_json(), Console(file=io.StringIO())
    instrument(name).resolve(instrument(name).headline)(document, console)
    shown = console.file.getvalue()
    assert document["report"] in shown.replace("\n", "")
    assert "no head has an entropy production" not in shown
    assert str(folder) in str(result)
    assert "<table" in result._repr_html_()
