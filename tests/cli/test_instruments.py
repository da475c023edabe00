"""Settings that an instrument refuses: a sentence, and no folder."""

import pytest
from tests.instruments.tiny import SMALL
from tests.models.synthetic_pipelines import pixel_folder, unet
from typer.testing import CliRunner

from flowscope.cli import app


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


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("heads", ["--chain", "masked"], "'unmasked', 'damped' or 'quasi-stationary'"),
        ("sync", ["--couplings", "0.5,1.5"], "couplings must lie in [0, 1]; got 1.5"),
        ("sync", ["--couplings", "strong"], "couplings"),
        ("sync", ["--couplings", "0.5,,1]"], "couplings"),
        ("sync", ["--labels", "7"], "labels must lie between 0 and 2 (cat … owl); got 7"),
        ("sync", ["--pairs", "6", "--set", "band=2"], "need 8 pairs"),
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


def test_a_list_that_may_be_left_out_is_written_with_commas_too():
    outcome = CliRunner().invoke(app, ["decode", "--blanks", "3,x"])
    assert outcome.exit_code == 1
    assert "blanks" in outcome.output
    assert "must be a list" not in " ".join(outcome.output.split())
