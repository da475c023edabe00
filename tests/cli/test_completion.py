"""Completion in a shell: commands, options, studies, run folders, names of ``--only``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowscope.cli.completion import complete_run
from flowscope.lab.registry import instrument_names, studies

OLD = Path(__file__).parents[1] / "golden" / "folders"
CODE = "import sys; sys.argv[0] = 'flowscope'; from flowscope.cli import main; main()"


def _flowscope(*arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), **environment},
    )


def completed(line, folder):
    """What bash is offered for a line; the last word is the one that is typed."""
    words = line.split(" ")
    done = _flowscope(
        folder=folder,
        _FLOWSCOPE_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def place(tmp_path):
    """A folder with runs in ``out``."""
    (tmp_path / "out").mkdir()
    for name in ("heads", "image"):
        shutil.copytree(OLD / name, tmp_path / "out" / f"{name}-model")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("flowscope ", {*instrument_names(), "runs", "report", "doctor"}),
        ("flowscope audit --o", {"--out", "--only", "--open"}),
        ("flowscope audit --only P", {"P0", "P1", "P2", "P3", "P4", "P4r"}),
        ("flowscope audit --only P0,rot", {"P0,rotation"}),
        ("flowscope reproduce ", set(studies())),
        ("flowscope report ", {"out/heads-model", "out/image-model"}),
        ("flowscope compare out/heads-model out/i", {"out/image-model"}),
    ],
)
def test_words_are_completed(line, offered, place):
    assert offered <= set(completed(line, place))


def test_only_folders_that_are_runs_are_offered(place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "other").mkdir()
    (place / "run").symlink_to(place / "out" / "heads-model")
    assert complete_run("") == ["out/heads-model", "out/image-model", "run"]
    assert complete_run("out/h") == ["out/heads-model"]
    absolute = f"{place}/out/"
    assert complete_run(absolute) == [f"{absolute}heads-model", f"{absolute}image-model"]
    assert complete_run("nowhere/") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_shown(shell, tmp_path):
    done = _flowscope(
        "--show-completion",
        shell,
        folder=tmp_path,
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert done.returncode == 0, done.stderr
    assert "_FLOWSCOPE_COMPLETE=complete_" in done.stdout


LISTED = (
    "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr)); "
)


def test_help_imports_no_library_that_it_does_not_need(tmp_path):
    """Help is quick because of what it leaves out; seconds would test the machine."""
    done = subprocess.run(
        [sys.executable, "-c", LISTED + CODE, "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    modules = done.stderr.split("MODULES ")[1].split()
    packages = {name.split(".")[0] for name in modules}
    assert "flowscope" in packages
    assert not packages & {"torch", "numpy", "scipy", "pandas", "plotly", "transformers"}
    assert len(modules) < 700
