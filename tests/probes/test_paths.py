"""Sampled paths are the model's own states, and their coordinates are those of its logits."""

import numpy as np
import pytest
import torch
from tests import networks as models
from torch.testing import assert_close

from flowscope import Tap
from flowscope.errors import InvalidInputError
from flowscope.probes import LogitReadout, PathProbe, Rows

LENGTH = 12


def _read(name, **options):
    model, batch = models.READABLE[name]()
    ids = next(iter(batch.values()))
    probe, states = PathProbe(**options), []
    with Tap(model) as tap, torch.no_grad():
        mask = torch.ones(ids.shape[:2])
        probe.begin(Rows.of_mask(np.arange(len(mask)), mask))
        tap.on_block(probe.update)
        tap.on_block(lambda event: states.append(event))
        output = model(**batch)
        tail = tap.anatomy.tail
    probe.end()
    return probe.arrays(), states, tail, output


def test_a_path_is_the_residual_stream_of_one_token():
    arrays, states, tail, output = _read("llama", positions=3)
    p, q = arrays["path_prompt"], arrays["path_position"]
    assert len(p) == 3 * len(output.logits)
    along = torch.stack([states[0].hidden_in, *(s.hidden_out for s in states)], 2)
    assert_close(torch.from_numpy(arrays["path_hidden"]), along[p, q])
    last = torch.from_numpy(arrays["path_hidden"][:, -1])
    assert_close(LogitReadout(tail).logits(last), output.logits[p, q], rtol=1e-4, atol=1e-5)


def test_fewer_positions_are_a_subset_of_more():
    few, many = (_read("llama", positions=k)[0] for k in (2, 5))
    places = [set(zip(a["path_prompt"], a["path_position"], strict=True)) for a in (few, many)]
    assert places[0] < places[1]


def test_states_between_the_writes_lead_from_one_layer_to_the_next():
    arrays, states, *_ = _read("llama", positions=2, between=True)
    p, q = arrays["path_prompt"], arrays["path_position"]
    first = [s.hidden_in[p, q] + s.writes[0].tensor[p, q] for s in states]
    assert_close(torch.from_numpy(arrays["path_between"][:, :, 0]), torch.stack(first, 1))


def test_a_post_norm_model_has_no_states_between_writes():
    assert "path_between" not in _read("bert", positions=2, between=True)[0]


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2"])
@torch.no_grad()
def test_coordinates_and_axes_give_the_principal_part_of_the_logits(name):
    arrays, _, tail, _ = _read(name, positions=8)
    hidden = torch.from_numpy(arrays["path_hidden"]).flatten(0, 1)
    readout = LogitReadout(tail)
    found = readout.coordinates(hidden, 4)
    assert found.route == ("streamed" if name == "gemma2" else "gram")
    z = readout.logits(hidden).double()
    z = z - z.mean(-1, keepdim=True)
    s = torch.linalg.svdvals(z - z.mean(0))
    best = s[:4] ** 2 / (s**2).sum()
    if found.route == "gram":
        assert_close(torch.from_numpy(found.shares), best, rtol=1e-4, atol=1e-6)
    else:  # a power iteration on random weights, whose spectrum is flat: nearly as much variance
        assert 0.98 * best.sum() < found.shares.sum() <= best.sum() * (1 + 1e-4)
    B = found.axes.double()
    assert_close(B.mT @ B, torch.eye(4).double(), atol=1e-5, rtol=0)
    assert_close(
        ((z - z.mean(0)) @ B).square().sum(0) / (s**2).sum(), torch.from_numpy(found.shares)
    )
    y = found.reduced(hidden)
    assert_close(y, z @ B, atol=2e-4, rtol=1e-4)
    assert_close(found.lifted(y).double(), z @ B @ B.mT, atol=1e-4, rtol=1e-4)


def test_a_pooled_output_has_no_coordinates():
    model, batch = models.vit()
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda event: None)
        model(**batch)
        tail = tap.anatomy.tail
    with pytest.raises(InvalidInputError, match="mixes positions"):
        LogitReadout(tail)


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2"])
@torch.no_grad()
def test_a_squared_step_counts_what_lies_outside_the_coordinates(name):
    arrays, _, tail, _ = _read(name, positions=8)
    hidden = torch.from_numpy(arrays["path_hidden"])
    before, after = hidden[:, 0], hidden[:, -1]
    readout = LogitReadout(tail)
    step = readout.logits(after).double() - readout.logits(before).double()
    step = step - step.mean(-1, keepdim=True)
    whole = readout.squared_steps(before, after)
    assert_close(whole, step.square().sum(-1), rtol=1e-3, atol=1e-6)
    axes = readout.coordinates(hidden.flatten(0, 1), 4)
    part = (axes.reduced(after) - axes.reduced(before)).square().sum(-1)
    assert (part < whole).all()
