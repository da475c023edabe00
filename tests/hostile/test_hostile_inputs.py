"""Inputs that no one should give: each ends in a result or in a sentence of flowscope."""

import json
import os
import re

import pytest
from tests.hostile.cases import COMMANDS, FUNCTIONS
from tests.hostile.settings import SMALL, setting_values
from tests.hostile.subjects import World
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.errors import FlowscopeError, InvalidInputError
from flowscope.lab.registry import instrument
from flowscope.models.texts import read_texts

SETTINGS = list(setting_values())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # what a flush does is tested with records
        patch.chdir(tmp_path_factory.mktemp("here"))
        yield World(tmp_path_factory.mktemp("hostile"))


def is_sentence(text):
    """Whether a message is one that flowscope wrote: it ends, and says what to do or what was."""
    assert not text.startswith("an unexpected"), text
    assert "Traceback" not in text
    assert len(text) < 1200
    assert text.rstrip()[-1] in ".?)”", text
    return True


def answered(call):
    """What a call returns, or its refusal in words."""
    try:
        return call()
    except FlowscopeError as refusal:
        sentence = str(refusal)
    assert is_sentence(sentence)
    return sentence


@pytest.mark.parametrize(
    ("arguments", "words"), [case[1:] for case in COMMANDS], ids=[case[0] for case in COMMANDS]
)
def test_commands(arguments, words, world):
    parts = [str(part) for part in arguments(world)]
    where = ["--out", str(world.out)] if parts[0] in SMALL and "--out" not in parts else []
    done = CliRunner().invoke(app, [*parts, *where, "--json"])
    assert isinstance(done.exception, SystemExit | None), repr(done.exception)
    document = json.loads(done.stdout)  # one document and nothing else
    if document.get("refused"):
        assert done.exit_code == 1
        answer = document["cannot"][0]["because"]
    elif "error" in document:
        assert done.exit_code == 1
        answer = document["error"]
    else:
        assert done.exit_code in (0, 3)
        assert not words, "a result, where a sentence was expected"
        return
    assert is_sentence(answer)
    assert words != "", answer
    assert words is None or re.search(words, answer, re.DOTALL), answer


@pytest.mark.parametrize(
    ("call", "words"), [case[1:] for case in FUNCTIONS], ids=[case[0] for case in FUNCTIONS]
)
def test_functions(call, words, world):
    if not words:
        call(world)
        return
    with pytest.raises(FlowscopeError, match=f"(?s){words}") as caught:
        call(world)
    assert is_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("name", "config", "assignment"), SETTINGS, ids=[f"{n} {value}" for n, _, value in SETTINGS]
)
def test_settings(name, config, assignment, world):
    """A value is refused with its bound, or the instrument can be prepared with it."""
    settings = answered(lambda: config.resolved({}, [*SMALL.get(name, []), assignment]))
    if isinstance(settings, str):
        assert re.search(r"must (be|hold) .*; got .*\(default: ", settings)
        return
    if name not in SMALL:
        return
    one = instrument(name)
    given = {"source": world.loaded, "texts": world.texts}
    if name in ("sync", "image"):
        from diffusers import DDIMScheduler

        given = {"source": world.denoiser, "scheduler": DDIMScheduler()}
    answered(lambda: one.resolve(one.prepare)(settings, given))


def test_there_are_enough_cases():
    assert len(COMMANDS) + len(FUNCTIONS) >= 200
    assert len(SETTINGS) >= 200
    assert len({label for label, *_ in COMMANDS}) == len(COMMANDS)


def test_no_setting_may_ask_for_numbers_without_end():
    """Resamples, draws, prompts, images and pairs at 10¹² are refused, with the bound."""
    endless = ("resamples", "draws", "prompts", "images", "family_images", "pairs", "finals",
               "twins", "permutations", "uturn_times")  # fmt: skip
    asked = 0
    for name, config, assignment in SETTINGS:
        setting, _, value = assignment.partition("=")
        if name in SMALL and setting in endless and value == "1000000000000":
            asked += 1
            with pytest.raises(InvalidInputError, match=r"at most .*time or memory without end"):
                config.resolved({}, [assignment])
    assert asked == 17


def test_a_read_only_folder_gets_a_sentence(world, monkeypatch):
    def refused(path, *more, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.mkdir", refused)
    done = CliRunner().invoke(
        app,
        ["audit", str(world.language), "--text", str(world.prompts), "--tokens", "8", "--only",
         "P0", "--out", str(world.out), "--json"],
    )  # fmt: skip
    assert done.exit_code == 1
    assert re.search("could not be written.*Permission denied", json.loads(done.stdout)["error"])


def test_an_unreadable_text_gets_a_sentence(world, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refused)
    with pytest.raises(InvalidInputError, match=r"could not be read: Permission denied\. Give a"):
        read_texts(world.prompts)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce] can't allocate memory")])
def test_too_little_memory_gets_a_sentence(error, monkeypatch):
    def greedy(*arguments, **options):
        raise error

    monkeypatch.setattr("flowscope.models.doctor.doctor", greedy)
    done = CliRunner().invoke(app, ["doctor", "language", "--json"])
    assert json.loads(done.stdout)["error"].startswith("The run needs more memory than there is.")


@pytest.mark.parametrize("name", ["audit", "heads"])
def test_fewer_control_prompts_than_a_batch(name, world):
    settings = [*SMALL[name], "control_prompts=1", "batch=3"]
    done = CliRunner().invoke(
        app,
        [name, str(world.language), "--text", str(world.prompts), "--out", str(world.out), "--json",
         *(part for setting in settings for part in ("--set", setting))],
    )  # fmt: skip
    assert done.exit_code in (0, 3), done.stdout
