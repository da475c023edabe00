"""Dials on loaded models: the model at rest, what they say elsewhere, causal, and undone."""

import dataclasses
import math
import re

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError
from flowscope.levers import geometry, geometry_attention
from flowscope.levers.perturbation import _directions, random_change
from flowscope.tap import Site

CAUSAL = ("gpt2", "llama", "qwen3", "gemma2", "gemma3", "neox")
DIALS = {
    "metric": {"metric": 0.5},
    "exact": {"exact": 0.0},
    "flux": {"flux": 0.0},
    "alpha": {"alpha": 1.0},
    "temperature": {"temperature": 0.7},
    "square": {"square": (0.0, 1.0)},
    "noise": {"flux": 0.0, "alpha": 1.0, "noise": 3},
}


@torch.no_grad()
def output(model, batch):
    return models.first_tensor(model(**batch))


def peaked(model, factor=4.0):
    """Attention of random weights is nearly flat: sharpen it, so that there is something to see."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"(query|q_proj|k_proj|key|to_q|to_k|c_attn)\.weight", name):
                parameter.mul_(factor)
    return model


def made(name):
    model, batch = models.READABLE[name]()
    return peaked(model), batch


def fitting(name):
    """Dials that a family takes: the operator square has no soft-cap."""
    return {k: v for k, v in DIALS.items() if k != "square" or name != "gemma2"}


def sectors(s):
    """D, (w_i − w_j) and A, entry by entry."""
    w = s.diagonal(dim1=-2, dim2=-1)
    out, into = w[..., :, None], w[..., None, :]
    return out + into - s - s.mT, out - into, (s - s.mT) / 2


def by_hand(free, temperature=1.0):
    """A listener that puts logits of its own under the mask of the call, written out."""

    def listener(call):
        groups = call.q.shape[1] // call.k.shape[1]
        q = call.q
        k, v = (x.repeat_interleave(groups, 1) for x in (call.k, call.v))
        s = q @ k.mT * call.scale
        if call.softcap is not None:
            s = call.softcap * torch.tanh(s / call.softcap)
        masked = call.logits()
        bias = torch.where(masked > -9e3, masked - s, -torch.inf)
        return torch.softmax((free(s, q, k, call.scale) + bias) / temperature, -1) @ v

    return listener


def differences(s, metric=1.0, exact=1.0, flux=1.0):
    symmetric, slope, turning = sectors(s)
    return -metric * symmetric / 2 - exact * slope / 2 + flux * turning


HANDS = {
    "sectors": (
        {"metric": 0.3, "exact": 1.7, "flux": -0.5},
        by_hand(lambda s, q, k, b: differences(s, 0.3, 1.7, -0.5)),
    ),
    "temperature": ({"temperature": 1.6}, by_hand(lambda s, q, k, b: s, 1.6)),
    "flux and temperature": (
        {"flux": 0.0, "temperature": 0.6},
        by_hand(lambda s, q, k, b: differences(s, flux=0.0), 0.6),
    ),
    "square of D": (
        {"square": (0.0, 1.0)},
        by_hand(lambda s, q, k, b: -sectors(s)[0] / 2),
    ),
    "square of distances": (
        {"square": (0.0, 0.0)},
        by_hand(lambda s, q, k, b: -b * torch.cdist(q + k, q + k).square() / 8),
    ),
    "square with flux": (
        {"square": (0.5, 1.0)},
        by_hand(lambda s, q, k, b: differences(s, exact=0.5, flux=0.5)),
    ),
}


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.std().item())


@pytest.mark.parametrize("name", models.READABLE)
def test_at_rest_it_is_bitwise_the_model(name):
    model, batch = models.READABLE[name]()
    expected = output(model, batch)
    for options in ({}, {"square": (1, 1)}, {"noise": 5}):
        with geometry_attention(model, **options) as acting:
            assert torch.equal(output(model, batch), expected)
        assert acting.summary() == ()


@pytest.mark.parametrize(
    ("name", "which"),
    [(n, w) for n in ("bert", "llama", "gemma3", "encoder", "dit", "sd3") for w in HANDS]
    + [("gemma2", w) for w in ("sectors", "temperature", "flux and temperature")],
)
def test_the_output_is_that_of_attention_written_out(name, which):
    """Grouped heads, rotary embeddings, windows, soft-caps; no mask at all in the last three."""
    options, listener = HANDS[which]
    model, batch = made(name)
    plain = output(model, batch)
    with Tap(model) as tap:
        tap.on_attention(listener)
        expected = output(model, batch)
    with geometry_attention(model, **options) as acting:
        found = output(model, batch)
    same(found, expected)
    assert (found - plain).abs().max() > 20 * (found - expected).abs().max()
    assert (acting.table["total_variation"] > 1e-4).all()
    assert torch.equal(output(model, batch), plain)


def test_a_bias_is_left_alone_by_the_dials_and_divided_by_the_temperature():
    model, batch = models.t5()
    for options, listener in (HANDS["sectors"], HANDS["flux and temperature"]):
        with Tap(model) as tap:
            tap.on_attention(lambda call, act=listener: None if call.cross else act(call))
            expected = output(model, batch)
        with geometry_attention(model, **options):
            same(output(model, batch), expected)


@pytest.mark.parametrize("name", ["bert", "llama", "gemma3"])
def test_degrees_are_sums_over_the_tokens_that_a_row_may_know(name):
    """Row by row and key by key; in a window, over the pairs that it joins."""
    alpha = 0.6

    def tilted(call):
        groups = call.q.shape[1] // call.k.shape[1]
        k, v = (x.repeat_interleave(groups, 1) for x in (call.k, call.v))
        half = sectors(call.q @ k.mT * call.scale)[0] / 2
        z = call.logits().clone()
        tokens, visible = z.shape[-1], z[0, 0] > -9e3
        joined, causal = visible | visible.mT, not bool(visible.triu(1).any())
        for i in range(tokens):
            for j in range(tokens):
                at = [t for t in range(i + 1 if causal else tokens) if joined[j, t]]
                if visible[i, j]:
                    z[..., i, j] -= alpha * torch.exp(-half[..., j, at]).sum(-1).log()
        return torch.softmax(z, -1) @ v

    model, batch = made(name)
    plain = output(model, batch)
    with Tap(model) as tap:
        tap.on_attention(tilted)
        expected = output(model, batch)
    with geometry_attention(model, alpha=alpha):
        found = output(model, batch)
    same(found, expected)
    assert (found - plain).abs().max() > 20 * (found - expected).abs().max()


def test_degrees_are_those_of_the_dialled_metric():
    """With metric 2, exact 0 and flux 0 the tilt makes the diffusion map of Coifman and Lafon."""
    model, batch = made("bert")

    def mapped(call):
        K = torch.exp(-sectors(call.logits())[0])
        K = K / K.sum(-1)[..., None, :] / K.sum(-1)[..., :, None]
        return K / K.sum(-1, keepdim=True) @ call.v

    with Tap(model) as tap:
        tap.on_attention(mapped)
        expected = output(model, batch)
    with geometry_attention(model, metric=2.0, exact=0.0, flux=0.0, alpha=1.0):
        same(output(model, batch), expected)


@pytest.mark.parametrize(("name", "dial"), [(n, d) for n in CAUSAL for d in fitting(n)])
def test_no_row_learns_of_a_later_token(name, dial):
    """Every token after the sixth is another one; the first six outputs stay, the rest move."""
    model, batch = made(name)
    other = batch["input_ids"].clone()
    other[:, 6:] = (other[:, 6:] + 7) % models.VOCAB
    plain = output(model, batch)
    with geometry_attention(model, **DIALS[dial]):
        first, second = output(model, batch), output(model, {"input_ids": other})
    torch.testing.assert_close(first[:, :6], second[:, :6], rtol=0, atol=2e-6)
    assert (first - second)[:, 6:].abs().max() > 1e-3
    assert (first - plain)[:, :6].abs().max() > 1e-4


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "gemma2", "gemma3"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sequence_gives_what_it_gives_alone(name, side):
    model, batch = made(name)
    ids, length = batch["input_ids"], 8
    live = torch.arange(models.LENGTH) < length
    if side == "left":
        live = live.flip(0)
    mask = torch.stack([torch.ones_like(live), live]).long()
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    alone = {"input_ids": ids[1:, live], "position_ids": torch.arange(length)[None]}
    whole = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    for options in fitting(name).values():
        with geometry_attention(model, **options) as acting:
            found = output(model, whole)
        assert acting.summary()[0].queries == models.LENGTH + length
        with geometry_attention(model, **options):
            torch.testing.assert_close(
                found[1:, live], output(model, alone), rtol=1e-4, atol=2e-5, msg=str(options)
            )
            torch.testing.assert_close(
                found[:1], output(model, {"input_ids": ids[:1]}), rtol=1e-4, atol=2e-5
            )


class Broken(nn.Module):
    """Attention over six tokens of which the last two are padding, masked by a finite number."""

    def __init__(self, number):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.register_buffer("mask", torch.zeros(1, 1, 1, 6))
        self.mask[..., 4:] = number

    def forward(self, x):
        for layer in self.layers:
            x = self.step(layer, x)
        return x

    def step(self, layer, x):
        q = layer(x).unflatten(-1, (2, 4)).transpose(1, 2)
        mask = self.mask[..., : x.shape[1]]
        attended = nn.functional.scaled_dot_product_attention(q, q.roll(1, -1), q, mask)
        return x + attended.transpose(1, 2).flatten(-2)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("number", [-1e4, torch.finfo(torch.float32).min, -math.inf])
def test_a_finite_mask_is_read_as_a_mask(number):
    """Divided by a temperature of 10⁴, −10⁴ would be next to nothing."""
    torch.manual_seed(0)
    model, x = Outer(Broken(number)), torch.randn(1, 6, 8)
    for options in (DIALS["alpha"], {"temperature": 1e4}, DIALS["noise"]):
        with geometry_attention(model, **options):
            found, expected = output(model, {"x": x}), output(model, {"x": x[:, :4]})
        torch.testing.assert_close(found[:, :4], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dial", DIALS)
def test_half_precision_models_are_widened_inside(dtype, dial):
    model, batch = made("llama")
    with geometry_attention(model, **DIALS[dial]):
        expected = output(model, batch)
    with geometry_attention(model.to(dtype), **DIALS[dial]):
        found = output(model, batch)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1 * expected.std().item())


def test_the_summary_is_what_can_be_recomputed():
    model, batch = made("llama")
    seen = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append((call.q, call.k, call.logits(), call.scale)))
        output(model, batch)
    q, k, z, scale = seen[0]
    visible = z > -torch.inf
    free = differences(q @ k.repeat_interleave(2, 1).mT * scale, flux=0.3)
    new = torch.where(visible, free, -torch.inf)
    change = torch.where(visible, new - z, 0.0)
    centred = change - change.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)
    norm = torch.where(visible, centred, 0.0).square().sum(-1).mean((0, 2)).sqrt()
    moved = 0.5 * (torch.softmax(new, -1) - torch.softmax(z, -1)).abs().sum(-1).mean((0, 2))
    rows = [{"input_ids": row[None]} for row in batch["input_ids"]]
    for passes in ([batch], rows):
        with geometry_attention(model, flux=0.3, layers=[0]) as acting:
            for one in passes:
                output(model, one)
        (found,) = acting.summary()
        assert (found.site.index, found.heads) == (0, (0, 1, 2, 3))
        assert found.queries == models.ROWS * models.LENGTH
        torch.testing.assert_close(torch.tensor(found.norm), norm, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(torch.tensor(found.total_variation), moved, rtol=1e-4, atol=1e-6)
    assert list(acting.table) == [
        "chain", "layer", "call", "head", "norm", "total_variation", "queries",
    ]  # fmt: skip


def logits_under(model, batch, **options):
    """Logits before and after, gauge-fixed, and who sees whom: at the first layer, by its output.

    Values are replaced by the identity, so that the output is the new attention itself.
    """
    kept = {}
    acting = geometry_attention(model, layers=[0], **options)
    replace = acting._listen

    def listener(call):
        if call.site.index == 0:
            eye = torch.eye(call.k.shape[-2]).expand(*call.k.shape[:-1], -1)
            kept["new"] = replace(dataclasses.replace(call, v=eye)).log()
            kept["old"] = call.logits()

    acting._listen = listener
    with acting:
        output(model, batch)
    visible = kept["old"] > -9e3
    change = torch.where(visible, kept["new"] - kept["old"], 0.0)
    mean = change.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)
    return torch.where(visible, change - mean, 0.0), visible, acting


@pytest.mark.parametrize("name", ["llama", "gemma3", "bert", "dit"])
@pytest.mark.parametrize("dial", ["metric", "alpha", "temperature", "square"])
def test_noise_has_the_norm_of_the_change_in_every_row(name, dial):
    model, batch = made(name)
    change, visible, plain = logits_under(model, batch, **DIALS[dial])
    noise, _, acting = logits_under(model, batch, noise=0, **DIALS[dial])
    other, _, _ = logits_under(model, batch, noise=1, **DIALS[dial])
    again, _, _ = logits_under(model, batch, noise=0, **DIALS[dial])
    for drawn in (noise, other):
        torch.testing.assert_close(drawn.norm(dim=-1), change.norm(dim=-1), rtol=1e-3, atol=1e-4)
    assert acting.summary()[0].norm == pytest.approx(plain.summary()[0].norm, rel=1e-5)
    assert torch.equal(noise, again)
    wide = visible.sum(-1) >= 4
    for one, two in ((noise, change), (noise, other)):
        cosine = torch.cosine_similarity(one, two, -1)[wide]
        assert cosine.mean().abs() < 5 / math.sqrt(cosine.numel())
    heads = torch.cosine_similarity(noise[:, 0], noise[:, 1], -1)[wide[:, 0]]
    assert heads.abs().mean() < 0.8


def test_noise_is_gaussian_in_direction():
    """Unit rows over 12 keys, mean removed: moments of a sphere in 11 dimensions."""
    model, batch = made("bert")
    drawn = torch.cat(
        [logits_under(model, batch, flux=0.0, noise=seed)[0][:1] for seed in range(60)]
    )
    unit = drawn / drawn.norm(dim=-1, keepdim=True)
    assert unit.mean().abs() < 1e-6
    assert unit.square().mean().item() == pytest.approx(1 / 12, rel=1e-4)
    assert unit.pow(4).mean().item() == pytest.approx(3 / 12 * 11 / 12 / 13, rel=0.05)


def test_noise_differs_from_layer_to_layer_and_between_chains():
    visible = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    sites = [
        Site(chain=chain, index=index, path="", call=call, stream="h")
        for chain, index, call in (("a", 0, 0), ("a", 1, 0), ("a", 0, 1), ("b", 0, 0))
    ]
    drawn = [random_change(torch.ones(1, 1, 9, 9), visible, 0, site, (2,)) for site in sites]
    assert len(_directions(0, sites[0], (2,), visible).unique()) == 9 * 9, "one for every pair"
    for i, one in enumerate(drawn):
        for two in drawn[i + 1 :]:
            assert torch.cosine_similarity(one.flatten(), two.flatten(), 0).abs() < 0.5
    long = torch.ones(2, 1, 15, 15, dtype=torch.bool)
    longer = random_change(torch.ones(2, 1, 15, 15), long, 0, sites[0], (2,))
    corner = longer[:1, :, :9, :9] - longer[:1, :, :9, :9].mean(-1, keepdim=True)
    cosine = torch.cosine_similarity(corner, drawn[0], -1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_only_the_chosen_heads_and_layers_are_changed(name):
    """Heads 1 and 3 as with all heads, heads 0 and 2 bitwise the model's own (grouped keys too)."""
    model, batch = made(name)
    kinds = {"chain": "encoder.block"} if name == "t5" else {}
    kept = {}
    for heads in (None, (3, 1)):
        acting = geometry_attention(model, flux=0.0, layers=[1], heads=heads, **kinds)
        replace = acting._listen

        def keep(call, replace=replace, heads=heads):
            answer = replace(call)
            if answer is not None:
                kept[heads] = answer, call.output()
            return answer

        acting._listen = keep
        with acting:
            output(model, batch)
        assert set(acting.table["layer"]) == {1}
        assert acting.summary()[0].heads == (tuple(range(4)) if heads is None else (1, 3))
    (every, _), (some, own) = kept[None], kept[3, 1]
    torch.testing.assert_close(some[:, [1, 3]], every[:, [1, 3]])
    assert torch.equal(some[:, [0, 2]], own[:, [0, 2]])
    assert not torch.allclose(some[:, [1, 3]], own[:, [1, 3]], atol=1e-6)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_heads_in_groups_give_what_they_give_at_once(name, monkeypatch):
    model, batch = made(name)
    for options in DIALS.values():
        with geometry_attention(model, **options) as whole:
            expected = output(model, batch)
        with monkeypatch.context() as patch:
            patch.setattr(geometry, "_HELD", 1)
            with geometry_attention(model, **options) as parts:
                torch.testing.assert_close(output(model, batch), expected, rtol=1e-5, atol=1e-5)
        assert parts.table["norm"].tolist() == pytest.approx(whole.table["norm"].tolist(), rel=1e-4)


def test_cross_attention_is_never_touched():
    model, batch = made("pixart")
    with geometry_attention(model, flux=0.0) as acting:
        output(model, batch)
    assert [c.site.call for c in acting.summary()] == [0, 0, 0]


class Crossing(nn.Module):
    """Two blocks that look only at another sequence."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x, memory):
        for layer in self.layers:
            x = x + layer(x, memory, memory, need_weights=False)[0]
        return x


def test_a_model_of_cross_attention_alone_is_refused():
    torch.manual_seed(0)
    model = Crossing()
    batch = {"x": torch.randn(1, 4, 8), "memory": torch.randn(1, 5, 8)}
    words = "No attention to change.*Cross-attention has no diagonal"
    with geometry_attention(model, flux=0.0), pytest.raises(InvalidInputError, match=words):
        output(model, batch)


def test_a_cached_step_is_refused():
    model, batch = models.gpt2()
    with torch.no_grad():
        cache = model(**batch, use_cache=True).past_key_values
    words = "At layer 0 .*1 queries meet 13 keys.*queries of all tokens.*use_cache=False"
    with (
        geometry_attention(model, flux=0.0),
        pytest.raises(TapError, match=words),
        torch.no_grad(),
    ):
        model(input_ids=batch["input_ids"][:, :1], past_key_values=cache)


def test_a_single_token_sees_itself_whatever_the_dials_say():
    model, batch = made("gpt2")
    one = {"input_ids": batch["input_ids"][:, :1]}
    expected = output(model, one)
    for options in DIALS.values():
        with geometry_attention(model, **options) as acting:
            torch.testing.assert_close(output(model, one), expected)
        assert acting.table["norm"].max() == 0


def test_a_soft_cap_has_no_square():
    model, batch = models.gemma2()
    words = "At layer 0 .*plain products.*caps its logits at 2"
    with (
        geometry_attention(model, square=(0.0, 1.0)),
        pytest.raises(InvalidInputError, match=words),
    ):
        output(model, batch)


def test_equal_queries_and_keys_have_no_flux():
    model, batch = made("bert")
    for layer in model.bert.encoder.layer:
        own = layer.attention.self
        own.key.load_state_dict(own.query.state_dict())
    expected = output(model, batch)
    with geometry_attention(model, flux=0.0) as acting:
        same(output(model, batch), expected)
    assert acting.table["norm"].max() < 1e-5
    with geometry_attention(model, exact=0.0) as acting:
        output(model, batch)
    assert acting.table["norm"].min() > 0.1


def test_dropout_of_attention_is_honoured():
    """In training mode: mean over draws tends to the output without dropout."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    x, seen = torch.randn(1, 5, 8), []
    for training in (False, True):
        model.train(training)
        acting = geometry_attention(model, flux=0.0)
        replace, draws = acting._listen, []
        acting._listen = lambda call, r=replace, d=draws: d.append(r(call)) or d[-1]
        with acting, torch.no_grad():
            for _ in range(300 if training else 1):
                torch.manual_seed(len(draws))
                model(x)
        seen.append(torch.stack(draws))
    assert (seen[1].std(0) > 0.01).all()
    spread = seen[1].std(0) / math.sqrt(300)
    assert ((seen[1].mean(0) - seen[0][0]).abs() < 5 * spread).all()


@pytest.mark.parametrize("dial", DIALS)
def test_gradients_are_finite_through_padding(dial):
    model, batch = models.llama()
    mask = torch.ones_like(batch["input_ids"])
    mask[1, :5] = 0
    with geometry_attention(model, **DIALS[dial]):
        logits = model(**batch, attention_mask=mask).logits
    logits[mask.bool()].square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_it_is_undone_after_an_exception_and_can_be_used_again():
    model, batch = made("gemma2")
    expected = output(model, batch)

    def fail(event):
        raise RuntimeError("mine")

    acting = geometry_attention(model, flux=0.0)
    with acting, Tap(model) as tap:
        tap.on_block(fail)
        with pytest.raises(RuntimeError, match="mine"):
            output(model, batch)
    assert torch.equal(output(model, batch), expected)
    with acting:
        output(model, batch)
        with pytest.raises(TapError, match="entered already"):
            acting.__enter__()
    assert acting.summary()[0].queries == models.ROWS * models.LENGTH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": math.nan}, "metric must be finite; got nan"),
        ({"exact": math.inf}, "exact must be finite; got inf"),
        ({"flux": -math.inf}, "flux must be finite; got -inf"),
        ({"temperature": 0.0}, "temperature must be positive and finite; got 0.0"),
        ({"temperature": math.nan}, "temperature must be positive and finite; got nan"),
        ({"alpha": 1.5}, r"alpha must lie in \[0, 1\]; got 1.5"),
        ({"alpha": math.nan}, r"alpha must lie in \[0, 1\]; got nan"),
        ({"square": (0.0, math.nan)}, "two finite numbers"),
        ({"square": (0.0,)}, "two finite numbers"),
        ({"square": (0.0, 1.0), "flux": 0.5}, "takes the place of metric, exact and flux"),
        ({"flux": 0.0, "noise": -1}, "noise must be None or a seed"),
        ({"flux": 0.0, "noise": 0.5}, "noise must be None or a seed"),
        ({"flux": 0.0, "layers": []}, "layers must be None"),
        ({"flux": 0.0, "heads": [-1]}, "heads must be None"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        geometry_attention(nn.Linear(1, 1), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": [1, 7]}, r"No attention .*layers \[7\].*0 to 2 of 'transformer.h'"),
        ({"heads": [0, 4]}, r"head 4 at layer 0 of transformer.h .* has 4 \(0 to 3\)"),
        ({"chain": "decoder"}, "chain decoder.*0 to 2 of 'transformer.h'"),
    ],
)
def test_layers_and_heads_that_are_not_there_are_refused(options, words):
    model, batch = models.gpt2()
    acting = geometry_attention(model, flux=0.0, **options)
    with acting, pytest.raises(InvalidInputError, match=words):
        output(model, batch)
