"""What every command says about itself, one suite for all instruments: help, settings, hints."""

import subprocess
import sys
from itertools import pairwise

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from flowscope import __version__
from flowscope.cli import app
from flowscope.lab.config import default_words, marks
from flowscope.lab.registry import instrument, instrument_names, studies
from flowscope.lab.running.selection import selectable
from flowscope.models.config import DoctorConfig

NAMES = instrument_names()
CONFIGS = {name: instrument(name).config for name in NAMES} | {"doctor": DoctorConfig}
COMMANDS = [*CONFIGS, "reproduce", "work", "merge", "report", "compare", "runs", "models"]
MORE = {"--only", "--open", "--engine", "--workers", "--gpus-per-worker", "--plan"}


def _run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})


def _lines(text):
    """Lines without their frames."""
    return [line.strip("│ ") for line in text.splitlines()]


def _options(text):
    """Name of every option with its description, which may go over several lines."""
    described, name = {}, ""
    for line in _lines(text[text.index("Options") :]):
        if line.startswith("--"):
            name = line.split()[0]
            described[name] = ""
        if name:
            described[name] += f" {line}"
    return {name: " ".join(words.split()) for name, words in described.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_eighty_columns(name):
    result = _run(name, "--help")
    assert result.exit_code == 0
    assert max(cell_len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize("name", CONFIGS)
def test_prose_is_wrapped_once(name):
    """No short line within a paragraph: every word that begins a line did not fit before it."""
    text = _run(name, "--help").stdout
    prose = [line.strip() for line in text[: text.index("╭")].splitlines()]
    for line, following in pairwise(prose):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > 78


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_shows_its_default(name):
    options = _options(_run(name, "--help").stdout)
    assert options.pop("--help")
    for option, words in options.items():
        assert "(default: " in words, option


@pytest.mark.parametrize("name", CONFIGS)
def test_options_and_settings_together_are_all_settings(name):
    options = _options(_run(name, "--help").stdout)
    listed = _run(name, "--settings")
    assert listed.exit_code == 0
    assert max(cell_len(line) for line in listed.stdout.splitlines()) <= 80
    names = [line.split()[0] for line in listed.stdout.splitlines() if line[:1].strip()][1:-1]
    fields = CONFIGS[name].model_fields
    typed = [n for n, field in fields.items() if marks(field).get("option")]
    assert set(options) == {f"--{n.replace('_', '-')}" for n in typed} | {
        "--settings", "--set", "--config", "--json", "--help",
    } | (MORE if name in NAMES else set())  # fmt: skip
    assert names == [n for n in fields if n not in typed and n != "model"]
    words = " ".join(listed.stdout.split())
    for n in names:
        first, *more = default_words(fields[n]).split()  # a long default takes several lines
        assert f"{n} {first}" in words
        assert all(part in words for part in more)
        assert fields[n].description[:10] in words


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_setting_suggests_the_nearest_before_torch_is_loaded(name):
    wrong = _run(name, "--set", "sede=3")
    assert wrong.exit_code == 1
    assert "No setting is named 'sede'. Did you mean 'seed'?" in " ".join(wrong.stderr.split())


def test_lists_choices_and_switches_are_shown():
    heads, sync = (_options(_run(name, "--help").stdout) for name in ("heads", "sync"))
    assert "unmasked, damped or quasi-stationary (default: unmasked)" in heads["--chain"]
    assert heads["--dials"].startswith("--dials --no-dials")
    assert "(default: yes)" in heads["--dials"]
    assert "G,G,…" in sync["--couplings"]
    assert "(default: 0.1,0.5,1)" in sync["--couplings"]


@pytest.mark.parametrize("name", NAMES)
def test_only_lists_every_claim_and_stage(name):
    words = _options(_run(name, "--help").stdout)["--only"].replace("│", " ")
    for choice in selectable(instrument(name).stages):
        assert choice in " ".join(words.split())


def test_reproduce_lists_the_studies():
    words = " ".join(" ".join(_lines(_run("reproduce", "--help").stdout)).split())
    *names, last = studies()
    assert f"{', '.join(names)} or {last}; or all." in words


def test_the_version_is_shown():
    assert _run("--version").stdout == f"flowscope {__version__}\n"


def test_no_help_loads_torch_or_pandas():
    """All of them in one process, because starting one takes most of the time."""
    calls = [["--help"], *([name, "--help"] for name in COMMANDS)]
    calls += [[name, "--settings"] for name in CONFIGS]
    code = f"""
import sys
from flowscope.cli import app
for call in {calls}:
    app(call, standalone_mode=False)
heavy = {{"torch", "transformers", "pandas", "numpy", "plotly"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_python_m_flowscope_is_the_command():
    arguments = [sys.executable, "-m", "flowscope", "--version"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("flowscope 0.")
