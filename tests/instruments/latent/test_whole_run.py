"""A run as a user makes it, on a small network: the contract, repeated texts, constant states."""

import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import flowscope as fs

PROMPTS, TOKENS, WORDS = 20, 40, 900
COLUMNS = (
    "entropy_knn", "entropy_gaussian", "negentropy", "bias", "dimension_two_nn", "dimension_mle",
    "same_type_neighbours", "mean_cosine", "effective_rank", "rate_divergence", "rate_difference",
    "lambda_min",
)  # fmt: skip


def network(*, constant=False):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=2, initializer_range=0.3, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    if constant:
        with torch.no_grad():
            words = model.model.embed_tokens.weight
            words.copy_(words[:1].expand(WORDS, -1).clone())
            for block in model.model.layers:
                block.self_attn.o_proj.weight.zero_()
                block.mlp.down_proj.weight.zero_()
    return model


def inputs(prompts=PROMPTS, copies=1):
    ids = torch.randint(1, WORDS, (prompts, TOKENS), generator=torch.Generator().manual_seed(0))
    ids = ids.repeat(copies, 1)
    return [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids.split(4)]


def latent(model, given, folder, **more):
    settings = {
        "tokens": TOKENS, "prompts": 64, "points": 320, "ranks": (4, 8), "halves": 8,
        "surrogates": 2, "twins": 1, "refinements": (1, 2), "control_prompts": 2,
        "output_tokens": 8, "resamples": 20, "controls": False, "progress": False, **more,
    }  # fmt: skip
    return fs.latent(model, inputs=given, out=folder, **settings)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return latent(network(), inputs(), tmp_path_factory.mktemp("plain") / "run", controls=True)


def test_the_table_has_the_columns_of_the_contract_with_their_ends(plain):
    table = plain.table
    assert {"layer", "sample", "rank"} <= set(table)
    for name in COLUMNS:
        assert {name, f"{name}_low", f"{name}_high"} <= set(table), name
        rows = table[(table["layer"] > 1) & (table["rank"] == 4)]
        assert (rows[f"{name}_low"] <= rows[name]).all(), name
        assert (rows[name] <= rows[f"{name}_high"]).all(), name
    assert set(table["sample"]) == {"all", "types"}
    assert sorted(set(table["layer"])) == [0, 1, 2, 3]


def test_the_document_has_the_keys_of_the_contract(plain):
    document = plain.to_json()
    assert {"model", "verdicts", "layers", "clustering", "run"} <= set(document)
    assert [verdict["name"] for verdict in document["verdicts"]] == ["L1", "L2", "L3"]
    assert len(document["layers"]) == 16
    assert len(document["clustering"]) == 3


def test_embeddings_that_repeat_have_no_entropy_and_contexts_have(plain):
    """Before the first block every occurrence of a token is one point."""
    table = plain.table
    every = table[table["sample"] == "all"].groupby("layer")["entropy_knn"].first()
    assert math.isnan(every[0])
    assert every[1:].notna().all()


def test_surrogates_and_neighbours_agree_on_what_is_measured(plain):
    """Negentropy is the bias and the Gaussian less the neighbours."""
    table = plain.table.dropna(subset=["negentropy"])
    made = table["entropy_gaussian"] + table["bias"] - table["entropy_knn"]
    np.testing.assert_allclose(table["negentropy"], made, atol=1e-9)


def test_texts_given_twice_count_once(tmp_path):
    twice = latent(network(), inputs(copies=2), tmp_path / "twice")
    samples = twice.tables["samples"].set_index("sample")
    assert set(samples["copies"]) == {PROMPTS}
    assert samples.loc["all", "prompts"] == PROMPTS
    few = latent(network(), inputs(prompts=12, copies=2), tmp_path / "few")
    because = {verdict.name: verdict.because for verdict in few.verdicts}
    for name in ("L1", "L2"):
        assert "found 12, because 12 prompts repeat others" in because[name]
    assert few.table["mean_cosine"].notna().all()
    assert few.table["entropy_knn"].isna().all()


def test_constant_states_give_reasons_and_no_entropy(tmp_path):
    result = latent(network(constant=True), inputs(), tmp_path / "run")
    assert {verdict.outcome for verdict in result.verdicts} == {"abstains"}
    assert result.table["entropy_knn"].isna().all()
    np.testing.assert_allclose(result.table["mean_cosine"], 1, atol=1e-6)
    np.testing.assert_allclose(result.table["effective_rank"], 1, atol=1e-6)
    assert any("lie in 0 dimensions" in m.because for m in result.run.read_measurements())
    page = result.report().read_text(encoding="utf-8")
    assert 'id="plot-entropies"' not in page
