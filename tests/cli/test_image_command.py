"""``flowscope image`` in a terminal: its document, eighty columns, bad input, its study."""

import json

import pytest
from rich.cells import cell_len
from tests.runs.synthetic_pipelines import pixel_folder, unet
from typer.testing import CliRunner

from flowscope.cli.commands import app

SMALL = [
    "--images", "16", "--steps", "5", "--doubling", "2,4", "--lams", "0,.5,1", "--bins", "8",
    "--set", "family_images=12", "--set", "rotation_times=1", "--set", "rank=2",
    "--set", "information_images=8", "--set", "uturn_images=8", "--set", "uturn_times=2",
    "--set", "resamples=20", "--set", "draws=39",
]  # fmt: skip


def _run(*args, **more):
    return CliRunner().invoke(app, list(args), **more)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    return str(pixel_folder(tmp_path_factory.mktemp("pipeline"), model=unet()))


@pytest.fixture(scope="module")
def done(pipeline, tmp_path_factory):
    out = ["--out", str(tmp_path_factory.mktemp("out"))]
    return out, _run("image", pipeline, *SMALL, *out, "--json")


def test_the_document_is_alone_on_standard_output(done):
    result = done[1]
    assert result.exit_code in (0, 3), result.stderr
    document = json.loads(result.stdout)
    assert {"parity", "weak_error", "rotation", "uturn"} <= set(document)
    assert len(document["parity"]) == 5
    assert document["uturn"][0]["same_class"] is None
    decided = {v["decision"] for v in document["verdicts"]}
    assert (result.exit_code == 3) == (decided == {"abstains"})


def test_it_shows_itself_in_eighty_columns(done, pipeline):
    result = _run("image", pipeline, *SMALL, *done[0], env={"COLUMNS": "80"})
    lines = [line for line in result.stdout.splitlines() if "report:" not in line]
    assert max(cell_len(line) for line in lines) <= 80
    for words in ("I1", "I2", "I3", "noised to", "takes no class", "a small run: 16 images"):
        assert words in " ".join(result.stdout.split())


def test_a_mixture_is_read_without_a_model(tmp_path):
    result = _run(
        "image", "mixture", *SMALL, "--images", "640", "--set", "family_images=320", "--bins", "16",
        "--out", str(tmp_path), "--json",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert document["measured"]["space"] == "closed form"
    assert all(row["exact"] is not None for row in document["uturn"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lams", "0,2"], "lams must lie in [0, 1]; got 2"),
        (["--doubling", "4,12"], "each is twice the one before"),
        (["--bins", "1000"], "1000 bins need at least 10000 values"),
        (["--steps", "5000"], "999 steps are the most"),
        (["--scheduler", "/no/such/folder"], "holds no scheduler of diffusers"),
        (["--reader", "/no/such/folder"], "There is no folder"),
    ],
)
def test_bad_settings_get_a_sentence(pipeline, options, words, tmp_path):
    result = _run("image", pipeline, *SMALL, "--out", str(tmp_path), *options)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_the_study_shows_its_claims(pipeline, tmp_path):
    small = ["images=16", "steps=5", "doubling=[2, 4]", "bins=8", "family_images=12", "rank=2",
             "rotation_times=1", "information_images=0", "uturn_images=0", "resamples=20",
             "draws=39"]  # fmt: skip
    options = [part for one in small for part in ("--set", f"image.{one}")]
    given = ("reproduce", "track_i", pipeline, *options, "--out", str(tmp_path))
    result = _run(*given, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "report:" not in line]
    assert max(cell_len(line) for line in lines) <= 80
    document = json.loads(_run(*given, "--json").stdout)
    assert (document["study"], document["source"]) == ("track_i", "000")
    assert len(document["claims"]) == 7
