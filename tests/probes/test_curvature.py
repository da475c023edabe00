"""Curvature of heads: the states a layer reads, pairs by hash, and laws on calls made by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose, assert_array_equal
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.probes import AttentionInputs, CurvatureProbe, sampled_pairs
from flowscope.probes.heads.curvature import hashed
from flowscope.records import Unavailable
from flowscope.tap import AttentionCall, Site
from flowscope.transport.rows import curvature


@torch.no_grad()
def seen_inputs(model, batch):
    """The states that fed each self-attention call of the depth, and the blocks' streams."""
    states, streams = {}, {}
    with Tap(model) as tap:
        inputs = AttentionInputs(model, tap)

        def on_attention(call):
            chain = tap.anatomy.depth
            if call.site.chain == chain.name and not call.cross:
                states[call.site.index] = inputs.of(call)

        tap.on_attention(on_attention)
        tap.on_block(
            lambda e: (
                streams.setdefault(e.site.index, e.hidden_in)
                if e.site.chain == tap.anatomy.depth.name
                else None
            )
        )
        with inputs:
            model(**batch)
    return states, streams


NORMS = {
    "llama": lambda m, i: m.model.layers[i].input_layernorm,
    "gpt2": lambda m, i: m.transformer.h[i].ln_1,
    "gemma2": lambda m, i: m.model.layers[i].input_layernorm,
    "neox": lambda m, i: m.gpt_neox.layers[i].input_layernorm,
    "t5": lambda m, i: m.decoder.block[i].layer[0].layer_norm,
    "vit": lambda m, i: m.vit.layers[i].layernorm_before,
    "bert": lambda m, i: nn.Identity(),  # the norm of the block before has run already
    "albert": lambda m, i: nn.Identity(),
}


@pytest.mark.parametrize("name", NORMS)
def test_points_are_what_the_projections_read(name):
    model, batch = models.READABLE[name]()
    states, streams = seen_inputs(model, batch)
    assert len(states) == len(streams) >= 2
    with torch.no_grad():
        for index, x in states.items():
            torch.testing.assert_close(x, NORMS[name](model, index)(streams[index]))


class OwnCaller(nn.Module):
    """A block that calls attention itself: its argument is the stream, not the normed state."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def test_a_block_that_calls_attention_itself_says_so():
    torch.manual_seed(0)
    model = nn.Sequential(OwnCaller(), OwnCaller(), OwnCaller()).eval()
    states, _ = seen_inputs(model, {"input": torch.randn(2, 5, 8)})
    assert all(isinstance(x, Unavailable) for x in states.values())
    probe = CurvatureProbe(3)
    probe.begin(np.arange(2), torch.ones(2, 5))
    probe.update(handmade(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2)), states[0])
    probe.end()
    assert probe.arrays() == {}
    assert "calls attention itself" in probe.because


def test_inputs_leave_no_hook_behind():
    model, batch = models.llama()
    seen_inputs(model, batch)
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_pairs_are_disjoint_ordered_and_the_same_whatever_else_is_read():
    pairs = sampled_pairs(3, np.arange(40), 6)
    assert len(set(pairs.ravel())) == 12
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert_array_equal(pairs, sampled_pairs(3, np.arange(40)[::-1], 6))
    assert_array_equal(pairs[:2], sampled_pairs(3, np.arange(40), 2))
    assert not np.array_equal(pairs, sampled_pairs(4, np.arange(40), 6))
    assert len(sampled_pairs(0, np.arange(5), 9)) == 2


def test_hashes_spread_evenly_over_positions():
    first = np.array([sampled_pairs(p, np.arange(64), 1)[0] for p in range(2000)]).ravel()
    share = np.bincount(first // 16, minlength=4) / len(first)
    assert_allclose(share, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / len(first)))
    assert len(np.unique(hashed(0, np.arange(10_000)))) == 10_000


def handmade(q, k, *, causal=False, mask=None, index=0):
    site = Site(chain="c", index=index, path="c.0.attn", call=0, stream="x")
    return AttentionCall(
        site=site,
        q=q,
        k=k,
        v=k,
        mask=mask,
        causal=causal,
        scale=1.0,
        softcap=None,
        groups=1,
        dropout=0.0,
        cross=False,
        forward=0,
        _kernel=lambda: k,
    )


def measured(q, k, x, *, pairs=20, **options):
    probe = CurvatureProbe(1, pairs=pairs)
    probe.begin(np.arange(len(q)), torch.ones(len(q), q.shape[-2]))
    probe.update(handmade(q, k, **options), x)
    probe.end()
    assert probe.because == ""
    return probe.arrays()


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("causal", [False, True])
def test_kappa_is_that_of_the_rows_and_points(causal):
    q, k, x = noise(1, 2, 24, 8), noise(1, 2, 24, 8, seed=1), noise(1, 24, 6, seed=2)
    found = measured(q, k, x, causal=causal)
    call = handmade(q, k, causal=causal)
    d = torch.cdist(x[0].double(), x[0].double()).numpy()
    np.fill_diagonal(d, 0)
    pairs = np.stack([found["curvature_first"], found["curvature_second"]], -1)
    visible = np.tril(np.ones((24, 24), bool)) if causal else np.ones((24, 24), bool)
    direct = curvature(call.probabilities()[0], d, pairs, support=visible)
    used = found["curvature_left_out"][:, 0] == 0
    assert used.mean() > 0.6
    assert_allclose(found["curvature_kappa"][:, 0][used], direct.kappa.T[used], atol=1e-5)
    assert_allclose(found["curvature_kept"][:, 0][used], direct.kept.T[used], atol=1e-5)


def test_rows_that_see_all_keys_alike_have_curvature_one():
    found = measured(torch.zeros(1, 2, 20, 4), noise(1, 2, 20, 4), noise(1, 20, 6, seed=1))
    assert_allclose(found["curvature_kappa"][found["curvature_left_out"] == 0], 1.0, atol=1e-6)


def test_rows_that_see_themselves_alone_have_curvature_zero():
    x = noise(1, 20, 20, seed=3)
    eye = torch.eye(20)[None, None] * 12.0
    found = measured(eye, eye, x)
    assert_allclose(found["curvature_kappa"][found["curvature_left_out"] == 0], 0.0, atol=1e-6)


def test_permuting_keys_changes_nothing_where_all_points_are_equally_far():
    q, k = noise(1, 2, 24, 8), noise(1, 2, 24, 8, seed=1)
    equal = measured(q, k, torch.eye(24)[None], causal=True)
    assert_allclose(equal["curvature_null"], equal["curvature_kappa"], atol=1e-6)
    plain = measured(q, k, noise(1, 24, 2, seed=4), causal=True)
    used = plain["curvature_left_out"] == 0
    moved = plain["curvature_null"][used] - plain["curvature_kappa"][used]
    assert np.abs(moved).max() > 0.05


def test_transport_and_total_variation_of_the_rows_are_left_beside():
    q, k = noise(1, 2, 24, 8), noise(1, 2, 24, 8, seed=1)
    found = measured(q, k, noise(1, 24, 2, seed=4))
    rows = handmade(q, k).probabilities()[0].numpy()
    first, second = found["curvature_first"], found["curvature_second"]
    expected = np.abs(rows[:, first] - rows[:, second]).sum(-1).T / 2
    used = found["curvature_left_out"][:, 0] == 0
    assert_allclose(found["curvature_total_variation"][:, 0][used], expected[used], atol=1e-6)
    # Where all points are equally far, W₁ is that distance times the total variation.
    equal = measured(q, k, 3.0 * torch.eye(24)[None] / np.sqrt(2))
    moved, overlap = equal["curvature_transport"], equal["curvature_total_variation"]
    assert_allclose(moved, 3.0 * overlap, atol=1e-5)


def test_a_sink_pins_its_pairs():
    """Every row puts its mass on key 0: κ = 1, and nothing was compared."""
    k = torch.zeros(1, 2, 20, 4)
    k[:, :, 0] = 10.0
    q = torch.ones(1, 2, 20, 4)
    q[:, 1] = 0.0  # the second head sees all keys alike
    found = measured(q, k, noise(1, 20, 6), causal=True)
    used = found["curvature_left_out"][:, 0, 0] == 0
    assert (found["curvature_pinned"][used, 0, 0] == 1).all()
    assert_allclose(found["curvature_kappa"][used, 0, 0], 1.0, atol=1e-6)
    assert (found["curvature_pinned"][:, 0, 1] == 0).mean() > 0.8


def test_pairs_too_near_too_light_or_with_one_key_are_left_out_by_their_code():
    x = noise(1, 20, 6)
    first, second = sampled_pairs(0, np.arange(20), 1)[0]
    x[0, second] = x[0, first] + 1e-3
    q, k = torch.zeros(1, 1, 20, 4), torch.zeros(1, 1, 20, 4)
    near = measured(q, k, x)
    d = torch.cdist(x[0], x[0]).numpy()
    apart = d[near["curvature_first"], near["curvature_second"]]
    quantile = np.quantile(d[np.triu_indices(20, 1)], 0.05)
    assert_array_equal(near["curvature_left_out"][:, 0, 0] == 1, apart < quantile)
    assert (apart < quantile).any()
    diagonal = torch.eye(20)[None, None] * 8.0  # rows that see little but themselves
    light = measured(diagonal, diagonal, x, causal=True)["curvature_left_out"]
    assert (light == 2).sum() > 5
    window = torch.full((20, 20), -torch.inf).fill_diagonal_(0.0)
    alone = measured(q, k, x, mask=window[None, None])["curvature_left_out"]
    assert set(alone.ravel()) <= {1, 3}
    assert (alone == 3).any()


@pytest.mark.parametrize("words", [1, 2, 5])
def test_a_repeated_word_is_one_point_and_not_a_distance(words):
    """A few words said over and over: most pairs are no pairs, and none is divided by rounding."""
    x = (3.0 + noise(1, words, 64))[:, np.arange(20) % words]
    found = measured(noise(1, 1, 20, 4), noise(1, 1, 20, 4, seed=1), x)
    same = (found["curvature_second"] - found["curvature_first"]) % words == 0
    assert same.any()
    assert (found["curvature_left_out"][same] == 1).all()
    assert np.isnan(found["curvature_kappa"][same]).all()
    used = found["curvature_left_out"] == 0
    assert np.isfinite(found["curvature_kappa"][used]).all()
    assert used.any() == (words > 1)


def from_model(model, batch, mask, prompts):
    probe = CurvatureProbe(3, pairs=3)
    probe.begin(np.asarray(prompts), mask)
    with Tap(model) as tap, torch.no_grad():
        inputs = AttentionInputs(model, tap)
        tap.on_attention(lambda call: probe.update(call, inputs.of(call)))
        with inputs:
            model(**batch)
    probe.end()
    return probe


def test_merging_in_any_order_is_the_whole_and_padding_does_not_count():
    model, batch = models.llama()
    ids, mask = batch["input_ids"], torch.ones(2, 12, dtype=torch.bool)
    mask[1, 9:] = False
    padded = {"input_ids": ids, "attention_mask": mask.long()}
    whole = from_model(model, padded, mask, [0, 1]).arrays()
    parts = [
        from_model(model, {"input_ids": ids[i : i + 1, :n]}, mask[i : i + 1, :n], [i])
        for i, n in ((0, 12), (1, 9))
    ]
    orders = []
    for first, second in (parts, parts[::-1]):
        merged = CurvatureProbe(3)
        merged.merge(first)
        merged.merge(second)
        orders.append(merged.arrays())
    for name, values in whole.items():
        assert_array_equal(orders[0][name], orders[1][name])
        assert_allclose(orders[0][name], values, atol=1e-4)
    assert whole["curvature_kappa"].shape == (6, 3, 4)
    assert np.isfinite(whole["curvature_kappa"]).any()
