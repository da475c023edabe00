"""The command as a user runs it: streams, exit codes, sentences, eighty columns."""

import json
import subprocess
import sys

import pytest
from tests.runs.conftest import folders, tokenizer  # noqa: F401
from typer.testing import CliRunner

from flowscope import __version__
from flowscope.cli import app

KEYS = {"model", "kind", "blocks", "attention_calls", "writes", "tail", "can", "cannot"}


def _run(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), **options)


def test_doctor_json_is_one_document_alone_on_stdout(folders):  # noqa: F811
    result = _run("doctor", str(folders("gpt2")), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert set(document) >= KEYS
    assert (document["blocks"], document["attention_calls"]) == (3, 3)
    assert document["writes"] == ["attention", "feed_forward"]
    assert document["tail"]["target"] == "logits"
    assert document["cannot"] == []


def test_a_refused_model_exits_with_one_and_says_why(folders):  # noqa: F811
    result = _run("doctor", str(folders("bloom")), "--json")
    assert result.exit_code == 1
    (obstacle,) = json.loads(result.stdout)["cannot"]
    assert set(obstacle) == {"what", "because"}
    assert "BloomAttention" in obstacle["because"]


def test_a_table_fits_eighty_columns(folders):  # noqa: F811
    for name in ("t5", "bert", "gptj"):
        result = _run("doctor", str(folders(name)), env={"COLUMNS": "80"})
        assert max(len(line) for line in result.stdout.splitlines()) <= 80
        assert ("refused" in result.stdout) == (name == "gptj")


def test_an_error_is_a_sentence_on_stderr_and_exit_one():
    result = _run("doctor", "/no/such/folder")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "There is no folder" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_under_json_is_a_document():
    result = _run("doctor", "/no/such/folder", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["kind"] == "LoadError"


def test_settings_can_be_overridden_and_misspellings_are_corrected(folders):  # noqa: F811
    folder = str(folders("llama"))
    result = _run(
        "doctor", folder, "--json", "--set", "dtype=bfloat16", "--set", "blocks=model.layers"
    )
    assert json.loads(result.stdout)["blocks"] == 3
    wrong = _run("doctor", folder, "--set", "dtpye=bfloat16")
    assert wrong.exit_code == 1
    assert "Did you mean 'dtype'?" in wrong.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("setting", "words"),
    [("dtype", "takes name=value"), ("dtype=int8", "floating-point type"), ("blocks=3", "wrong")],
)
def test_bad_settings_get_a_sentence(setting, words, folders):  # noqa: F811
    result = _run("doctor", str(folders("llama")), "--set", setting)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


def test_settings_come_from_a_file_too(folders, tmp_path):  # noqa: F811
    file = tmp_path / "settings.yaml"
    file.write_text("dtype: bfloat16\nblocks: model.layers\n")
    result = _run("doctor", str(folders("llama")), "--json", "--config", str(file))
    assert json.loads(result.stdout)["blocks"] == 3
    file.write_text("- dtype")
    assert "must hold a mapping" in " ".join(
        _run("doctor", str(folders("llama")), "--config", str(file)).stderr.split()
    )


def test_model_names_are_not_read_as_markup():
    result = _run("doctor", "./[bold]x[/bold]")
    assert "[bold]x[/bold]" in " ".join(result.stderr.split())


def test_help_and_version_do_not_import_torch():
    code = "import sys; from flowscope.cli import app; app(['--help'], standalone_mode=False); "
    check = code + "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout
    assert _run("--version").stdout == f"flowscope {__version__}\n"
