"""L3 on planted particles, fleeing ones, random weights and noise; the sums behind it."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from flowscope.instruments.latent.particles.judge import LEAST_SHARE, judge_particles
from flowscope.instruments.latent.particles.reading import FITS, half_weights, particle_fits
from flowscope.probes import tap_pass
from flowscope.probes.layers.particles import ParticleProbe
from flowscope.probes.tap_loop import PlainBatch

WIDTH, PROMPTS, TOKENS = 32, 10, 24


def _model(seed=0, sign=None, heads=1):
    """A Llama with random weights; with a sign, one whose tokens are particles."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=3,
        num_attention_heads=heads, num_key_value_heads=heads, vocab_size=200,
        initializer_range=1.0, max_position_embeddings=64, rope_theta=1e6,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    if sign is None:
        return model
    with torch.no_grad():
        for block in model.model.layers:
            for name in ("q_proj", "k_proj", "v_proj"):
                getattr(block.self_attn, name).weight.copy_(torch.eye(WIDTH))
            block.self_attn.o_proj.weight.copy_(sign * torch.eye(WIDTH))
            block.mlp.down_proj.weight.zero_()
    return model


def _sums(model, inputs=None):
    ids = torch.randint(1, 200, (PROMPTS, TOKENS), generator=torch.Generator().manual_seed(1))
    batches = [
        PlainBatch(
            inputs={"input_ids": ids[k : k + 5]} if inputs is None else inputs,
            prompts=np.arange(k, k + 5), mask=torch.ones(5, TOKENS, dtype=torch.bool),
        )
        for k in (0, 5)
    ]  # fmt: skip
    pieces = tap_pass(model, batches, {"p": ParticleProbe(model, seed=0)})["p"]
    return np.concatenate([piece.arrays["sums"] for piece in pieces]), pieces


def _fits(sums):
    whole = np.ones((1, len(sums)), bool)
    return particle_fits(sums, np.concatenate([whole, half_weights(len(sums), 24, 0)]))


def _verdict(sums, twin=None):
    arrays = {"prompts": np.array([float(len(sums))])}
    for name, one in (("model", sums), *([("random twin 1", twin)] if twin is not None else [])):
        fits = _fits(one)
        for column in ("value", "value_r2", "value_r2_permuted"):
            arrays[f"{name}/{column}"] = fits[:, :, FITS.index(column)]
    return judge_particles(arrays)


@pytest.fixture(scope="module")
def planted():
    return _sums(_model(sign=0.1))


def test_planted_particles_are_fitted_by_their_constants(planted):
    """Logits of normed states are √d cos; the write is .1 √d times the direction, over |h|."""
    sums, pieces = planted
    fits = dict(zip(FITS, np.moveaxis(_fits(sums)[0], -1, 0), strict=True))
    assert fits["beta"][0] == pytest.approx(np.sqrt(WIDTH), rel=0.1)
    assert fits["beta_r2"][0] > 0.85  # the rotation of positions has the rest
    assert fits["value_r2"].min() > 0.98
    assert abs(fits["value_r2_permuted"]).max() < 0.1
    ids = torch.arange(1, 200)
    length = float(_model(sign=0.1).model.embed_tokens.weight[ids].detach().norm(dim=1).mean())
    assert fits["value"][0] == pytest.approx(0.1 * np.sqrt(WIDTH) / length, rel=0.1)
    assert all((piece.arrays["followed"] == 1).all() for piece in pieces)


def test_planted_particles_predict_the_change_of_the_mean_cosine(planted):
    fits = dict(zip(FITS, np.moveaxis(_fits(planted[0])[0], -1, 0), strict=True))
    np.testing.assert_allclose(fits["cosine_predicted"], fits["cosine_attention"], rtol=0.15)
    np.testing.assert_allclose(fits["cosine_feed_forward"], 0, atol=1e-12)
    np.testing.assert_allclose(fits["cosine_change"], fits["cosine_attention"], atol=1e-6)


def test_particles_hold_where_planted_and_fail_elsewhere(planted):
    random = _sums(_model())[0]
    assert _verdict(planted[0]).outcome == "holds"
    assert _verdict(_sums(_model(sign=-0.1))[0]).outcome == "fails"
    assert _verdict(random).outcome == "fails"
    assert _verdict(planted[0], twin=random).outcome == "holds"
    assert _verdict(planted[0], twin=planted[0]).outcome == "uninformative"


def test_noise_explains_nothing():
    rng = np.random.default_rng(0)
    share = rng.normal(0.0, 0.002, (25, 6))
    arrays = {
        "model/value": share, "model/value_r2": share, "model/value_r2_permuted": 0 * share,
        "prompts": np.array([16.0]),
    }  # fmt: skip
    verdict = judge_particles(arrays)
    assert verdict.outcome == "fails"
    assert verdict.effect == pytest.approx(-LEAST_SHARE, abs=0.01)


def test_a_network_without_writes_abstains():
    nothing = np.full((25, 6), np.nan)
    arrays = {
        "model/value": nothing, "model/value_r2": nothing, "model/value_r2_permuted": nothing,
        "prompts": np.array([16.0]),
    }  # fmt: skip
    verdict = judge_particles(arrays)
    assert verdict.outcome == "abstains"
    assert "told from other writes" in verdict.because


def test_fits_are_those_of_the_plain_formulas():
    """One prompt, one head: β and v by explicit loops over pairs."""
    model = _model(seed=3)
    ids = torch.randint(1, 200, (1, 12), generator=torch.Generator().manual_seed(2))
    batch = PlainBatch(
        inputs={"input_ids": ids}, prompts=np.zeros(1, np.int64),
        mask=torch.ones(1, 12, dtype=torch.bool),
    )  # fmt: skip
    (piece,) = tap_pass(model, [batch], {"p": ParticleProbe(model)})["p"]
    fits = particle_fits(piece.arrays["sums"], np.ones((1, 1), bool))[0, 0]
    with torch.no_grad():
        h = model.model.embed_tokens(ids)[0].double()
        block = model.model.layers[0].double()
        normed = block.input_layernorm(h)
        rotary = model.model.rotary_emb(h[None], torch.arange(12)[None])
        q, k = (getattr(block.self_attn, name)(normed)[None, None] for name in ("q_proj", "k_proj"))
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        q, k = (part[0, 0] for part in apply_rotary_pos_emb(q, k, *rotary))
        z = (q @ k.T / np.sqrt(WIDTH)).numpy()
        v = (block.self_attn.v_proj(normed) @ block.self_attn.o_proj.weight.T.double()).numpy()
    x, length = (h / h.norm(dim=1, keepdim=True)).numpy(), h.norm(dim=1).numpy()
    top = bottom = cross = flow = 0.0
    for i in range(1, 12):
        seen = np.arange(1, i + 1)
        a, c = z[i, seen] - z[i, seen].mean(), x[seen] @ x[i] - (x[seen] @ x[i]).mean()
        top, bottom = top + a @ c, bottom + c @ c
        p = np.exp(z[i, : i + 1] - z[i, : i + 1].max())
        p = (p / p.sum())[seen]
        m, w = p @ (x[seen] - x[i]), p @ (v[seen] - v[i]) / length[i]
        m, w = (u - (u @ x[i]) * x[i] for u in (m, w))
        cross, flow = cross + m @ w, flow + m @ m
    assert fits[FITS.index("beta")] == pytest.approx(top / bottom, rel=1e-4)
    assert fits[FITS.index("value")] == pytest.approx(cross / flow, rel=1e-4)
