"""Errors of forecasts: zero drift is persistence, the truth leaves the floor, bounds hold."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests import networks as models

from flowscope import Tap
from flowscope.probes import LogitReadout, PathProbe, Rows
from flowscope.probes.layers.forecasts import Forecast, forecast_errors, local_statistics


@pytest.fixture(scope="module")
def path():
    model, batch = models.llama()
    with torch.no_grad():  # random weights hardly move: make the branches count
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.mul_(6)
    probe = PathProbe(positions=6, between=True)
    with Tap(model) as tap, torch.no_grad():
        mask = torch.ones_like(batch["input_ids"])
        probe.begin(Rows.of_mask(np.arange(len(mask)), mask))
        tap.on_block(probe.update)
        model(**batch)
        readout = LogitReadout(tap.anatomy.tail)
    probe.end()
    hidden, between = (torch.from_numpy(probe.arrays()[f"path_{n}"]) for n in ("hidden", "between"))
    return readout, hidden, between


def _errors(path, rank=3, **forecasts):
    readout, hidden, between = path
    with torch.no_grad():
        axes = readout.coordinates(hidden.flatten(0, 1), rank)
        y = axes.reduced(hidden)
    said = {name: make(y) for name, make in forecasts.items()}
    return forecast_errors(readout, axes, hidden, said, between)


def test_zero_drift_is_persistence(path):
    def stay(y):
        return Forecast(one_step=y[:, :-1], onward=y[:, :1].expand_as(y[:, 1:]))

    found = _errors(path, stay=stay)
    assert_allclose(found["one_stay"], found["one_persistence"], atol=1e-6)
    assert_allclose(found["onward_stay"], found["onward_persistence"], atol=1e-6)
    assert found["one_persistence"].min() > 1e-3, "the model moves"


def test_the_first_step_is_the_same_at_both_horizons(path):
    found = _errors(path)
    assert_allclose(found["one_persistence"][:, 0], found["onward_persistence"][:, 0])
    assert_allclose(found["one_floor"][:, 0], found["onward_floor"][:, 0])


def test_enough_axes_leave_no_floor(path):
    few, many = (_errors(path, rank=rank)["onward_floor"] for rank in (2, 32))
    assert few.mean() > 0.01
    assert many.max() < 1e-3


def test_the_line_ends_at_the_last_layer(path):
    assert_allclose(_errors(path)["onward_line"][:, -1], 0.0, atol=1e-6)


def test_no_step_exceeds_its_bounds_and_writes_add_up_to_at_least_the_step(path):
    found = _errors(path)
    moved = found["one_persistence"]
    assert (found["writes"] >= found["osc"] - 1e-5).all()
    assert (moved <= np.tanh(found["osc"] / 4) + 1e-6).all()
    assert (moved <= found["restricted"] + 1e-6).all()
    assert_allclose(found["first_order"], moved, rtol=0.5)


def test_without_writes_there_is_no_budget(path):
    readout, hidden, _ = path
    with torch.no_grad():
        axes = readout.coordinates(hidden.flatten(0, 1), 3)
    assert np.isnan(forecast_errors(readout, axes, hidden, {})["writes"]).all()


def test_local_statistics_are_those_of_the_law_and_of_the_step_before(path):
    readout, hidden, _ = path
    with torch.no_grad():
        y = readout.coordinates(hidden.flatten(0, 1), 5).reduced(hidden)
        found = local_statistics(readout, hidden[:, :-1], y)
        p = readout.logits(hidden[:, :-1]).double().softmax(-1)
    assert_allclose(found[..., 0], -(p * p.log()).sum(-1), rtol=1e-4)
    assert_allclose(found[..., 1], 1 - p.amax(-1), rtol=1e-3, atol=1e-5)
    assert (found[:, 0, 2:] == 0).all()
    assert_allclose(found[:, 1, 2:], (y[:, 1] - y[:, 0])[:, :4])
