"""The probe against plain linear algebra, over splits of a corpus, dtypes and masks."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope.markov import QUANTITIES, keys_permuted
from flowscope.probes import GeometryProbe, MatchedProbe, PermutedProbe
from flowscope.probes.heads.curvature import hashed
from flowscope.tap import Tap


def read(model, batch, *, mask=None, prompts=None, probe=GeometryProbe, **options):
    rows = next(iter(batch.values())).shape[0]
    made = probe
    with torch.no_grad(), Tap(model) as tap:
        probe = None

        def listen(call):
            nonlocal probe
            if probe is None:
                layers = len(tap.anatomy.depth)
                probe = made(layers, **options)
                numbers = np.arange(rows) if prompts is None else np.asarray(prompts)
                probe.begin(numbers, torch.ones(rows, 1) if mask is None else mask)
            if call.site.chain == tap.anatomy.depth.name:
                probe.update(call)

        tap.on_attention(listen)
        model(**batch)
    probe.end()
    return probe


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(z):
    """Entropy production, displacement, gap and keys of one head, by dense eigenvectors."""
    P = softmax(z)
    values, vectors = np.linalg.eig(P.T)
    order = np.argsort(-np.abs(values))
    law = np.real(vectors[:, order[0]])
    law = law / law.sum()
    flow = law[:, None] * P
    n = len(P)
    keys = np.exp(-(P * np.log(P)).sum(1)).mean()
    return {
        "entropy_production": 0.5 * ((flow - flow.T) * np.log(flow / flow.T)).sum(),
        "displacement": 0.5 * np.abs(P.mean(0) - 1 / n).sum(),
        "gap": 1 - np.abs(values[order[1]]),
        "effective_keys": keys,
        "top_token": law.max(),
    }


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bert", "dit"])
def test_numbers_are_those_of_dense_linear_algebra(family):
    model, batch = getattr(models, family)()
    arrays = read(model, batch).arrays()
    logits = {}

    def listen(call):
        z = call.scores().double() * call.scale
        if call.softcap is not None:
            z = call.softcap * torch.tanh(z / call.softcap)
        logits[call.site.index] = z.numpy()

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen)
        model(**batch)
    for layer, z in logits.items():
        for row in range(z.shape[0]):
            for head in range(z.shape[1]):
                for name, expected in reference(z[row, head]).items():
                    found = arrays[f"geometry_{name}"][row, layer, head]
                    assert found == pytest.approx(expected, rel=2e-3, abs=2e-6), name


def test_a_corpus_may_be_split_in_any_way():
    model, batch = models.gpt2()
    whole = read(model, batch)
    parts = [read(model, {"input_ids": batch["input_ids"][k : k + 1]}, prompts=[k]) for k in (1, 0)]
    parts[0].merge(parts[1])
    for name, values in whole.arrays().items():
        np.testing.assert_allclose(parts[0].arrays()[name], values, rtol=2e-4, atol=1e-6)


def test_padding_changes_nothing():
    model, batch = models.llama()
    ids = batch["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    padded = read(model, {"input_ids": ids, "attention_mask": mask}, mask=mask).arrays()
    alone = read(model, {"input_ids": ids[:1, :8]}).arrays()
    assert padded["geometry_tokens"].tolist() == [8, 12]
    for name in QUANTITIES:
        one, two = padded[f"geometry_{name}"][0], alone[f"geometry_{name}"][0]
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-5, err_msg=name)


def test_half_precision_is_widened():
    model, batch = models.llama()
    full = read(model, batch).arrays()
    half = read(model.bfloat16(), batch).arrays()
    assert half["geometry_entropy_production"].dtype == np.float64
    np.testing.assert_allclose(
        half["geometry_effective_keys"], full["geometry_effective_keys"], rtol=0.05
    )


def test_a_damped_chain_produces_entropy_that_grows_as_jumps_vanish():
    model, batch = models.gpt2()
    few, many = (read(model, batch, chain="damped", damping=d).arrays() for d in (1e-3, 0.2))
    low, high = (a["geometry_entropy_production"] for a in (many, few))
    assert np.isfinite(high).all()
    assert (high > 0).all()
    assert (low > 0).all()


def test_a_causal_chain_conditioned_on_survival_has_a_law_and_no_current():
    model, batch = models.gpt2()
    arrays = read(model, batch, chain="quasi-stationary").arrays()
    assert np.isnan(arrays["geometry_entropy_production"]).all()
    survival = arrays["geometry_survival"]
    assert ((survival > 0) & (survival < 1)).all()


def test_nothing_is_absorbed_in_a_bidirectional_model():
    probe = read(*models.bert(), chain="quasi-stationary")
    assert np.isnan(probe.arrays()["geometry_survival"]).all()
    assert "causal" in next(iter(probe.because.values()))


def test_a_biased_causal_model_abstains_with_the_reason():
    probe = read(*models.t5())
    assert np.isnan(probe.arrays()["geometry_gap"]).all()
    assert all("bias" in reason for reason in probe.because.values())
    damped = read(*models.t5(), chain="damped").arrays()
    assert np.isfinite(damped["geometry_entropy_production"]).all()


def test_permuted_keys_give_other_numbers_and_the_same_again():
    model, batch = models.bert()
    own = read(model, batch).arrays()["geometry_entropy_production"]
    parts = [read(model, batch, probe=PermutedProbe, permutations=3).arrays() for _ in range(2)]
    names = ["permuted_0", "permuted_1", "permuted_2"]
    for name in names:
        np.testing.assert_array_equal(parts[0][name], parts[1][name])
        assert not np.allclose(parts[0][name], own, rtol=1e-3)
    assert not np.allclose(parts[0][names[0]], parts[0][names[1]], rtol=1e-3)


def test_permuted_numbers_are_those_of_dense_linear_algebra():
    model, batch = models.llama()
    arrays = read(model, batch, probe=PermutedProbe, permutations=1, prompts=[3, 8]).arrays()
    logits = {}

    def listen(call):
        logits[call.site.index] = (call.scores().double() * call.scale).numpy()

    with torch.no_grad(), Tap(model) as tap:
        tap.on_attention(listen)
        model(**batch)
    for row, prompt in enumerate((3, 8)):
        z = logits[1][row, 2]
        order = np.argsort(hashed(prompt, np.arange(len(z)), 2), kind="stable")
        moved = keys_permuted(torch.tensor(z), torch.tensor(order)).numpy()
        expected = reference(moved)["entropy_production"]
        assert arrays["permuted_0"][row, 1, 2] == pytest.approx(expected, rel=2e-3, abs=2e-6)


def test_keys_under_a_mask_are_not_permuted():
    model, batch = models.bert()
    mask = torch.ones_like(batch["input_ids"])
    model_mask = torch.ones(1, 1, *2 * mask.shape[1:], dtype=torch.bool).tril(3).triu(-3)
    batch = {**batch, "attention_mask": model_mask.expand(len(mask), -1, -1, -1)}
    probe = read(model, batch, probe=PermutedProbe)
    assert np.isnan(probe.arrays()["permuted_0"]).all()
    assert "permuted" in probe.because[0]


def test_a_model_scaled_to_its_own_keys_is_itself():
    model, batch = models.llama()
    own = read(model, batch).arrays()
    keys = dict(enumerate(own["geometry_effective_keys"]))
    arrays = read(model, batch, probe=MatchedProbe, keys=keys).arrays()
    np.testing.assert_allclose(arrays["matched_scale"], 1, rtol=0.02)
    np.testing.assert_allclose(
        arrays["matched_production"], own["geometry_entropy_production"], rtol=0.04
    )


@pytest.mark.parametrize("chain", ["unmasked", "damped"])
def test_scaled_heads_have_the_keys_of_the_other_model(chain):
    model, batch = models.llama()
    sharp, _ = models.llama()
    with torch.no_grad():
        for name, weight in sharp.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                weight.mul_(5)
    wanted = read(sharp, batch, chain=chain).arrays()["geometry_effective_keys"]
    keys = dict(enumerate(wanted))
    found = read(model, batch, probe=MatchedProbe, keys=keys, chain=chain).arrays()
    assert np.isfinite(found["matched_production"]).all()
    first = found["matched_scale"][:, 0]  # layer 0 has the same inputs: 5 × 5
    np.testing.assert_allclose(first, 25, rtol=0.05)
    own = read(sharp, batch, chain=chain).arrays()["geometry_entropy_production"][:, 0]
    np.testing.assert_allclose(found["matched_production"][:, 0], own, rtol=0.05)


def test_a_head_that_the_other_model_lacks_has_no_number():
    model, batch = models.llama()
    keys = {0: np.full((1, 1), 3.0)}
    arrays = read(model, batch, probe=MatchedProbe, keys=keys).arrays()
    known = np.isfinite(arrays["matched_production"])
    assert known.sum() == 1
    assert known[0, 0, 0]


def test_many_short_pieces_and_one_long_one_give_the_same(monkeypatch):
    model, batch = models.gpt2()
    together = read(model, batch).arrays()
    monkeypatch.setattr("flowscope.probes.heads.chain_probe._TOGETHER", 1)
    apart = read(model, batch).arrays()
    for name, values in together.items():
        np.testing.assert_allclose(apart[name], values, rtol=2e-4, atol=1e-6, err_msg=name)
