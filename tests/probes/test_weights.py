"""R_qk is found in the weights where it is defined, and refused where a rotation stands between."""

import pytest
import torch
from tests import networks as models

from flowscope.probes.heads.weights import weight_ratios
from flowscope.records import Unavailable


def dense(query, key):
    B = query.detach().T.double() @ key.detach().double()
    return float((B - B.T).norm() / (B + B.T).norm())


def test_separate_projections_are_found():
    model, batch = models.bert()
    found = weight_ratios(model, batch)
    assert sorted(found) == list(range(len(model.bert.encoder.layer)))
    for index, layer in enumerate(model.bert.encoder.layer):
        attention = layer.attention.self
        d = attention.attention_head_size
        for head in range(attention.num_attention_heads):
            rows = slice(head * d, (head + 1) * d)
            expected = dense(attention.query.weight[rows], attention.key.weight[rows])
            assert float(found[index][head]) == pytest.approx(expected, rel=1e-9)


def test_a_fused_projection_is_found():
    model, batch = models.gpt2()
    found = weight_ratios(model, batch)
    weight = model.transformer.h[1].attn.c_attn.weight.T
    width, d = weight.shape[1], weight.shape[1] // 4
    for head in range(4):
        rows = slice(head * d, (head + 1) * d)
        expected = dense(weight[:width][rows], weight[width : 2 * width][rows])
        assert float(found[1][head]) == pytest.approx(expected, rel=1e-9)


def test_symmetric_weights_have_no_directed_part():
    model, batch = models.bert()
    for layer in model.bert.encoder.layer:
        layer.attention.self.key.weight.data.copy_(layer.attention.self.query.weight)
    for found in weight_ratios(model, batch).values():
        assert float(found.max()) < 1e-7


@pytest.mark.parametrize("family", ["llama", "qwen3", "neox"])
def test_a_rotation_between_weights_and_scores_is_said(family):
    found = weight_ratios(*getattr(models, family)())
    assert found
    assert all(isinstance(one, Unavailable) for one in found.values())
    assert all("rotary" in one.reason for one in found.values())


def test_a_denoiser_is_read_like_a_language_model():
    found = weight_ratios(*models.dit())
    assert all(isinstance(one, torch.Tensor) for one in found.values())
