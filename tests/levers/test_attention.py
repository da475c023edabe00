"""Transport attention on loaded models: it is the model at zero, what it says, and undone."""

import math
import re
from pathlib import Path

import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.errors import InvalidInputError, TapError
from flowscope.levers import transport_attention
from flowscope.transport.iterations import (
    causal_columns,
    online_attention,
    prescribed_attention,
    sinkhorn_attention,
    unbalanced_attention,
)

BIDIRECTIONAL = ("bert", "albert", "vit", "dit", "sd3", "encoder")
CAUSAL = ("gpt2", "llama", "qwen3", "gemma2", "gemma3", "neox")
OPTIONS = {
    "sinkhorn": {},
    "unbalanced": {"relaxation": 2.0},
    "prescribed": {"strength": 0.7, "lookahead": True},
}


@torch.no_grad()
def output(model, batch):
    return models.first_tensor(model(**batch))


def peaked(model):
    """Attention of random weights is nearly flat: sharpen it, so that there is something to see."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if re.search(r"(query|q_proj|k_proj|key|to_q|to_k|c_attn)\.weight", name):
                parameter.mul_(4.0)
    return model


def lever(model, kind="unbalanced", iterations=3, **rest):
    options = {**OPTIONS[kind], **rest}
    return transport_attention(model, kind=kind, iterations=iterations, **options)


def attentions(model, batch, **options):
    """Every changed attention with the call's own logits, by a second listener."""
    seen = []
    with lever(model, **options) as acting, Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: seen.append((call.site, call.logits(), call.v)))
        model(**batch)
    return acting, seen


@pytest.mark.parametrize("name", models.READABLE)
@pytest.mark.parametrize("kind", OPTIONS)
def test_zero_iterations_are_bitwise_the_model(name, kind):
    model, batch = models.READABLE[name]()
    expected = output(model, batch)
    with lever(model, kind, 0) as acting:
        assert torch.equal(output(model, batch), expected)
    assert acting.summary() == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n in BIDIRECTIONAL for k in OPTIONS]
    + [(n, k) for n in CAUSAL for k in ("unbalanced", "prescribed")],
)
def test_it_acts_lowers_the_column_error_and_is_undone(name, kind):
    model, batch = models.READABLE[name]()
    expected = output(peaked(model), batch)
    with lever(model, kind) as acting:
        changed = output(model, batch)
    assert not torch.allclose(changed, expected, atol=1e-6)
    assert torch.isfinite(changed).all()
    assert torch.equal(output(model, batch), expected)
    table = acting.table
    assert (table["column_error"] < table["softmax_column_error"]).all()
    assert table["total_variation"].between(1e-7, 1).all()
    assert set(table["layer"]) >= {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "options", "attend"),
    [
        ("bert", {"kind": "sinkhorn"}, lambda z: sinkhorn_attention(z, 3)),
        ("bert", {"kind": "unbalanced"}, lambda z: unbalanced_attention(z, 3, 2.0)),
        ("llama", {"kind": "unbalanced"}, lambda z: online_attention(z, 3, 2.0)),
        ("llama", {"lookahead": True}, lambda z: unbalanced_attention(z, 3, 2.0)),
    ],
)
def test_the_output_is_that_of_attention_written_out(name, options, attend):
    """The lever against a listener that does the same by hand, grouped heads included."""
    model, batch = models.READABLE[name]()
    peaked(model)

    def by_hand(call):
        return attend(call.logits()) @ call.v.repeat_interleave(
            call.q.shape[1] // call.v.shape[1], 1
        )

    with Tap(model) as tap:
        tap.on_attention(by_hand)
        expected = output(model, batch)
    with lever(model, **options):
        torch.testing.assert_close(output(model, batch), expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_stays_causal_unless_lookahead_is_asked_for(name):
    """Another last token: earlier outputs move only with lookahead."""
    model, batch = models.READABLE[name]()
    other = batch["input_ids"].clone()
    other[:, -1] = (other[:, -1] + 7) % models.VOCAB
    moved = {}
    for lookahead in (False, True):
        with lever(peaked(model), lookahead=lookahead):
            first, second = output(model, batch), output(model, {"input_ids": other})
        moved[lookahead] = (first - second)[:, :-1].abs().max().item()
    assert moved[False] < 1e-6
    assert moved[True] > 1e-4


def test_prescribed_columns_of_a_causal_model_need_lookahead():
    model, batch = models.gpt2()
    words = r"At layer 0 .*lookahead=True.*kind=\"unbalanced\""
    with lever(model, "prescribed", lookahead=False), pytest.raises(InvalidInputError, match=words):
        output(model, batch)


def test_the_summary_is_what_can_be_recomputed():
    model, batch = models.bert()
    acting, seen = attentions(peaked(model), batch, kind="sinkhorn", layers=[1])
    (change,) = acting.summary()
    (z,) = [z for site, z, _ in seen if site.index == 1]
    softmax, new = torch.softmax(z, -1), sinkhorn_attention(z, 3)
    assert change.site.index == 1
    assert change.heads == (0, 1, 2, 3)
    assert change.queries == models.ROWS * models.LENGTH
    moved = 0.5 * (softmax - new).abs().sum(-1).mean((0, 2))
    left = (new.sum(-2) - 1).abs().mean((0, 2))
    before = (softmax.sum(-2) - 1).abs().mean((0, 2))
    for found, expected in (
        (change.total_variation, moved),
        (change.column_error, left),
        (change.softmax_column_error, before),
    ):
        torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-6)


def test_the_summary_is_a_mean_over_passes():
    model, batch = models.bert()
    rows = [{"input_ids": row[None]} for row in batch["input_ids"]]
    with lever(peaked(model), layers=[0]) as whole:
        output(model, batch)
    with lever(model, layers=[0]) as parts:
        for row in rows:
            output(model, row)
    for column in ("total_variation", "column_error", "softmax_column_error"):
        assert whole.table[column].tolist() == pytest.approx(parts.table[column].tolist(), rel=1e-5)
    assert whole.summary()[0].queries == parts.summary()[0].queries


def test_only_the_chosen_layer_is_changed():
    model, batch = models.gpt2()
    peaked(model)
    outputs = {}
    for layers in ([0], [2], None):
        states = []
        with lever(model, layers=layers) as acting, Tap(model) as tap, torch.no_grad():
            tap.on_block(lambda event, keep=states: keep.append(event.hidden_out.clone()))
            model(**batch)
        outputs[str(layers)] = states
        assert set(acting.table["layer"]) == set(range(3) if layers is None else layers)
    plain = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: plain.append(event.hidden_out.clone()))
        model(**batch)
    assert torch.equal(outputs["[2]"][1], plain[1])
    assert not torch.equal(outputs["[2]"][2], plain[2])
    assert torch.equal(outputs["[0]"][0], outputs["None"][0])
    assert not torch.allclose(outputs["[0]"][0], plain[0], atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_only_the_chosen_heads_are_changed(name):
    """Heads 1 and 3 as with all heads, heads 0 and 2 bitwise the model's own (grouped keys too)."""
    model, batch = models.READABLE[name]()
    peaked(model)
    kinds = {"chain": "encoder.block"} if name == "t5" else {}
    every, some, own = [], [], []
    for heads, keep in ((None, every), ([3, 1], some)):
        acting = lever(model, layers=[0], heads=heads, **kinds)
        replace = acting._listen

        def kept(call, replace=replace, keep=keep):
            answer = replace(call)
            if answer is not None:
                keep.append(answer)
                own.append(call.output())
            return answer

        acting._listen = kept
        with acting:
            output(model, batch)
    torch.testing.assert_close(some[0][:, [1, 3]], every[0][:, [1, 3]])
    assert torch.equal(some[0][:, [0, 2]], own[0][:, [0, 2]])
    assert not torch.allclose(some[0][:, [1, 3]], own[0][:, [1, 3]], atol=1e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_balanced_attention_on_a_causal_model_is_refused_by_layer(name):
    model, batch = models.READABLE[name]()
    expected = output(model, batch)
    words = r"At layer 0 of .*first 1 of 12 columns.*Use unbalanced or prescribed attention"
    with lever(model, "sinkhorn"), pytest.raises(InvalidInputError, match=words):
        output(model, batch)
    assert torch.equal(output(model, batch), expected)


def test_prescribed_columns_are_reached_on_a_causal_model():
    model, batch = models.llama()
    columns = causal_columns(models.LENGTH, 0.3)
    with transport_attention(
        peaked(model), kind="prescribed", iterations=200, columns=columns, lookahead=True
    ) as acting:
        output(model, batch)
    assert acting.table["column_error"].max() < 1e-4
    assert acting.table["softmax_column_error"].min() > 1e-3
    bad = torch.ones(models.LENGTH)
    words = r"At layer 0 .*first 1 of 12 columns must lie strictly between 1 and 12"
    with (
        transport_attention(model, kind="prescribed", iterations=1, columns=bad, lookahead=True),
        pytest.raises(InvalidInputError, match=words),
    ):
        output(model, batch)


def test_strength_goes_from_the_model_to_the_columns_of_the_mask():
    model, batch = models.gpt2()
    expected, moved = output(peaked(model), batch), []
    for strength in (0.0, 0.5, 1.0):
        with transport_attention(
            model, kind="prescribed", iterations=30, strength=strength, lookahead=True
        ) as acting:
            found = output(model, batch)
        moved.append(acting.table["total_variation"].mean())
        if strength == 0:
            torch.testing.assert_close(found, expected)
    assert moved[0] < 1e-6 < moved[1] < moved[2]
    z = acting_logits(model, batch)
    reached = prescribed_attention(z, causal_columns(models.LENGTH), 30)
    assert acting.summary()[0].total_variation == pytest.approx(
        (0.5 * (reached - torch.softmax(z, -1)).abs().sum(-1)).mean((0, 2)).tolist(), rel=1e-3
    )


def acting_logits(model, batch):
    seen = []
    with Tap(model) as tap:
        tap.on_attention(lambda call: seen.append(call.logits()))
        output(model, batch)
    return seen[0]


@pytest.mark.parametrize(("name", "kind"), [("bert", "sinkhorn"), ("llama", "unbalanced"),
                                            ("gpt2", "prescribed"), ("gemma2", "prescribed"),
                                            ("gemma2", "unbalanced"),
                                            ("bert", "prescribed")])  # fmt: skip
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sequence_gives_what_it_gives_alone(name, kind, side):
    model, batch = models.READABLE[name]()
    ids, length = batch["input_ids"], 8
    live = torch.arange(models.LENGTH) < length
    if side == "left":
        live = live.flip(0)
    mask = torch.stack([torch.ones_like(live), live]).long()
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    alone = {"input_ids": ids[1:, live], "position_ids": torch.arange(length)[None]}
    with lever(peaked(model), kind):
        expected = output(model, alone)
        found = output(model, {"input_ids": ids, "attention_mask": mask, "position_ids": positions})
        plain = output(model, {"input_ids": ids[:1]})
    torch.testing.assert_close(found[1:, live], expected, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(found[:1], plain, rtol=1e-4, atol=2e-5)


class Biased(nn.Module):
    """One attention layer a block, masked by a finite number, as older libraries do."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = _attend(layer, x, self.mask)
        return x


def _attend(layer, x, mask):
    q = layer(x).unflatten(-1, (2, 4)).transpose(1, 2)
    return x + nn.functional.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("number", [-1e4, torch.finfo(torch.float32).min, -math.inf])
def test_a_finite_mask_is_read_as_a_mask(number):
    """Iterations undo a constant on a column: taken at its word, −10⁴ would revive the key."""
    mask = torch.zeros(1, 1, 1, 6)
    mask[..., 4:] = number
    model, batch = Block(Biased(mask)), {"x": torch.randn(1, 6, 8)}
    with transport_attention(model, kind="sinkhorn", iterations=4):
        found = output(model, batch)
    model.inner.mask = None
    with transport_attention(model, kind="sinkhorn", iterations=4):
        expected = output(model, {"x": batch["x"][:, :4]})
    torch.testing.assert_close(found[:, :4], expected)


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_widened_inside(dtype):
    model, batch = models.llama()
    with lever(peaked(model)):
        expected = output(model, batch)
    with lever(model.to(dtype)) as acting:
        found = output(model, batch)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1 * expected.std().item())
    errors = acting.table["column_error"]
    assert (errors < acting.table["softmax_column_error"]).all()


def test_a_cached_step_is_refused():
    model, batch = models.gpt2()
    with torch.no_grad():
        cache = model(**batch, use_cache=True).past_key_values
    words = "At layer 0 .*1 queries meet 13 keys.*use_cache=False"
    with lever(model), pytest.raises(TapError, match=words), torch.no_grad():
        model(input_ids=batch["input_ids"][:, :1], past_key_values=cache)


def test_cross_attention_is_left_alone_unless_asked_for():
    model, batch = models.pixart()
    with lever(peaked(model), "sinkhorn") as acting:
        output(model, batch)
    assert [c.site.call for c in acting.summary()] == [0, 0, 0]
    with lever(model, "sinkhorn", cross=True) as acting:
        output(model, batch)
    assert [c.site.call for c in acting.summary()] == [0, 1, 0, 1, 0, 1]


def test_a_chain_can_be_chosen():
    model, batch = models.t5()
    with lever(model, "sinkhorn", chain="encoder.block") as acting:
        output(model, batch)
    assert set(acting.table["chain"]) == {"encoder.block"}
    with lever(model, "sinkhorn"), pytest.raises(InvalidInputError, match=r"decoder\.block"):
        output(model, batch)


def test_dropout_of_attention_is_honoured():
    """In training mode: mean over draws tends to the output without dropout."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    x, seen = torch.randn(1, 5, 8), []
    for training in (False, True):
        model.train(training)
        acting = transport_attention(model, kind="sinkhorn", iterations=4)
        replace, draws = acting._listen, []
        acting._listen = lambda call, r=replace, d=draws: d.append(r(call)) or d[-1]
        with acting, torch.no_grad():
            for _ in range(400 if training else 1):
                torch.manual_seed(len(draws))
                model(x)
        seen.append(torch.stack(draws))
    assert (seen[1].std(0) > 0.01).all()
    spread = seen[1].std(0) / math.sqrt(400)
    assert ((seen[1].mean(0) - seen[0][0]).abs() < 5 * spread).all()


def test_gradients_flow_to_the_weights_and_agree_with_differences():
    model, batch = models.gpt2()
    peaked(model).double()
    weight = model.transformer.h[0].attn.c_attn.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)).double()

    def loss():
        with lever(model, kind="prescribed"):
            return model(**batch).logits.square().mean()

    (gradient,) = torch.autograd.grad(loss(), weight)
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight.add_(sign * 1e-5 * direction)
            values.append(loss())
            weight.sub_(sign * 1e-5 * direction)
    slope = (values[0] - values[1]) / 2e-5
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-9)


def test_gradients_are_finite_through_padding():
    model, batch = models.llama()
    mask = torch.ones_like(batch["input_ids"])
    mask[1, :5] = 0
    with lever(model, kind="prescribed"):
        logits = model(**batch, attention_mask=mask).logits
    logits[mask.bool()].square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_it_is_undone_after_an_exception():
    model, batch = models.gemma2()
    expected = output(model, batch)

    def fail(event):
        raise RuntimeError("mine")

    with lever(model), Tap(model) as tap:
        tap.on_block(fail)
        with pytest.raises(RuntimeError, match="mine"):
            output(model, batch)
    assert torch.equal(output(model, batch), expected)


def test_a_lever_can_be_used_again_and_not_twice_at_once():
    model, batch = models.gpt2()
    acting = lever(model)
    for _ in range(2):
        with acting:
            output(model, batch)
            with pytest.raises(TapError, match="entered already"):
                acting.__enter__()
        assert acting.summary()[0].queries == models.ROWS * models.LENGTH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "softmax"}, "kind must be one of .*got 'softmax'"),
        ({"kind": "sinkhorn", "relaxation": 1.0}, "takes no option of its own; got relaxation"),
        ({"kind": "unbalanced"}, "takes relaxation; got none"),
        ({"kind": "prescribed"}, "takes columns or strength; got none"),
        (
            {"kind": "prescribed", "strength": 0.5, "columns": torch.ones(3)},
            "takes columns or strength; got columns, strength",
        ),
        ({"kind": "unbalanced", "relaxation": 0.0}, "positive and finite; got 0.0"),
        ({"kind": "prescribed", "strength": 1.5}, r"lie in \[0, 1\]; got 1.5"),
        ({"kind": "sinkhorn", "iterations": -1}, "whole number >= 0; got -1"),
        ({"kind": "sinkhorn", "layers": []}, "layers must be None"),
        ({"kind": "sinkhorn", "heads": [-1]}, "heads must be None"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        transport_attention(nn.Linear(1, 1), **{"iterations": 1, **options})


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
    with lever(model, **options), pytest.raises(InvalidInputError, match=words):
        output(model, batch)


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "transport-attention.md"


def test_the_how_to_page_runs_and_its_numbers_are_its_own():
    """One iteration of each way; the whole table takes a minute and comes from the same lines."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("ITERATIONS = (0, 1, 3, 10)") == 1
    model, batch = models.gpt2()
    names = {"model": model, "batch": batch}
    for snippet in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(snippet.replace("(0, 1, 3, 10)", "(0, 1)"), str(PAGE), "exec"), names)
    assert set(names["lever"].table["head"]) == {2}
    for name in names["ways"]:
        (line,) = [row for row in text.splitlines() if row.startswith(f"| {name} |")]
        printed = [float(cell) for cell in line.split("|")[2:4]]
        found = [names["results"][name, k][0] for k in (0, 1)]
        assert found == pytest.approx(printed, rel=2e-3)
