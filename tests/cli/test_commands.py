"""Commands of no instrument, and what all share: streams, exit codes, sentences, resuming."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.errors import InvalidInputError
from flowscope.lab import engine

OLD_AUDIT = Path(__file__).parents[1] / "golden" / "folders" / "audit"
KEYS = {"model", "kind", "blocks", "attention_calls", "writes", "tail", "can", "cannot"}


def _run(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), **options)


def test_doctor_json_is_one_document_alone_on_stdout(folders):
    result = _run("doctor", str(folders("gpt2")), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert set(document) >= KEYS
    assert (document["blocks"], document["attention_calls"]) == (3, 3)
    assert document["writes"] == ["attention", "feed_forward"]
    assert document["tail"]["target"] == "logits"
    assert [o["what"] for o in document["cannot"]] == ["fill masked positions (flowscope decode)"]


def test_a_refused_model_exits_with_one_and_says_why(folders):
    result = _run("doctor", str(folders("bloom")), "--json")
    assert result.exit_code == 1
    (obstacle,) = json.loads(result.stdout)["cannot"]
    assert set(obstacle) == {"what", "because"}
    assert "BloomAttention" in obstacle["because"]


def test_a_table_fits_eighty_columns(folders):
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


def test_settings_can_be_overridden_and_misspellings_are_corrected(folders):
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
    [
        ("dtype", "takes name=value"),
        ("dtype=int8", "floating-point type"),
        ("blocks=3", "must be a string"),
    ],
)
def test_bad_settings_get_a_sentence(setting, words, folders):
    result = _run("doctor", str(folders("llama")), "--set", setting)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


def test_settings_come_from_a_file_too(folders, tmp_path):
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


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_folder_that_is_not_there_gets_a_sentence(command, tmp_path):
    missing = _run(command, *[str(tmp_path / "nowhere")] * (2 if command == "compare" else 1))
    assert missing.exit_code == 1
    assert "there is no folder" in " ".join(missing.stderr.split())


def test_report_writes_png_files_only_when_asked(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(OLD_AUDIT, run)
    assert _run("report", str(run)).exit_code == 0
    assert not (run / "figures").exists()
    assert _run("report", str(run), "--png").exit_code == 0
    assert list((run / "figures").glob("*.png"))


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is empty"), ("a", "fewer than two tokens"), (b"\xff\xfe", "is not UTF-8")],
)
def test_bad_text_gets_a_sentence(content, words, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = _run("audit", "--text", str(file), "--out", str(tmp_path))
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


def test_models_lists_what_ships():
    result = _run("models")
    assert result.exit_code == 0
    assert "language: 14 layers" in result.stdout


def test_what_libraries_print_does_not_spoil_the_document(monkeypatch, tmp_path):
    def noisy(*arguments, **more):
        print("a library speaks")
        raise InvalidInputError("The end.")

    monkeypatch.setattr(engine, "run", noisy)
    result = _run("audit", "--out", str(tmp_path), "--json")
    assert json.loads(result.stdout) == {"error": "The end.", "kind": "InvalidInputError"}
    assert "a library speaks" in result.stderr


def test_an_option_wins_over_the_file_and_set_over_both(monkeypatch, tmp_path):
    seen = []

    def refuse(instrument, config, **more):
        seen.append((config.prompts, config.tokens, config.seed))
        raise InvalidInputError("The end.")

    monkeypatch.setattr(engine, "run", refuse)
    file = tmp_path / "settings.yaml"
    file.write_text("prompts: 5\ntokens: 6\nseed: 7\n")
    _run("audit", "--config", str(file), "--tokens", "8", "--seed", "9", "--set", "seed=10")
    assert seen == [(5, 8, 10)]
