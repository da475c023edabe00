"""The transplant probe against the mathematics on the model's own states; batching is no matter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import networks as models

from flowscope import Tap
from flowscope.errors import TapError
from flowscope.probes import TransplantProbe, drawn_donors, positions_readout, spaced_rows
from flowscope.simplex import transplanted_steps


@torch.no_grad()
def _read(rows, inputs, model, seed=3):
    """What a fresh probe keeps of one pass, and the states of the pass."""
    states = []
    with Tap(model) as tap:
        tap.on_block(lambda e: states.extend([e.hidden_in] * (e.site.index == 0) + [e.hidden_out]))
        model(**inputs)
        readout = positions_readout(tap.anatomy.tail)
    probe = TransplantProbe(readout, seed=seed)
    probe.begin(rows)
    with Tap(model) as tap:
        tap.on_block(probe.update)
        model(**inputs)
    probe.end()
    return probe, [readout(hidden) for hidden in states]


def test_every_number_is_the_reference_on_the_models_own_lens():
    model, inputs = models.READABLE["llama"]()
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    rows = spaced_rows(np.array([5, 2]), mask, tokens=7)
    probe, logits = _read(rows, inputs, model)
    arrays = probe.arrays()
    places = np.linspace(0, models.LENGTH - 1, 7).round().astype(int)
    assert arrays["prompt"].tolist() == [2] * 7 + [5] * 7
    for row, prompt in enumerate((5, 2)):
        here = arrays["prompt"] == prompt
        assert arrays["position"][here].tolist() == places.tolist()
        for step in range(len(logits) - 1):
            before, after = (logits[k][row, places] for k in (step, step + 1))
            donors = drawn_donors(7, np.random.default_rng([3, prompt, step]))
            expected = transplanted_steps(before, after, donors)
            for name in ("tail_mass", "total_variation", "transplanted", "half_oscillation"):
                np.testing.assert_allclose(
                    arrays[name][here, step], getattr(expected, name).numpy(), rtol=1e-4, atol=1e-9
                )


def test_batches_and_padding_do_not_matter():
    model, inputs = models.READABLE["llama"]()
    mask = torch.ones(models.ROWS, models.LENGTH, dtype=torch.bool)
    mask[1, 7:] = False
    prompts = np.array([0, 1])
    together, _ = _read(
        spaced_rows(prompts, mask, tokens=5), {**inputs, "attention_mask": mask.long()}, model
    )
    first, _ = _read(
        spaced_rows(prompts[:1], mask[:1], tokens=5), {"input_ids": inputs["input_ids"][:1]}, model
    )
    second, _ = _read(
        spaced_rows(prompts[1:], mask[1:, :7], tokens=5),
        {"input_ids": inputs["input_ids"][1:, :7]},
        model,
    )
    second.merge(first)
    apart, whole = second.arrays(), together.arrays()
    assert whole["position"][whole["prompt"] == 1].max() == 6
    for name, values in whole.items():
        np.testing.assert_allclose(apart[name], values, rtol=1e-3, atol=1e-6)


def test_a_prompt_without_two_others_is_left_out():
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[0, :2], mask[1, 4:7], mask[2] = True, True, True
    rows = spaced_rows(np.array([0, 1, 2]), mask, tokens=4)
    assert rows.prompt.tolist() == [1] * 3 + [2] * 4
    assert rows.position.tolist() == [4, 5, 6, 0, 3, 5, 8]
    probe = TransplantProbe(None)
    probe.begin(spaced_rows(np.array([0]), mask[:1]))
    probe.end()
    assert probe.arrays() == {}


def test_a_probe_must_begin():
    with pytest.raises(TapError, match="must begin"):
        TransplantProbe(None).update(None)


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 30), st.integers(0, 2**31))
def test_donors_are_two_different_others(count, seed):
    donors = drawn_donors(count, np.random.default_rng(seed))
    tokens = np.arange(count)
    assert donors.shape == (count, 2)
    assert (donors != tokens[:, None]).all()
    assert (donors[:, 0] != donors[:, 1]).all()
    assert donors.min() >= 0
    assert donors.max() < count


def test_every_other_token_is_as_likely():
    rng = np.random.default_rng(0)
    draws = np.stack([drawn_donors(4, rng)[1] for _ in range(3000)])
    for column in draws.T:
        counts = np.bincount(column, minlength=4)
        assert counts[1] == 0
        assert np.abs(counts[[0, 2, 3]] - 1000).max() < 120  # 4.6 standard deviations
