"""``flowscope reproduce``: the claims of a study in eighty columns and as a document."""

import json

import pytest
from rich.cells import cell_len
from tests.models.synthetic_pipelines import pixel_folder, unet
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.lab.claim import CLAIMS_TABLE
from flowscope.lab.registry import studies

READING = [
    "audit.resamples=10", "audit.controls=false", "audit.curvature_pairs=0",
    "audit.evi_positions=0", "audit.flow_rank=8", "audit.rotation_rank=3",
    "audit.rotation_layers=1", "audit.flow_close=2",
    "refined_prompts=6", "refined_positions=4", "refined_rank=4", "refinements=[1,2,4]",
]  # fmt: skip
REPLICAS = [
    "sync.pairs=8", "sync.steps=6", "sync.interventions=6", "sync.resamples=20", "sync.draws=39",
    "sync.kept=3", "sync.propagation=false", "sync.labels=[0]", "sync.couplings=[0.2,1.0]",
]  # fmt: skip
SAMPLERS = [
    "image.images=16", "image.steps=5", "image.doubling=[2, 4]", "image.bins=8",
    "image.family_images=12", "image.rank=2", "image.rotation_times=1",
    "image.information_images=0", "image.uturn_images=0", "image.resamples=20", "image.draws=39",
]  # fmt: skip


def _run(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), **options)


@pytest.mark.parametrize(
    ("study", "source", "claims", "small", "words"),
    [
        ("track_t", "000", 14, READING, "16 prompts"),
        ("synchronization_gap", "004", 15, REPLICAS, "8 pairs, 6 steps"),
        ("track_i", "000", 7, SAMPLERS, "16 images, 5 steps"),
    ],
)
def test_a_study_shows_its_claims(study, source, claims, small, words, tmp_path):
    options = [part for assignment in small for part in ("--set", assignment)]
    given = ["reproduce", study, "--out", str(tmp_path / "out"), *options]
    if study == "track_t":
        given += ["--prompts", "16", "--tokens", "32"]
    else:
        model = unet() if study == "track_i" else None
        given.insert(
            2, str(pixel_folder(tmp_path / "model", **({"model": model} if model else {})))
        )
    result = _run(*given, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("report:")]
    assert max(cell_len(line) for line in lines) <= 80
    assert words in " ".join(result.stdout.split())
    (run,) = (tmp_path / "out").iterdir()
    assert (run / "tables" / f"{study}.csv").is_file()
    assert (run / "report.html").is_file()
    document = json.loads(_run(*given, "--json").stdout)
    assert (document["study"], document["source"]) == (study, source)
    assert len(document["claims"]) == claims
    for claim in document["claims"]:
        assert set(claim) == set(CLAIMS_TABLE.schema)
        assert claim["agrees"] in ("yes", "no", "cannot be told", "not measured")
    chance = document["by_chance"]
    assert chance["recorded"]
    assert 0 < chance["rows"] < chance["total"] == claims
    assert chance["expected"] >= 0.049 * chance["rows"]
    sentence = " ".join(chance["sentence"].split())
    assert sentence in " ".join(result.stdout.split())
    assert sentence in " ".join((run / "report.html").read_text(encoding="utf-8").split())


def test_an_unknown_study_suggests_the_nearest():
    result = _run("reproduce", "track-t")
    assert result.exit_code == 1
    assert "Did you mean 'track_t'?" in result.stderr


@pytest.mark.parametrize("study", studies())
def test_an_unknown_setting_of_a_study_is_refused(study):
    result = _run("reproduce", study, "--set", "nothing=[1,2]")
    assert result.exit_code == 1
    assert "No setting is named 'nothing'" in " ".join(result.stderr.split())


def test_an_option_that_the_instrument_does_not_have_is_refused():
    result = _run("reproduce", "track_i", "--text", "some.txt")
    assert result.exit_code == 1
    assert "No setting is named 'image.text'" in " ".join(result.stderr.split())
