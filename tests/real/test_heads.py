"""The heads of a real language model: numbers in their range, references in their order."""

import numpy as np
import pytest

import flowscope as fs

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def heads(smollm2, paragraphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("heads") / "run"
    few = {"metric": [], "exact": [], "alpha": [], "temperatures": [], "squares": [], "flux": [0.0]}
    texts = paragraphs(4, words=120)
    return fs.heads(smollm2, texts, tokens=128, control_prompts=4, out=out, **few)


def test_every_head_is_read(heads):
    table = heads.table
    assert len(table) == 30 * 9
    assert (table["status"] == "ok").all()
    assert table["gap"].between(0, 1).all()
    assert (table["entropy_production"] >= 0).all()
    assert table["negative_share"].between(0, 1).all()
    assert table["weight_because"].str.contains("rotary").all()


def test_random_weights_are_nearly_in_equilibrium_and_permuted_keys_are_not(heads):
    medians = heads.table[
        ["entropy_production", "entropy_production_random", "entropy_production_permuted"]
    ].median()
    own, fresh, permuted = medians.to_numpy()
    assert fresh < own / 10
    assert own < permuted


def test_the_flux_is_worth_more_than_a_random_change_of_its_size(heads):
    row = heads.dials.set_index("dial").loc["flux"]
    assert row["excess"] > 0
    assert np.isclose(row["norm"], row["random_norm"], rtol=0.5)
