"""Each instrument as a user runs it: its document, eighty columns, exit codes, bad input."""

import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.models.synthetic_pipelines import pixel_folder, unet
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.lab.registry import instrument, instrument_names

READING = ["--prompts", "3", "--tokens", "16", "--set", "resamples=20"]
SMALL = {
    "audit": [*READING, "--set", "flow_rank=8", "--set", "rotation_resamples=30"],
    "heads": [*READING, "--no-dials"],
    "sync": [
        "--pairs", "8", "--steps", "6", "--couplings", ".2,1", "--set", "interventions=6",
        "--set", "resamples=20", "--set", "draws=39", "--set", "kept=3",
        "--set", "propagation=false",
    ],
    "image": [
        "--images", "16", "--steps", "5", "--doubling", "2,4", "--lams", "0,.5,1", "--bins", "8",
        "--set", "family_images=12", "--set", "rotation_times=1", "--set", "rank=2",
        "--set", "information_images=8", "--set", "uturn_images=8", "--set", "uturn_times=2",
        "--set", "resamples=20", "--set", "draws=39",
    ],
}  # fmt: skip
TEXT = "It was the best of times, it was the worst of times, said the king to Ruth. " * 20
KEYS = {
    "audit": {"segments"},
    "heads": {"heads", "chain"},
    "sync": {"tau_spec", "tau_coarse", "tau_fine", "gap", "commitment_gap"},
    "image": {"parity", "weak_error", "rotation", "uturn", "information", "family", "warning"},
}
WORDS = {
    "audit": ("3 prompts, 48 tokens",),
    "heads": ("unmasked chain", "nats/step", "steady state"),
    "sync": ("owl", "shared noise", "a small run: 8 pairs"),
    "image": ("noised to", "takes no class", "a small run: 16 images"),
}


def _run(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), **options)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory):
    """A pipeline with classes and one without."""
    classes = pixel_folder(tmp_path_factory.mktemp("classes"), names=["cat", "dog", "owl"])
    return {
        "sync": str(classes),
        "image": str(pixel_folder(tmp_path_factory.mktemp("unet"), model=unet())),
    }


@pytest.fixture(scope="module")
def finished(pipelines, tmp_path_factory):
    """Run an instrument once; returns its options and what the run printed."""
    results = {}

    def run(name):
        if name not in results:
            folder = tmp_path_factory.mktemp(name)
            (folder / "text.txt").write_text(TEXT)
            options = [*SMALL[name], "--out", str(folder / "out")]
            if name in pipelines:
                options = [pipelines[name], *options]
            else:
                options += ["--text", str(folder / "text.txt")]
            options += ["--labels", "0,2"] if name == "sync" else []
            results[name] = options, _run(name, *options, "--json")
        return results[name]

    return run


def test_every_instrument_is_run_here():
    assert set(SMALL) == set(KEYS) == set(WORDS) == set(instrument_names())


@pytest.mark.parametrize("name", SMALL)
def test_the_document_is_alone_on_standard_output(name, finished):
    _, result = finished(name)
    assert result.exit_code in (0, 3), result.stderr
    document = json.loads(result.stdout)
    shared = {"model", "measured", "verdicts", "tables", "run", "report"}
    assert set(document) == shared | KEYS[name]
    claims = sorted(claim.name for claim in instrument(name).claims)
    assert [verdict["name"] for verdict in document["verdicts"]] == claims
    decided = {verdict["decision"] for verdict in document["verdicts"]}
    assert decided <= {"holds", "fails", "abstains"}
    if name != "heads":  # whose labels decide
        assert (result.exit_code == 3) == (decided == {"abstains"})
    assert Path(document["report"]).is_file()
    assert Path(document["run"]).name.startswith(f"{name}-")
    assert all(Path(table).is_file() for table in document["tables"].values())
    assert not Path(document["run"], "figures").exists()


@pytest.mark.parametrize("name", SMALL)
def test_a_finished_command_prints_eighty_columns(name, finished):
    options, _ = finished(name)
    result = _run(name, *options, env={"COLUMNS": "80"})
    lines = [line for line in result.stdout.splitlines() if not line.startswith("report:")]
    assert max(cell_len(line) for line in lines) <= 80
    words = " ".join(result.stdout.split())
    for claim in instrument(name).claims:
        assert claim.name in words
    for expected in WORDS[name]:
        assert expected in words


def test_heads_gives_every_head_and_prints_ten(finished):
    options, result = finished("heads")
    heads = json.loads(result.stdout)["heads"]
    assert len(heads) == 14 * 8
    for head in heads:
        assert set(head) >= {"layer", "head", "entropy_production", "label", "chain", "interval"}
        assert head["chain"] == "unmasked"
    printed = _run("heads", *options, env={"COLUMNS": "80"}).stdout.splitlines()
    assert sum("steady state" in line and "…" in line for line in printed) >= 9


def test_sync_gives_times_by_class_and_coupling(finished):
    _, result = finished("sync")
    document = json.loads(result.stdout)
    expected = [
        (label, g, control)
        for label in (0, 2)
        for g, control in ((0.2, False), (1.0, False), (0.0, True))
    ]
    for name in ("tau_spec", "tau_coarse", "tau_fine"):
        assert [(row["label"], row["g"], row["control"]) for row in document[name]] == expected
        for row in document[name]:
            assert row["interval"] or row["midpoint"] in ("no transition", "abstained")
    assert {(row["g"], row["layer"]) for row in document["gap"]} == {
        (g, layer) for g in (0.0, 0.2, 1.0) for layer in (0, 1, 2)
    }
    assert all(row["null_low"] <= row["null_high"] for row in document["gap"])


def test_image_gives_a_row_per_step_and_no_class_without_a_reader(finished):
    _, result = finished("image")
    document = json.loads(result.stdout)
    assert len(document["parity"]) == 5
    assert document["uturn"][0]["same_class"] is None


def test_a_mixture_is_read_without_a_model(tmp_path):
    sizes = ["--images", "640", "--set", "family_images=320", "--bins", "16"]
    result = _run("image", "mixture", *SMALL["image"], *sizes, "--out", str(tmp_path), "--json")
    document = json.loads(result.stdout)
    assert document["measured"]["space"] == "closed form"
    assert all(row["exact"] is not None for row in document["uturn"])


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


def test_heads_that_cannot_be_labelled_exit_with_three(finished):
    options, _ = finished("heads")
    result = _run("heads", *options, "--chain", "quasi-stationary", "--json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert {head["label"] for head in document["heads"]} == {"refused"}
    assert {head["entropy_production"] for head in document["heads"]} == {None}


def test_a_sync_that_abstains_everywhere_exits_with_three(tmp_path):
    """Replicas that start at one point and meet no noise never part: nothing can be measured."""
    folder = str(pixel_folder(tmp_path / "unet", model=unet()))
    still = ["--set", "sigma=0", "--set", "eta=0", "--out", str(tmp_path / "out")]
    result = _run("sync", folder, *SMALL["sync"], *still, "--json")
    assert result.exit_code == 3, result.stderr
    document = json.loads(result.stdout)
    assert {v["decision"] for v in document["verdicts"]} == {"abstains"}
    assert set(document["gap"]) == {"abstained"}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("heads", ["--chain", "masked"], "'unmasked', 'damped' or 'quasi-stationary'"),
        ("sync", ["--couplings", "0.5,1.5"], "couplings must lie in [0, 1]; got 1.5"),
        ("sync", ["--couplings", "strong"], "couplings"),
        ("sync", ["--couplings", "0.5,,1]"], "couplings"),
        ("sync", ["--labels", "7"], "labels must lie between 0 and 2 (cat … owl); got 7"),
        ("sync", ["--pairs", "6"], "need 8 pairs"),
        ("sync", ["--scheduler", "/no/such/folder"], "holds no scheduler of diffusers"),
        ("sync", ["--encoder", "/no/such/folder"], "There is no folder"),
        ("image", ["--lams", "0,2"], "lams must lie in [0, 1]; got 2"),
        ("image", ["--doubling", "4,12"], "each is twice the one before"),
        ("image", ["--bins", "1000"], "1000 bins need at least 10000 values"),
        ("image", ["--steps", "5000"], "999 steps are the most"),
        ("image", ["--scheduler", "/no/such/folder"], "holds no scheduler of diffusers"),
        ("image", ["--reader", "/no/such/folder"], "There is no folder"),
    ],
)
def test_bad_settings_get_a_sentence_and_make_no_folder(name, options, words, pipelines, tmp_path):
    model = [pipelines[name]] if name in pipelines else []
    result = _run(name, *model, *SMALL[name], "--out", str(tmp_path), *options)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
