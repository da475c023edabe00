"""Probes against the reference mathematics on the model's own states; merging is exact."""

import numpy as np
import pytest
import torch
from tests import networks as models

from flowscope import Tap
from flowscope.errors import TapError
from flowscope.flows import DepthMeter, state_statistics, step_statistics
from flowscope.probes import (
    AttentionEntropyProbe,
    DepthProbe,
    HiddenProbe,
    Rows,
    pooled_readout,
    positions_readout,
)
from flowscope.probes.heads import attention


class Given:
    """A readout that returns the states themselves."""

    pooled = False

    def __init__(self, width):
        self.width = width

    def __call__(self, hidden, out=None):
        return hidden


def _batch(name="llama"):
    model, batch = models.READABLE[name]()
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    return model, batch, mask


@torch.no_grad()
def _measured(model, batch, mask, prompts=(0, 1), pooled=False):
    states = []
    with Tap(model) as tap:
        tap.on_block(lambda e: states.extend([e.hidden_in] * (e.site.index == 0) + [e.hidden_out]))
        model(**batch)
        tail = tap.anatomy.tail
    readout = pooled_readout(tail) if pooled else positions_readout(tail)
    probe = DepthProbe(readout)
    probe.begin(Rows.of_mask(np.array(prompts), mask))
    with Tap(model) as tap:
        tap.on_block(probe.update)
        model(**batch)
    probe.end()
    return probe, [readout(h if pooled else h[mask]) for h in states]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "bert"])
def test_every_statistic_is_the_reference_on_the_models_own_lens(name):
    model, batch, mask = _batch(name)
    probe, logits = _measured(model, batch, mask)
    found = probe.arrays()
    for layer, z in enumerate(logits):
        state = state_statistics(z.double())
        for field in ("state_sq", "entropy", "tail_mass", "mobility_frobenius", "argmax"):
            np.testing.assert_allclose(
                found[field][:, layer], getattr(state, field).numpy(), rtol=1e-4, atol=1e-9
            )
        if layer:
            step = step_statistics(logits[layer - 1].double(), z.double())
            for field in ("step_sq", "oscillation", "total_variation", "first_order"):
                np.testing.assert_allclose(
                    found[field][:, layer - 1], getattr(step, field).numpy(), rtol=1e-4, atol=1e-9
                )


def test_padding_does_not_count():
    model, batch, mask = _batch()
    mask[1, 7:] = False
    whole, _ = _measured(model, {**batch, "attention_mask": mask.long()}, mask)
    found = whole.arrays()
    assert len(found["prompt"]) == 12 + 7
    assert found["position"][found["prompt"] == 1].tolist() == list(range(7))
    alone, _ = _measured(
        model, {"input_ids": batch["input_ids"][1:, :7]}, mask[1:, :7], prompts=(1,)
    )
    np.testing.assert_allclose(
        found["total_variation"][found["prompt"] == 1],
        alone.arrays()["total_variation"],
        rtol=1e-3,
        atol=1e-6,
    )


def test_merging_in_any_order_is_the_whole():
    model, batch, mask = _batch()
    halves = [
        _measured(model, {"input_ids": batch["input_ids"][i : i + 1]}, mask[i : i + 1], (i,))[0]
        for i in (0, 1)
    ]
    orders = []
    for first, second in (halves, halves[::-1]):
        merged = DepthProbe(Given(61))
        merged.merge(first)
        merged.merge(second)
        orders.append(merged.arrays())
    for name in orders[0]:
        np.testing.assert_array_equal(orders[0][name], orders[1][name])
    whole = _measured(model, batch, mask)[0].arrays()
    np.testing.assert_allclose(orders[0]["entropy"], whole["entropy"], rtol=1e-4, atol=1e-6)


def test_a_pooled_model_has_one_row_per_image():
    model, batch, _ = _batch("vit")
    probe, logits = _measured(model, batch, torch.ones(2, 1, dtype=torch.bool), pooled=True)
    found = probe.arrays()
    assert found["entropy"].shape == (2, 4)
    expected = state_statistics(logits[-1].double()).entropy
    np.testing.assert_allclose(found["entropy"][:, -1], expected.numpy(), rtol=1e-4)


def test_hidden_variation_is_that_of_the_states():
    model, batch, mask = _batch("bert")
    probe, states = HiddenProbe(), []
    probe.begin(Rows.of_mask(np.arange(2), mask))
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(probe.update)
        tap.on_block(lambda e: states.append((e.hidden_in, e.hidden_out)))
        model(**batch)
    probe.end()
    found = probe.arrays()
    for layer, (before, after) in enumerate(states):
        expected = (after - before).square().sum(-1).flatten()
        np.testing.assert_allclose(found["step_sq"][:, layer], expected.numpy(), rtol=1e-5)
        expected = after.square().sum(-1).flatten()
        np.testing.assert_allclose(found["state_sq"][:, layer + 1], expected.numpy(), rtol=1e-5)


def test_attention_entropy_shares_agree_with_eager_attention():
    model, batch, mask = _batch()
    mask[1, 7:] = False
    batch["attention_mask"] = mask.long()
    probe = AttentionEntropyProbe(3, chunk=5)
    probe.begin(np.arange(2), mask)
    with Tap(model) as tap, torch.no_grad():
        tap.on_attention(probe.update)
        model(**batch)
    probe.end()
    found = probe.arrays()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(**batch, output_attentions=True).attentions
    visible = torch.arange(1, 13).float()
    for layer, p in enumerate(attentions):
        share = torch.special.entr(p).sum(-1) / visible.log().clamp_min(1e-9)
        for row, length in ((0, 12), (1, 7)):
            expected = share[row, :, 1:length].sum(-1)
            np.testing.assert_allclose(
                found["head_entropy"][row, layer], expected.numpy(), rtol=1e-4
            )
            assert (found["head_rows"][row, layer] == length - 1).all()


def test_a_probe_that_has_not_begun_says_so():
    probe = DepthProbe(Given(7))
    with pytest.raises(TapError, match="begin a batch"):
        probe.update(None)
    assert probe.arrays() == {}


@torch.no_grad()
def test_logits_of_some_rows_are_lent_at_the_newest_state_alone():
    """On a GPU also at the one before; of rows that are not read, never."""
    model, batch, mask = _batch()
    mask[1, 7:] = False
    some = mask.clone()
    some[:, ::3] = False
    with Tap(model) as tap:
        tap.on_block(lambda event: None)
        model(**batch)
        readout = positions_readout(tap.anatomy.tail)
    probe, rows = DepthProbe(readout), Rows.of_mask(np.array([0, 1]), some)
    assert probe.places_of(rows) is None
    probe.begin(Rows.of_mask(np.array([0, 1]), mask))
    places = probe.places_of(rows)
    assert probe.places_of(Rows.of_mask(np.array([0, 1]), torch.ones_like(mask))) is None
    assert probe.places_of(Rows.of_mask(np.array([0, 1]), some[:, :5])) is None
    assert probe.held_logits(0, places) is None
    lent = []

    def read(event):
        probe.update(event)
        state = event.site.index + 1
        expected = readout(event.hidden_out[some])
        lent.append((probe.held_logits(state, places) - expected).abs().max())
        assert probe.held_logits(state + 1, places) is None
        assert probe.held_logits(state - 2, places) is None

    with Tap(model) as tap:
        tap.on_block(read)
        model(**batch)
    assert max(lent) < 1e-5
    probe.end()
    assert probe.held_logits(len(lent), places) is None


def test_lent_states_are_counted_back_from_the_newest(monkeypatch):
    probe, asked = DepthProbe(Given(4)), []
    probe.begin(Rows.of_mask(np.array([0]), torch.ones(1, 3, dtype=torch.bool)))
    for _ in range(3):
        probe._advance(torch.randn(1, 3, 4))
    monkeypatch.setattr(DepthMeter, "held", lambda self, rows, before: asked.append(before))
    for state in range(5):
        probe.held_logits(state, torch.tensor([1]))
    assert asked == [True, False]  # states 1 and 2; 0 is gone, 3 and 4 are to come


@pytest.mark.parametrize("hidden", [-torch.inf, torch.finfo(torch.float32).min])
def test_a_query_that_sees_nothing_has_no_entropy_and_spoils_no_sum(hidden):
    logits = torch.zeros(1, 1, 3, 4)
    logits[..., 0, :] = hidden
    logits[..., 1, 1:] = hidden
    share, counted = attention._entropy_share(logits)
    assert counted.flatten().tolist() == [False, False, True]
    np.testing.assert_allclose(share.flatten(), [0.0, 0.0, 1.0], rtol=1e-6)
