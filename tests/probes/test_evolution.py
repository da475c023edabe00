"""The variational inequality: closed forms on two outcomes, references, and left-out states."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from tests import networks as models

from flowscope import Tap
from flowscope.errors import TapError
from flowscope.flows import Segment
from flowscope.probes import EvolutionProbe, Rows, positions_readout, variational_inequality

TWO = 1.0 - np.eye(2)


def two(*first):
    return np.stack([first, 1 - np.array(first)], -1)


def divergence(p, q):
    return (p * np.log(p / q)).sum(-1)


def test_on_two_outcomes_it_holds_when_the_divergence_at_least_halves():
    """W₂² = |a − b| there: slack = (δ/D)(1 − F_ℓ / (F_{ℓ−1} − F_ℓ)) for a path straight ahead."""
    path, target = two(0.9, 0.6, 0.55, 0.35), two(0.3)[0]
    found = variational_inequality(path, target, TWO)
    energy, ahead = divergence(path, target), path[:, 0] - 0.3
    expected = -np.diff(ahead) / ahead[:-1] * (1 - energy[1:] / -np.diff(energy))
    assert_allclose(found.slack, expected, rtol=1e-9)
    assert_allclose(found.progress, 1 - ahead[1:] / ahead[:-1], rtol=1e-9)
    assert_array_equal(found.slack >= 0, energy[:-1] >= 2 * energy[1:])
    assert 0 < (found.slack >= 0).sum() < 3, "both cases are there"


def test_a_step_away_from_the_target_has_no_step_size():
    found = variational_inequality(two(0.5, 0.7), two(0.3)[0], TWO)
    assert found.fell[0] == 0
    assert np.isnan(found.slack[0])
    assert found.progress[0] < 0


def test_a_step_beyond_the_target_fails_though_the_divergence_falls():
    found = variational_inequality(two(0.9, 0.05), two(0.4)[0], TWO)
    assert found.fell[0] == 1
    assert found.slack[0] < 0


def test_the_last_step_satisfies_it_by_construction():
    target = two(0.3)[0]
    found = variational_inequality(np.stack([two(0.9)[0], target]), target, TWO)
    assert_allclose([found.slack[0], found.progress[0]], 1.0)


def test_the_slack_is_that_of_a_generic_linear_program_and_has_no_unit():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3))
    d = np.linalg.norm(x[:, None] - x[None], axis=-1)
    path = rng.dirichlet(np.ones(5), size=4)
    target = rng.dirichlet(np.ones(5))
    equal = np.vstack([np.kron(np.eye(5), np.ones(5)), np.kron(np.ones(5), np.eye(5))])

    def square(p, q):
        return linprog((d**2).ravel(), A_eq=equal, b_eq=np.concatenate([p, q])).fun

    energy = divergence(path, target)
    found = variational_inequality(path, target, d)
    for k in range(3):
        before, after = square(path[k], target), square(path[k + 1], target)
        fall = energy[k] - energy[k + 1]
        assert_allclose(found.progress[k], 1 - after / before, rtol=1e-7)
        if fall > 0:
            cost = square(path[k], path[k + 1]) * energy[k + 1] / fall
            assert_allclose(found.slack[k], (before - after - cost) / before, rtol=1e-7)
    scaled = variational_inequality(path, target, 70 * d)
    assert_allclose(scaled.slack, found.slack, rtol=1e-8)


def probed(segments, positions=3, top=61, prompts=(0, 1)):
    model, batch = models.llama(layers=4)
    states = []
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(lambda e: states.extend([e.hidden_in] * (e.site.index == 0) + [e.hidden_out]))
        model(**batch)
        tail = tap.anatomy.tail
    matrix = model.get_output_embeddings().weight.detach()
    probe = EvolutionProbe(positions_readout(tail), matrix, segments, positions=positions, top=top)
    rows = Rows.of_mask(np.array(prompts), torch.ones(2, 12, dtype=torch.bool))
    probe.begin(rows)
    with Tap(model) as tap, torch.no_grad():
        tap.on_block(probe.update)
        model(**batch)
        probe.end()
    logits = torch.stack([tail.rows(h) for h in states]).detach().double()
    return probe.arrays(), torch.softmax(logits, -1).numpy(), matrix.double().numpy()


WHOLE = (Segment(first=1, last=4, kind="segment"),)


def test_the_probe_reads_the_models_own_path():
    found, p, u = probed(WHOLE)
    d = np.linalg.norm(u[:, None] - u[None], axis=-1)
    assert_allclose(found["evi_kept"], 1.0, atol=1e-6)
    assert len(found["evi_prompt"]) == 6
    for k, (prompt, position) in enumerate(
        zip(found["evi_prompt"], found["evi_position"], strict=True)
    ):
        direct = variational_inequality(p[:, prompt, position], p[-1, prompt, position], d)
        assert_allclose(found["evi_progress_model"][k], direct.progress, rtol=1e-4, atol=1e-5)
        assert_allclose(found["evi_fell_model"][k], direct.fell)


def test_shuffled_and_straight_paths_keep_the_ends():
    """A segment of one step has nothing between its ends: all three paths are one."""
    steps = tuple(Segment(first=k, last=k, kind="jump") for k in range(1, 5))
    found, _, _ = probed(steps)
    for name in ("slack", "progress", "fell"):
        for path in ("shuffled", "straight"):
            assert_allclose(found[f"evi_{name}_{path}"], found[f"evi_{name}_model"], atol=1e-9)
    whole, _, _ = probed(WHOLE)
    assert np.abs(whole["evi_progress_straight"] - whole["evi_progress_model"]).max() > 0.01


def test_states_that_keep_too_little_mass_are_left_out():
    found, _, _ = probed(WHOLE, positions=12, top=12)
    light = found["evi_kept"] < 0.5
    before, after = light[:, :-1], light[:, 1:]
    for case in (before & ~after, ~before & after, ~before & ~after):
        assert case.any()
    assert_array_equal(np.isnan(found["evi_progress_model"]), before | after)


def test_a_probe_that_has_not_begun_says_so():
    probe = EvolutionProbe(lambda h: h, torch.eye(3), WHOLE)
    with pytest.raises(TapError, match="begin a batch"):
        probe.update(None)
