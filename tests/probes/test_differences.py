"""The probe of replica differences against the explicit rows it never keeps."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.models.synthetic_pipelines import SIDE, dit

from flowscope.errors import InvalidInputError
from flowscope.probes import DifferenceProbe
from flowscope.tap import Tap

PAIRS, TOKENS, WIDTH, LAYERS = 3, 4, 5, 2


def passed(layer, hidden):
    return SimpleNamespace(hidden_out=hidden, site=SimpleNamespace(index=layer))


def read(states, kept, pairs=PAIRS):
    """A probe that has seen ``states[step][layer]``."""
    probe = DifferenceProbe(layers=LAYERS, pairs=pairs, kept=kept)
    for step, layers in enumerate(states):
        probe.begin(step)
        for layer, hidden in enumerate(layers):
            probe.update(passed(layer, hidden))
    return probe


@pytest.fixture
def states():
    return torch.randn(4, LAYERS, 2 * PAIRS, TOKENS, WIDTH, dtype=torch.float64)


def difference(hidden):
    return ((hidden[:PAIRS] - hidden[PAIRS : 2 * PAIRS]) / np.sqrt(2)).flatten(1).numpy()


def test_gram_matrices_are_those_of_the_explicit_rows(states):
    found = read(states, [1, 3]).arrays()
    assert found["kept"].tolist() == [0, 1, 3]
    assert found["gram"].shape == (LAYERS, 3, 2 * PAIRS, 2 * PAIRS)
    for layer in range(LAYERS):
        for place, step in enumerate([0, 1, 3]):
            rows = np.concatenate([difference(states[0, layer]), difference(states[step, layer])])
            np.testing.assert_allclose(found["gram"][layer, place], rows @ rows.T, atol=1e-12)


def test_sizes_are_mean_squares_of_rows_at_every_step(states):
    found = read(states, [3]).arrays()
    assert found["difference"].shape == found["hidden"].shape == (LAYERS, 4)
    for layer in range(LAYERS):
        for step in range(4):
            rows = difference(states[step, layer])
            size = found["difference"][layer, step]
            np.testing.assert_allclose(size, (rows**2).sum() / PAIRS)
            whole = float(states[step, layer].square().sum()) / (2 * PAIRS)
            np.testing.assert_allclose(found["hidden"][layer, step], whole)


def test_independent_replicas_differ_by_as_much_as_they_are():
    """The factor 1/√2: difference over hidden is 1 for independent zero-mean replicas."""
    states = torch.randn(1, LAYERS, 400, TOKENS, WIDTH)
    found = read(states, [], pairs=200).arrays()
    np.testing.assert_allclose(found["difference"] / found["hidden"], 1, atol=0.1)


def test_the_first_step_is_kept_whole_though_states_are_reused(states):
    """A model may write into the same memory again; the first differences must not follow."""
    probe = DifferenceProbe(layers=LAYERS, pairs=PAIRS, kept=[1])
    held = torch.empty_like(states[0, 0])
    for step in (0, 1):
        probe.begin(step)
        for layer in range(LAYERS):
            held.copy_(states[step, layer])
            probe.update(passed(layer, held))
    rows = np.concatenate([difference(states[0, 0]), difference(states[1, 0])])
    np.testing.assert_allclose(probe.arrays()["gram"][0, 1], rows @ rows.T, atol=1e-12)


def test_a_batch_with_guidance_is_read_in_its_labelled_branch(states):
    """[labelled A, B; free A, B]: the first 2M rows."""
    both = torch.cat([states, 100 * torch.randn_like(states)], 2)
    labelled, whole = read(states, [2]).arrays(), read(both, [2]).arrays()
    for name in labelled:
        np.testing.assert_array_equal(labelled[name], whole[name])


def test_too_few_rows_are_a_sentence(states):
    with pytest.raises(InvalidInputError, match="made for 3 pairs, 6 rows; the batch has 4"):
        read(states[:, :, :4], [1])


def test_half_precision_is_summed_in_float32():
    states = torch.full((1, LAYERS, 2 * PAIRS, 300, 300), 2.0, dtype=torch.bfloat16)
    found = read(states, []).arrays()
    np.testing.assert_allclose(found["hidden"], 4.0 * 300 * 300)


@torch.no_grad()
def test_blocks_of_a_running_model_are_read_by_layer():
    model, pairs = dit(layers=2), 2
    given = {
        "hidden_states": torch.randn(2 * pairs, 1, SIDE, SIDE),
        "timestep": torch.full((2 * pairs,), 500),
        "class_labels": torch.tensor([0, 1, 0, 1]),
    }
    out = {}
    for index, block in enumerate(model.transformer_blocks):
        block.register_forward_hook(lambda _, a, y, index=index: out.__setitem__(index, y))
    probe = DifferenceProbe(layers=2, pairs=pairs, kept=[0])
    with Tap(model) as tap:
        tap.on_block(probe.update)
        model(**given)
    gram = probe.arrays()["gram"]
    for index, hidden in out.items():
        rows = ((hidden[:pairs] - hidden[pairs:]) / 2**0.5).flatten(1).double().numpy()
        np.testing.assert_allclose(gram[index, 0, :pairs, :pairs], rows @ rows.T, rtol=1e-5)
