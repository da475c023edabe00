"""What an audit will take is said beforehand, from timings of the model itself."""

import pytest
from tests import networks as models

from flowscope import doctor
from flowscope.instruments.audit.config import AuditConfig
from flowscope.models.reading import cost as module
from flowscope.models.reading.cost import Estimate, measuring_cost
from flowscope.records import Unavailable

LISTENING = {"llama": "name", "bert": "name", "gemma2": "interface", "encoder": "mode"}


def _cost(**changes):
    values = {"forward": 1e-3, "output": 1e-4, "states": 5, "width": 100, "weights": 10}
    values |= {"attention": 1e-2, "compared": 5e-3}
    return measuring_cost(**{**values, "device": "cpu", **changes})


def test_the_parts_grow_with_what_they_are_made_of():
    cost = _cost()
    assert cost.outputs == pytest.approx(cost.prompts * cost.tokens * 5 * 1e-4)
    assert _cost(states=10).outputs == pytest.approx(2 * cost.outputs)
    assert _cost(forward=2e-3).forward == pytest.approx(2 * cost.forward)
    assert cost.attention == pytest.approx(cost.prompts * 4 * 1e-2)
    assert cost.compared == pytest.approx(cost.prompts * 4 * 5e-3)
    own = cost.forward + cost.outputs
    control = (own + cost.attention / 2) * 8 / 64
    assert cost.seconds == pytest.approx(own + cost.attention + cost.compared + control)
    assert _cost(weights=1010).bytes - cost.bytes == 2 * 1000  # the control is as large


def test_logits_of_a_batch_are_bounded():
    wide = _cost(width=10**6)
    assert wide.bytes == 2 * 10 + 4 * 128 * 10**6  # one prompt, which is more than 2**26
    assert _cost(width=100).bytes == 2 * 10 + 4 * 8 * 128 * 100


@pytest.mark.parametrize("name", LISTENING)
def test_the_doctor_says_how_attention_is_heard(name):
    model, batch = models.READABLE[name]()
    examination = doctor(model, inputs=batch if name == "encoder" else None)
    assert examination.listening == examination.to_json()["listening"] == LISTENING[name]


def test_the_doctor_estimates_an_audit_where_there_is_one():
    examination = doctor(models.llama()[0])
    estimate = examination.estimate
    assert isinstance(estimate, Estimate)
    parts = (estimate.forward, estimate.outputs, estimate.attention, estimate.compared)
    assert min(parts) > 0
    assert sum(parts) < estimate.seconds
    assert examination.to_json()["estimate"]["tokens"] == 128
    assert "measures for about" in dict(examination.remarks)["estimate"]


def test_the_estimate_counts_what_an_audit_reads_by_default():
    settings = AuditConfig.model_fields
    assert settings["curvature_pairs"].default == module.PAIRS
    assert settings["locking_tokens"].default == module.COMPARED


@pytest.mark.parametrize("name", ["vit", "dit"])
def test_no_estimate_without_an_output_at_every_position(name):
    examination = doctor(models.READABLE[name]()[0])
    assert isinstance(examination.estimate, Unavailable)
    assert examination.to_json()["estimate"] is None
