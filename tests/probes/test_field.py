"""The field probe: its parts sum to the model's own writes, its numbers are those of the laws."""

import numpy as np
import pytest
import torch
from tests import networks as models
from torch import nn

from flowscope import Tap
from flowscope.pde import attention_parts, collapse, energy_balance, spread_balance
from flowscope.probes import PlainBatch, tap_pass
from flowscope.probes.field.field_probe import COLUMNS, FieldProbe, _shuffled
from flowscope.probes.field.output_path import OutputPath, output_path
from flowscope.records import Unavailable


def piece_of(model, batch, **options):
    rows = len(next(iter(batch.values())))
    made = PlainBatch(inputs=batch, prompts=np.arange(rows), mask=torch.zeros(0, 0))
    probe = FieldProbe(model, **options)
    [piece] = tap_pass(model, [made], {"field": probe})["field"]
    return piece, probe


def column(piece, name):
    return piece.arrays["values"][:, 1:, COLUMNS.index(name)]


def heard(model, batch):
    """Attention calls and block passes of one pass."""
    calls, blocks = [], []
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(lambda call: calls.append((call.probabilities(), call.v, call.output())))
        tap.on_block(blocks.append)
        model(**batch)
    return calls, blocks


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma3", "dit", "vit"])
def test_the_path_from_attention_to_its_write_is_found(name):
    model, batch = models.READABLE[name]()
    model = model.double()
    batch = {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}
    calls, blocks = heard(model, batch)
    for (P, v, output), event in zip(calls, blocks, strict=True):
        [write] = [w.tensor for w in event.writes if w.kind == "attention"]
        path = output_path(model.get_submodule(event.site.path), output, write)
        assert isinstance(path, OutputPath), path.reason
        rounding = 1e-6 if name == "gemma3" else 1e-12  # Gemma's norms are single precision
        assert path.error < rounding
        v = v.repeat_interleave(P.shape[1] // v.shape[1], 1)
        parts = attention_parts(P, v, [0])
        whole = sum(map(path, (parts.part_self, parts.part_others, parts.part_sink)))
        torch.testing.assert_close(whole + path.bias(output), write, rtol=rounding, atol=rounding)


def test_a_map_that_is_no_scale_is_not_taken_for_a_path():
    torch.manual_seed(0)
    scope, output = nn.Linear(8, 8, bias=False), torch.randn(2, 2, 5, 4)
    projected = scope(output.transpose(1, 2).flatten(-2))
    assert isinstance(output_path(scope, output, 0.3 * projected), OutputPath)
    assert isinstance(output_path(scope, output, torch.tanh(3 * projected)), Unavailable)
    assert isinstance(output_path(scope, output, projected.flip(1)), Unavailable)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_numbers_are_those_of_the_laws(name):
    model, batch = models.READABLE[name]()
    piece, _ = piece_of(model, batch)
    calls, blocks = heard(model, batch)
    for layer, event in enumerate(blocks):
        row, chosen = 1, slice(1, None)
        before, after = event.hidden_in[row, chosen], event.hidden_out[row, chosen]
        writes = [w.tensor[row, chosen] for w in event.writes]
        energy, spread = energy_balance(before, writes), spread_balance(before, writes)
        wanted = {
            "tokens": len(before),
            "norm": after.norm(dim=-1).quantile(0.5),
            "energy_attention": (energy.work[0] / energy.energy).quantile(0.5),
            "energy_feed_forward": (energy.work[1] / energy.energy).quantile(0.5),
            "radial_feed_forward": energy.radial[1].quantile(0.5),
            "angular_attention": energy.angular[0].quantile(0.5),
            "spread_attention": spread.shares[0] / spread.spread,
            "spread_feed_forward": spread.shares[1] / spread.spread,
            "cosine_feed_forward": spread.cosine_changes[1],
            "mean_cosine": collapse(after).mean_cosine,
            "effective_rank": collapse(after).effective_rank,
        }
        for key, value in wanted.items():
            assert column(piece, key)[row, layer] == pytest.approx(
                float(value), rel=1e-4, abs=1e-6
            ), key
        P = calls[layer][0][row]
        assert column(piece, "leak")[row, layer] == pytest.approx(
            float(P[:, chosen, 0].mean(0).quantile(0.5)), rel=1e-4
        )


def test_shares_of_the_spread_sum_to_its_change():
    model, batch = models.llama()
    piece, _ = piece_of(model, batch)
    _, blocks = heard(model, batch)

    def spread(x):
        return (x - x.mean(0)).square().sum()

    for layer, event in enumerate(blocks):
        for row in range(2):
            change = spread(event.hidden_out[row, 1:]) / spread(event.hidden_in[row, 1:]) - 1
            shares = [
                column(piece, f"spread_{kind}")[row, layer]
                for kind in ("attention", "feed_forward")
            ]
            assert sum(shares) == pytest.approx(float(change), rel=1e-4, abs=1e-6)


def test_massive_tokens_are_left_out_and_listed():
    model, _batch = models.llama()
    with torch.no_grad():
        model.get_input_embeddings().weight[7] *= 1e4
    ids = torch.randint(8, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    ids[1, 5] = 7
    piece, _ = piece_of(model, {"input_ids": ids})
    assert column(piece, "massive_tokens").tolist() == [[0, 0, 0], [1, 1, 1]]
    assert column(piece, "tokens").tolist() == [[11] * 3, [10] * 3]
    found = piece.arrays["massive"]
    assert found[:, :3].tolist() == [[1, layer, 5] for layer in range(3)]
    assert (found[:, 3] > 20).all()
    assert np.isfinite(column(piece, "norm")).all()
    assert column(piece, "norm").max() < 1e3


def test_padding_does_not_count():
    model, batch = models.llama()
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, 8:] = False
    inputs = {**batch, "attention_mask": mask.long()}
    made = PlainBatch(inputs=inputs, prompts=np.arange(2), mask=mask)
    [piece] = tap_pass(model, [made], {"field": FieldProbe(model)})["field"]
    short, _ = piece_of(model, {"input_ids": batch["input_ids"][1:, :8]})
    left_out = {"spread_permuted"}  # other random keys
    for name in set(COLUMNS) - left_out:
        np.testing.assert_allclose(
            column(piece, name)[1], column(short, name)[0], rtol=1e-3, atol=1e-5, err_msg=name
        )


def test_a_special_first_token_is_a_sink():
    model, batch = models.llama()
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, 0] = False  # a BOS: no text, but keys look at it
    made = PlainBatch(inputs=batch, prompts=np.arange(2), mask=mask)
    [piece] = tap_pass(model, [made], {"field": FieldProbe(model)})["field"]
    calls, _ = heard(model, batch)
    for layer, (P, _, _) in enumerate(calls):
        on_sinks = P[1, :, 2:, :2].sum(-1).mean(0)
        assert column(piece, "leak")[1, layer] == pytest.approx(float(on_sinks.quantile(0.5)))


@pytest.mark.parametrize(
    ("name", "missing"), [("bert", True), ("neox", True), ("vit", False), ("dit", False)]
)
def test_other_families_have_what_they_can_have(name, missing):
    model, batch = models.READABLE[name]()
    piece, _ = piece_of(model, batch)
    assert np.isfinite(column(piece, "mean_cosine")).all()
    assert np.isnan(column(piece, "energy_attention")).all() == missing
    assert np.isnan(column(piece, "part_self")).all() == missing


def test_half_precision_is_read_within_its_rounding():
    model, batch = models.llama()
    whole, _ = piece_of(model, batch)
    half, _ = piece_of(model.bfloat16(), batch)
    for name in ("norm", "mean_cosine", "part_others", "angular_attention"):
        np.testing.assert_allclose(column(half, name), column(whole, name), rtol=0.15, atol=0.03)


def test_permuted_keys_keep_sharpness_support_and_diagonal():
    logits = torch.randn((2, 3, 7, 7), generator=torch.Generator().manual_seed(0))
    P = torch.softmax(logits.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf), -1)
    sink = torch.zeros(2, 1, 1, 7, dtype=torch.bool)
    sink[..., 2] = True
    mixed = _shuffled(P, torch.arange(7), sink, torch.Generator().manual_seed(1))
    torch.testing.assert_close(mixed[..., 2], P[..., 2])
    torch.testing.assert_close(mixed.sort(-1).values, P.sort(-1).values)
    torch.testing.assert_close(mixed.diagonal(dim1=-2, dim2=-1), P.diagonal(dim1=-2, dim2=-1))
    assert not mixed.triu(1).any()
    assert not torch.allclose(mixed, P)


def test_the_first_row_is_the_state_that_enters():
    model, batch = models.llama()
    piece, _ = piece_of(model, batch)
    _, blocks = heard(model, batch)
    start = piece.arrays["values"][:, 0]
    found = collapse(blocks[0].hidden_in[1, 1:])
    assert start[1, COLUMNS.index("mean_cosine")] == pytest.approx(
        float(found.mean_cosine), rel=1e-4
    )
    assert np.isnan(start[:, COLUMNS.index("energy_attention")]).all()


def test_a_prompt_of_few_tokens_says_nothing():
    model, batch = models.llama()
    piece, _ = piece_of(model, {"input_ids": batch["input_ids"][:, :4]})
    assert (column(piece, "tokens") == 3).all()
    assert np.isnan(column(piece, "mean_cosine")).all()


def test_self_attention_is_split_where_a_block_has_cross_attention_too():
    model, batch = models.t5()
    piece, _ = piece_of(model, batch)
    for name in ("part_self", "part_others", "part_sink", "spread_alone", "spread_permuted"):
        assert np.isfinite(column(piece, name)).all(), name
    _, blocks = heard(model, batch)
    event = next(event for event in blocks if len(event.writes) == 3)  # of the decoder
    assert event.writes[1].kind == "cross_attention"
    state, write = event.hidden_in[0, 1:], event.writes[0].tensor[0, 1:]
    alone = spread_balance(state, [write])
    assert column(piece, "spread_alone")[0, 0] == pytest.approx(
        float(alone.shares[0] / alone.spread), rel=1e-4
    )
