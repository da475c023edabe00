"""Models drawn together: laws of the drift, neutrality, alignment, and nothing left behind."""

import copy
import math
import threading

import pytest
import torch
from tests import networks as models
from torch import nn
from torch.testing import assert_close

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError
from flowscope.levers import consensus, couple
from flowscope.transport import orthogonal_map

FAMILIES = ["gpt2", "llama", "gemma3", "qwen3", "bert", "albert"]


def moved(model, size=0.3, seed=5):
    """The same network with other weights."""
    generator = torch.Generator().manual_seed(seed)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in twin.parameters():
            weight += size * weight.std() * torch.randn(weight.shape, generator=generator)
    return twin


class Still(nn.Module):
    """A block that writes nothing."""

    def forward(self, hidden):
        q = hidden[:, None]
        return hidden + 0 * nn.functional.scaled_dot_product_attention(q, q, q)[:, 0]


class Shifted(nn.Module):
    """A start of its own, then blocks that write nothing."""

    def __init__(self, shift, depth=6):
        super().__init__()
        self.shift = nn.Parameter(shift)
        self.blocks = nn.Sequential(*(Still() for _ in range(depth)))

    def forward(self, hidden):
        return self.blocks(hidden + self.shift)


def points(rows=2, tokens=24, width=6):
    return torch.randn((rows, tokens, width), generator=torch.Generator().manual_seed(1)).double()


def pair(depth=6):
    one = torch.randn((24, 6), generator=torch.Generator().manual_seed(2)).double()
    return [Shifted(0.1 * one, depth).eval(), Shifted(2.0 - 0.1 * one, depth).eval()]


@pytest.mark.parametrize("time", [0.5, 1.5])
@torch.no_grad()
def test_mutual_drift_lets_the_squared_distance_fall_as_the_exponential(time):
    """In steps of λ = 1 − e^{−dt} per block, W₂² = e^{−2t} W₂²(0), exactly."""
    both, x, depth = pair(), points(), 6
    start = (both[0](x) - both[1](x)).square().sum()
    states = {}
    with consensus(
        both, strength=1 - math.exp(-time / depth), watch=lambda at, s: states.update({at: s})
    ) as lever:
        first, second = lever(x)
    assert_close((first - second).square().sum(), math.exp(-2 * time) * start)
    for layer, (a, b) in states.items():
        passed = time * (layer + 1) / depth
        assert_close((a - b).square().sum(), math.exp(-2 * passed) * start)
    assert_close(first + second, both[0](x) + both[1](x))  # the middle stays


@torch.no_grad()
def test_transport_of_a_shifted_cloud_falls_as_the_exponential_too():
    """W₂ between a cloud and its translate is the length of the shift, whatever the coupling."""
    both, x = (
        [Shifted(torch.zeros(6).double(), 3), Shifted(torch.full((6,), 0.4).double(), 3)],
        points(),
    )
    start = (both[0](x).mean(1) - both[1](x).mean(1)).norm()
    with consensus(both, strength=0.5, coupling="transport") as lever:
        first, second = lever(x)
    assert_close((first.mean(1) - second.mean(1)).norm(), start / 8, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_transport_does_not_know_which_token_is_which():
    """A twin whose tokens stand in another order is at the barycenter already; pairs are apart."""
    x = points(1, 16)
    other = x[:, torch.randperm(16, generator=torch.Generator().manual_seed(3))] - x
    both = [Shifted(torch.zeros(6).double(), 2), Shifted(other[0], 2)]
    bare = [model(x) for model in both]
    with consensus(both, layers=[0], coupling="transport") as lever:
        found = lever(x)
        (change,) = lever.summary()
    for state, alone in zip(found, bare, strict=True):
        assert (state - alone).norm() < 0.05 * alone.norm()
    assert change.matched < 0.5
    with consensus(both, layers=[0]) as lever:
        first, second = lever(x)
    assert_close(first, second)
    assert (first - bare[0]).norm() > 0.3 * bare[0].norm()


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_one_model_or_the_same_twice_stays_bitwise_itself(name):
    model, batch = models.READABLE[name]()
    plain = models.first_tensor(model(**batch))
    for members in ([model], [model, model], [model, copy.deepcopy(model), model]):
        for coupling in ("paired", "transport"):
            with consensus(members, coupling=coupling) as lever:
                for _ in range(2):
                    outputs = lever(**batch)
                    assert len(outputs) == len(members)
                    for output in outputs:
                        assert torch.equal(models.first_tensor(output), plain)
            assert lever.summary() == ()


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "albert"])
@torch.no_grad()
def test_full_strength_after_the_last_block_makes_the_states_equal(name):
    model, batch = models.READABLE[name]()
    other = moved(model)
    bare = [models.first_tensor(m(**batch)) for m in (model, other)]
    seen = []
    with consensus(
        [model, other], watch=lambda layer, states: seen.append((layer, states))
    ) as lever:
        lever(**batch)
    assert [layer for layer, _ in seen] == list(range(len(seen)))
    assert len(seen) >= 2
    for _, (a, b) in seen:
        assert_close(a, b, rtol=1e-5, atol=1e-5)
    with consensus([model, other], strength=0) as lever:
        for output, alone in zip(lever(**batch), bare, strict=True):
            assert torch.equal(models.first_tensor(output), alone)
    for m, alone in zip((model, other), bare, strict=True):
        assert torch.equal(models.first_tensor(m(**batch)), alone)


@torch.no_grad()
def test_the_middle_of_three_is_their_mean():
    x, shifts = points(1, 5), [torch.full((6,), value).double() for value in (0.0, 3.0, 6.0)]
    with consensus([Shifted(s, 2) for s in shifts], layers=[1], strength=0.5) as lever:
        found = lever(x)
    for state, shift in zip(found, (1.5, 3.0, 4.5), strict=True):
        assert_close(state, x + shift)


def test_gradients_flow_to_all_members():
    both, x = pair(2), points()
    with consensus(both, strength=0.5) as lever:
        first, _ = lever(x)
    first.sum().backward()
    # two blocks: the first model's share of its own state is ((3/4)² + (1/4)²) + ... = 5/8
    assert_close(both[0].shift.grad, torch.full((24, 6), 2 * 0.625).double())
    assert_close(both[1].shift.grad, torch.full((24, 6), 2 * 0.375).double())


@torch.no_grad()
def test_padded_tokens_neither_move_nor_count():
    model, batch = models.gpt2()
    other, ids = moved(model), batch["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    seen = {}
    with consensus([model, other], layers=[1], watch=lambda at, s: seen.update({at: s})) as lever:
        lever(input_ids=ids, attention_mask=mask)
        (change,) = lever.summary()
    assert change.tokens == int(mask.sum())
    a, b = seen[1]
    assert_close(a[mask == 1], b[mask == 1])
    assert not torch.allclose(a[mask == 0], b[mask == 0])
    with consensus([model, other], coupling="transport") as lever:
        short = lever(input_ids=ids[:1, :5])[0].logits
        padded = lever(input_ids=ids, attention_mask=mask)[0].logits
    assert_close(padded[0, :5], short[0], rtol=1e-3, atol=1e-3)


class Turned(nn.Module):
    """A network whose states are turned by an orthogonal matrix and turned back at the end."""

    def __init__(self, model, turn):
        super().__init__()
        self.inner, self.turn = model, turn
        self.blocks = nn.Sequential(*(TurnedBlock(block, turn) for block in model.blocks))

    def forward(self, hidden):
        return self.inner.head(self.blocks(self.inner.start(hidden) @ self.turn) @ self.turn.T)


class TurnedBlock(nn.Module):
    def __init__(self, block, turn):
        super().__init__()
        self.block, self.turn = [block], turn

    def forward(self, hidden):
        return self.block[0](hidden @ self.turn.T) @ self.turn


class Known(nn.Module):
    """A small pre-norm network."""

    def __init__(self, width=6):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, hidden):
        q = self.norm(hidden)[:, None]
        attended = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)[:, 0]
        return hidden + self.mix(attended)


class Whole(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.start = nn.Linear(width, width)
        self.blocks = nn.Sequential(*(Known(width) for _ in range(3)))
        self.head = nn.Linear(width, 9)

    def forward(self, hidden):
        return self.head(self.blocks(self.start(hidden)))


@torch.no_grad()
def test_a_turned_twin_is_recognised_by_its_alignment_and_is_another_model_without():
    torch.manual_seed(0)
    model = Whole().double().eval()
    turn = torch.linalg.qr(torch.randn(6, 6).double()).Q
    twin, x = Turned(model, turn).eval(), 3 * points(1, 24)
    law = torch.softmax(model(x), -1)
    assert_close(torch.softmax(twin(x), -1), law)
    for fitted in (False, True):
        with consensus([model, twin], align="procrustes") as lever:
            if fitted:
                lever.fit(x[:, :12])
                lever.fit(x[:, 12:])
            for logits in lever(x):
                assert 0.5 * (torch.softmax(logits, -1) - law).abs().sum(-1).max() < 1e-9
    with consensus([model, twin]) as lever:
        for logits in lever(x):
            assert 0.5 * (torch.softmax(logits, -1) - law).abs().sum(-1).max() > 0.05


@torch.no_grad()
def test_an_alignment_needs_four_tokens_a_feature():
    both = [Shifted(torch.full((6,), value).double(), 2) for value in (0.0, 0.4)]
    few, enough = points(1, 23), points(1, 24)
    with consensus(both, align="procrustes") as lever:
        with pytest.raises(InvalidInputError, match="needs 24 tokens; got 23"):
            lever(few)
        lever.fit(few)
        with pytest.raises(InvalidInputError, match="needs 24 tokens; got 23"):
            lever(few)
    with consensus(both, align="procrustes") as lever:
        lever.fit(enough)
        lever(few)


def test_the_orthogonal_map_is_the_turn_and_refuses_what_is_none():
    x = points(1, 40)[0]
    turn = torch.linalg.qr(points(1, 6)[0]).Q
    assert_close(orthogonal_map(x.T @ (x @ turn)), turn)
    noisy = orthogonal_map(x.T @ (x @ turn + 0.1 * points(1, 40)[0].flip(0)))
    assert_close(noisy.T @ noisy, torch.eye(6).double())
    for bad in (torch.full((2, 2), math.nan), torch.ones(2, 3)):
        with pytest.raises(InvalidInputError, match="finite square matrix"):
            orthogonal_map(bad)


def hooks(model):
    """Hooks of all modules, and what stands where torch looks for a compiled call."""
    return [
        (name, len(value) if hasattr(value, "__len__") else value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name.endswith("_hooks") or name == "_compiled_call_impl"
    ]


@torch.no_grad()
def test_nothing_is_left_behind_and_other_threads_run_the_bare_model():
    model, batch = models.gpt2()
    other, found = moved(model), []
    bare, before = model(**batch).logits, hooks(model)
    threads = threading.active_count()

    def meanwhile(layer, states):
        thread = threading.Thread(target=lambda: found.append(output()))
        thread.start()
        thread.join()

    @torch.no_grad()
    def output():
        return model(**batch).logits

    with consensus([model, other], watch=meanwhile) as lever:
        assert not torch.equal(lever(**batch)[0].logits, bare)
        assert torch.equal(model(**batch).logits, bare)
    assert len(found) == 3
    assert all(torch.equal(logits, bare) for logits in found)
    assert hooks(model) == before
    assert threading.active_count() == threads


@pytest.mark.parametrize("place", [0, 1])
@torch.no_grad()
def test_a_failing_member_ends_all_passes_and_the_next_one_runs(place):
    model, batch = models.gpt2()
    other = moved(model)
    members, threads, before = [model, other], threading.active_count(), hooks(model)
    broken = members[place].transformer.h[1].mlp
    with consensus(members) as lever:
        expected = lever(**batch)[0].logits
        broken.forward = lambda x: (_ for _ in ()).throw(RuntimeError("a block fails"))
        with pytest.raises(RuntimeError, match="a block fails"):
            lever(**batch)
        del broken.forward
        assert torch.equal(lever(**batch)[0].logits, expected)
    with pytest.raises(RuntimeError, match="not mine"), consensus(members):
        raise RuntimeError("not mine")
    with pytest.raises(ValueError, match="mine"), consensus(members, watch=_raising) as lever:
        lever(**batch)
    assert threading.active_count() == threads
    assert hooks(model) == before


def _raising(layer, states):
    raise ValueError("mine")


@torch.no_grad()
def test_the_modes_of_the_caller_hold_in_the_lanes():
    model, batch = models.gpt2()
    other = moved(model)
    with consensus([model, other]) as lever:
        assert not lever(**batch)[0].logits.requires_grad
        with torch.enable_grad():
            assert lever(**batch)[1].logits.requires_grad
        with torch.inference_mode():
            assert lever(**batch)[0].logits.is_inference()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert lever(**batch)[0].logits.dtype == torch.bfloat16


REFUSED = {
    "no list": (lambda m: {"models": m}, "must be a list of at least one model"),
    "none": (lambda m: {"models": []}, "must be a list of at least one model"),
    "no model": (lambda m: {"models": [m, "gpt2"]}, "must be torch modules"),
    "strength": (lambda m: {"models": [m, m], "strength": 1.2}, "from 0 .no move. to 1"),
    "negative": (lambda m: {"models": [m, m], "strength": -0.1}, "from 0 .no move. to 1"),
    "nan": (lambda m: {"models": [m, m], "strength": math.nan}, "from 0 .no move. to 1"),
    "true": (lambda m: {"models": [m, m], "strength": True}, "from 0 .no move. to 1"),
    "coupling": (lambda m: {"models": [m, m], "coupling": "mean"}, "'paired' or 'transport'"),
    "align": (lambda m: {"models": [m, m], "align": "svd"}, "'none' or 'procrustes'"),
    "layers": (lambda m: {"models": [m, m], "layers": [-1]}, "whole numbers from 0"),
    "deep": (lambda m: {"models": [m, moved(m)], "layers": [7]}, "layers must be from 0 to 2"),
    "depths": (lambda m: {"models": [m, models.gpt2(layers=2)[0]]}, "one depth.*3, 2 blocks"),
}


@pytest.mark.parametrize("name", REFUSED)
@torch.no_grad()
def test_bad_settings_get_a_sentence(name):
    make, message = REFUSED[name]
    model, batch = models.gpt2()
    with pytest.raises(InvalidInputError, match=message), consensus(**make(model)) as lever:
        lever(**batch)


class Words:
    def __init__(self, words):
        self.words = words

    def get_vocab(self):
        return self.words


class Loaded:
    def __init__(self, model, words):
        self.model, self.tokenizer = model, Words(words)


@torch.no_grad()
def test_other_tokenizers_and_widths_get_a_sentence():
    from transformers import GPT2Config, GPT2LMHeadModel

    def sized(vocabulary, width):
        config = GPT2Config(n_embd=width, n_layer=3, n_head=2, vocab_size=vocabulary)
        return GPT2LMHeadModel(config).eval()

    model, batch = models.gpt2()
    rows, width = model.get_input_embeddings().weight.shape
    with pytest.raises(InvalidInputError, match=f"vocabularies have {rows} and {rows + 1} tokens"):
        consensus([model, sized(rows + 1, width)])
    with pytest.raises(InvalidInputError, match=f"{width} and {2 * width} features"):
        consensus([model, sized(rows, 2 * width)])
    one, two = Loaded(model, {"a": 0, "b": 1}), Loaded(moved(model), {"a": 1, "b": 0})
    with pytest.raises(InvalidInputError, match="model 0 and model 1 differ in 4 entries"):
        consensus([one, two])
    with consensus([one, Loaded(two.model, {"a": 0, "b": 1})]) as lever:
        assert len(lever(**batch)) == 2


@torch.no_grad()
def test_states_that_are_not_finite_get_a_sentence():
    model, batch = models.gpt2()
    broken = copy.deepcopy(model)
    broken.transformer.h[1].mlp.c_proj.bias[0] = math.nan
    with (
        pytest.raises(InvalidInputError, match="After block 1 model 1 has 24 numbers that are NaN"),
        consensus([model, broken]) as lever,
    ):
        lever(**batch)


@torch.no_grad()
def test_caches_masks_taps_and_calls_outside_get_a_sentence():
    model, batch = models.gpt2()
    other = moved(model)
    lever = consensus([model, other])
    with pytest.raises(TapError, match="runs inside its `with` block"):
        lever(**batch)
    with pytest.raises(InvalidInputError, match="There is nothing to fit"), lever:
        lever.fit(**batch)
    with pytest.raises(InvalidInputError, match="past_key_values would be written"), lever:
        lever(**batch, past_key_values=object())
    with pytest.raises(InvalidInputError, match=r"attention_mask must be \[batch, tokens\]"), lever:
        lever(**batch, attention_mask=torch.ones(2, 1, 12, 12))
    with lever, Tap(model) as tap:
        tap.on_attention(lambda call: None)
        with pytest.raises(TapError, match="A tap or a lever is entered"):
            lever(**batch)
    with lever, couple(other, 0.5), pytest.raises(TapError, match="A tap or a lever is entered"):
        lever(**batch)
    with lever, pytest.raises(TapError, match="entered already"), lever:
        pass
