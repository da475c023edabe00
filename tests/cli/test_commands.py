"""The command as a user runs it: streams, exit codes, sentences, eighty columns."""

import json
import subprocess
import sys

import pytest
from rich.cells import cell_len
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


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    text = folder / "text.txt"
    text.write_text(
        "It was the best of times, it was the worst of times, said the king to Ruth. " * 20
    )
    options = ["--text", str(text), "--prompts", "3", "--tokens", "24", "--out", str(folder)]
    result = _run("audit", *options, "--set", "resamples=20", "--json")
    return folder, options, result


def test_audit_json_keeps_its_contract(audited):
    folder, _, result = audited
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert set(document) >= {"model", "verdicts", "segments", "tables", "run"}
    assert [v["name"] for v in document["verdicts"]] == ["P0", "P1", "P2", "P3", "P4"]
    assert {v["decision"] for v in document["verdicts"]} <= {"holds", "fails", "abstains"}
    assert document["segments"][0]["first_layer"] == 1
    (run,) = folder.glob("audit-language-*")
    assert str(run) == document["run"]
    assert (run / "report.html").is_file()
    assert (run / "figures" / "variation.png").is_file()


def test_audit_shows_verdicts_in_eighty_columns(audited):
    _, options, _ = audited
    result = _run("audit", *options, "--set", "resamples=20", env={"COLUMNS": "80"})
    lines = [line for line in result.stdout.splitlines() if not line.startswith("report:")]
    assert max(cell_len(line) for line in lines) <= 80
    assert "3 prompts, 72 tokens" in result.stdout


def test_report_is_rebuilt_from_the_run_alone(audited):
    folder, _, _ = audited
    (run,) = folder.glob("audit-language-*")
    page = run / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert _run("report", str(run)).exit_code == 0
    assert page.read_bytes() == before
    missing = _run("report", str(folder / "nowhere"))
    assert missing.exit_code == 1
    assert "there is no folder" in " ".join(missing.stderr.split())


def test_compare_says_when_nothing_changed(audited):
    folder, _, _ = audited
    run = str(next(folder.glob("audit-language-*")))
    result = _run("compare", run, run)
    assert result.exit_code == 0
    assert "paired by prompt" in result.stdout
    assert "no difference outside its interval" in result.stdout
    assert json.loads(_run("compare", run, run, "--json").stdout)["paired"] is True


def test_an_audit_that_abstains_everywhere_exits_with_three(tmp_path):
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(["[UNK]", "it", "was", "the", "best", "of", "times"])}
    inner = Tokenizer(kinds.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "encoder"
    config = BertConfig(
        vocab_size=61,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]").save_pretrained(folder)
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "it was the best of times"}\n{"text": "the best of times it was"}\n')
    result = _run("audit", str(folder), "--text", str(text), "--out", str(tmp_path), "--json")
    assert result.exit_code == 3, result.stderr
    assert {v["decision"] for v in json.loads(result.stdout)["verdicts"]} == {"abstains"}


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is empty"), ("a", "fewer than two tokens"), (b"\xff\xfe", "not be read")],
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


def test_an_interrupt_is_a_sentence_and_loses_nothing(monkeypatch, tmp_path):
    from flowscope.runs import auditor

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(auditor, "second_look", interrupted)
    options = [
        "--prompts",
        "2",
        "--tokens",
        "16",
        "--out",
        str(tmp_path),
        "--set",
        "controls=false",
    ]
    result = _run("audit", *options)
    assert result.exit_code == 130
    assert "the same command goes on" in " ".join(result.stderr.split())
    assert len(list(tmp_path.glob("audit-*/shards/*"))) == 1
    monkeypatch.undo()
    assert _run("audit", *options).exit_code == 0


def test_reproduce_shows_the_claims_within_eighty_columns(tmp_path):
    small = [
        "audit.resamples=10", "audit.controls=false", "audit.curvature_pairs=0",
        "audit.evi_positions=0", "audit.flow_rank=8", "audit.rotation_rank=3",
        "audit.rotation_layers=1", "audit.rotation_resamples=30", "audit.flow_close=2",
        "refined_prompts=6", "refined_positions=4", "refined_rank=4", "refinements=[1,2,4]",
    ]  # fmt: skip
    options = [part for assignment in small for part in ("--set", assignment)]
    given = ("--prompts", "16", "--tokens", "32", "--out", str(tmp_path), *options)
    result = _run("reproduce", "track_t", *given, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    assert max(cell_len(line) for line in result.stdout.splitlines()[:-1]) <= 80
    assert "identification" in result.stdout
    (run,) = tmp_path.iterdir()
    assert (run / "tables" / "track_t.csv").is_file()
    assert (run / "report.html").is_file()
    again = _run("reproduce", "track_t", *given, "--json")
    document = json.loads(again.stdout)
    assert {claim["agrees"] for claim in document["claims"]} <= {
        "yes", "no", "cannot be told", "not measured",
    }  # fmt: skip
    assert len(document["claims"]) == 14


def test_an_unknown_study_suggests_the_nearest():
    result = _run("reproduce", "track-t")
    assert result.exit_code == 1
    assert "Did you mean 'track_t'?" in result.stderr


def test_an_unknown_setting_of_a_study_is_refused():
    result = _run("reproduce", "track_t", "--set", "refinement=[1,2]")
    assert result.exit_code == 1
    assert "refinement" in result.stderr


@pytest.fixture(scope="module")
def read_heads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    text = folder / "text.txt"
    text.write_text("It was the best of times, it was the worst of times. " * 20)
    options = ["--text", str(text), "--prompts", "3", "--tokens", "16", "--out", str(folder)]
    options += ["--no-dials", "--set", "resamples=20"]
    return options, _run("heads", *options, "--json")


def test_heads_json_keeps_its_contract(read_heads):
    _, result = read_heads
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    keys = {"layer", "head", "entropy_production", "label", "chain", "interval"}
    assert len(document["heads"]) == 14 * 8
    for head in document["heads"]:
        assert set(head) >= keys
        assert head["chain"] == "unmasked"


def test_heads_shows_the_ten_furthest_in_eighty_columns(read_heads):
    options, _ = read_heads
    result = _run("heads", *options, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(cell_len(line) for line in lines if "report:" not in line) <= 80
    assert sum("steady state" in line and "…" in line for line in lines) >= 9
    assert "M2" in result.stdout


def test_heads_that_cannot_be_labelled_exit_with_three(read_heads):
    options, _ = read_heads
    result = _run("heads", *options, "--chain", "quasi-stationary", "--json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert {head["label"] for head in document["heads"]} == {"refused"}
    assert {head["entropy_production"] for head in document["heads"]} == {None}


def test_an_unknown_chain_is_a_sentence():
    result = _run("heads", "--chain", "masked")
    assert result.exit_code == 1
    assert "'unmasked', 'damped' or 'quasi-stationary'" in " ".join(result.stderr.split())


SYNC = [
    "--pairs", "8", "--steps", "6", "--couplings", ".2,1", "--set", "interventions=6",
    "--set", "resamples=20", "--set", "draws=39", "--set", "kept=3", "--set", "propagation=false",
]  # fmt: skip


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    from tests.runs.synthetic_pipelines import pixel_folder

    return str(pixel_folder(tmp_path_factory.mktemp("pipeline"), names=["cat", "dog", "owl"]))


@pytest.fixture(scope="module")
def synced(pipeline, tmp_path_factory):
    out = ["--out", str(tmp_path_factory.mktemp("synced")), "--labels", "0,2"]
    return out, _run("sync", pipeline, *SYNC, *out, "--json")


def test_sync_json_keeps_its_contract(synced):
    _, result = synced
    document = json.loads(result.stdout)
    assert result.exit_code in (0, 3), result.stderr
    for name in ("tau_spec", "tau_coarse", "tau_fine"):
        assert [(row["label"], row["g"], row["control"]) for row in document[name]] == [
            (label, g, control)
            for label in (0, 2)
            for g, control in ((0.2, False), (1.0, False), (0.0, True))
        ]
        for row in document[name]:
            assert row["interval"] or row["midpoint"] in ("no transition", "abstained")
    assert {(row["g"], row["layer"]) for row in document["gap"]} == {
        (g, layer) for g in (0.0, 0.2, 1.0) for layer in (0, 1, 2)
    }
    assert all(row["null_low"] <= row["null_high"] for row in document["gap"])
    decided = {v["decision"] for v in document["verdicts"]}
    assert (result.exit_code == 3) == (decided == {"abstains"})


def test_sync_shows_itself_in_eighty_columns(synced, pipeline):
    out, _ = synced
    result = _run("sync", pipeline, *SYNC, *out, env={"COLUMNS": "80"})
    lines = [line for line in result.stdout.splitlines() if "report:" not in line]
    assert max(cell_len(line) for line in lines) <= 80
    assert "R1" in result.stdout
    assert "R2" in result.stdout
    assert "owl" in result.stdout


def test_a_sync_that_abstains_everywhere_exits_with_three(tmp_path):
    """Replicas that start at one point and meet no noise never part: nothing can be told."""
    from tests.runs.synthetic_pipelines import pixel_folder, unet

    folder = str(pixel_folder(tmp_path / "unet", model=unet()))
    still = ["--set", "sigma=0", "--set", "eta=0", "--out", str(tmp_path / "out")]
    result = _run("sync", folder, *SYNC, *still, "--json")
    assert result.exit_code == 3, result.stderr
    document = json.loads(result.stdout)
    assert {v["decision"] for v in document["verdicts"]} == {"abstains"}
    assert set(document["gap"]) == {"abstained"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--couplings", "0.5,1.5"], "couplings must lie in [0, 1]; got 1.5"),
        (["--couplings", "strong"], "couplings"),
        (["--couplings", "0.5,,1]"], "couplings"),
        (["--labels", "7"], "labels must lie between 0 and 2 (cat … owl); got 7"),
        (["--pairs", "6"], "need 8 pairs"),
        (["--scheduler", "/no/such/folder"], "holds no scheduler of diffusers"),
        (["--encoder", "/no/such/folder"], "There is no folder"),
    ],
)
def test_bad_settings_of_sync_get_a_sentence(pipeline, options, words, tmp_path):
    result = _run("sync", pipeline, *SYNC, "--out", str(tmp_path), *options)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_reproduce_of_source_004_shows_its_claims(pipeline, tmp_path):
    small = [
        "sync.pairs=8", "sync.steps=6", "sync.interventions=6", "sync.resamples=20",
        "sync.draws=39", "sync.kept=3", "sync.propagation=false", "sync.labels=[0]",
        "sync.couplings=[0.2,1.0]",
    ]  # fmt: skip
    options = [part for assignment in small for part in ("--set", assignment)]
    given = ("reproduce", "synchronization_gap", pipeline, *options, "--out", str(tmp_path))
    result = _run(*given, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "report:" not in line]
    assert max(cell_len(line) for line in lines) <= 80
    document = json.loads(_run(*given, "--json").stdout)
    assert (document["study"], document["source"]) == ("synchronization_gap", "004")
    assert len(document["claims"]) == 15
    for claim in document["claims"]:
        assert set(claim) == {"item", "where", "says", "measured", "agrees", "rule"}
