"""What the last layers are worth, on paths whose losses are known."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import spearmanr
from tests.instruments.audit.synthetic_paths import LAYERS, PROMPTS, TOKENS, flow_paths

from flowscope.evidence import resampled_counts
from flowscope.instruments.audit.exits.losses import (
    depth_loss_table,
    free_layers,
    losses_along,
    mobility_and_loss,
)
from flowscope.instruments.audit.paths import read_tokens, target_tokens
from flowscope.instruments.audit.track_t.calibration import calibration
from flowscope.models.prompts import Prompts
from flowscope.simplex import mobility_frobenius

COUNTS = resampled_counts(PROMPTS, resamples=50, seed=0)


def test_losses_are_those_of_the_logits():
    paths = flow_paths(torch.eye(6))
    rows, targets = np.arange(0, 320, 7), np.full(320, 3)
    loss, mobility = losses_along(paths, rows, targets)
    z = paths.readout.logits(paths.hidden[rows]).double()
    assert_allclose(loss, -z.log_softmax(-1)[..., 3], rtol=1e-5, atol=1e-5)
    assert_allclose(mobility, mobility_frobenius(z.softmax(-1)), rtol=1e-4)


def test_layers_that_do_nothing_are_free_and_the_first_that_does_is_not():
    loss = np.tile(np.array([5.0, 4.0, 2.0, 1.0, 1.0, 1.0]), (40, 1))
    loss += np.random.default_rng(0).normal(size=(40, 1))
    prompt = np.repeat(np.arange(20), 2)
    table = depth_loss_table(loss, np.ones_like(loss), prompt, COUNTS)
    assert table["removed"].tolist() == [0, 1, 2, 3, 4, 5]
    assert_allclose(table["increase"], [0, 0, 0, 1, 3, 4], atol=1e-12)
    assert free_layers(table) == 2


def test_mobility_that_tells_the_gain_correlates_at_every_depth():
    rng = np.random.default_rng(0)
    gain = rng.uniform(size=(PROMPTS * 8, 4)) + np.array([3.0, 2.0, 1.0, 0.0])
    loss = np.concatenate([gain, np.zeros((len(gain), 1))], 1)
    prompt = np.repeat(np.arange(PROMPTS), 8)
    mobility = np.concatenate([gain, gain[:, :1]], 1)
    told = mobility_and_loss(loss, mobility, prompt, COUNTS, 0)
    assert_allclose(float(told.numbers()), 1.0)
    shuffled = mobility_and_loss(loss, rng.uniform(size=mobility.shape), prompt, COUNTS, 0)
    assert float(shuffled.interval.low) < 0 < float(shuffled.interval.high)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 1, 9]), st.sampled_from([4, 5, 8, 33]))
def test_the_correlation_is_that_of_every_prompt_and_layer_alone(seed, digits, tokens):
    rng = np.random.default_rng(seed)
    prompt = rng.permutation(np.repeat(np.arange(6), [tokens, 9, 17, 3, 6, 4]))
    loss, mobility = rng.normal(size=(2, len(prompt), 12)).round(digits)
    loss[:, -1], loss[:, 2], mobility[prompt == 1, 4], mobility[prompt == 2] = 0, 1, 2, 3
    loss[rng.random(loss.shape) < 0.01] = np.nan
    mobility[rng.random(mobility.shape) < 0.01] = np.inf
    loss[:, -1] = 0
    each = np.full(6, np.nan)
    for number in range(6):
        own = prompt == number
        pairs = zip(mobility[own].T[:-1], loss[own].T[:-1], strict=True)
        found = [
            spearmanr(a, b).statistic
            for a, b in pairs
            if len(set(a)) > 1 and len(set(b)) > 1 and not np.isnan(a + b).any()
        ]
        if own.sum() > 3 and found:
            each[number] = np.mean(found)
    known = np.isfinite(each)
    counts = resampled_counts(6, resamples=20, seed=0)
    told = mobility_and_loss(loss, mobility, prompt, counts, 0)
    assert told.n == known.sum()
    assert float(told.numbers()) == each[known].sum() / known.sum()


def test_the_token_ahead_is_what_a_causal_model_names():
    paths = flow_paths(torch.eye(6))
    items = tuple(np.arange(TOKENS) + 100 * p for p in range(PROMPTS))
    prompts = Prompts(items=items, source="", data_hash="", text_hash="", images=False)
    ahead = target_tokens(paths, prompts)
    assert ahead[0] == 1
    assert ahead[TOKENS] == 101
    assert ahead[TOKENS - 1] == -1, "the last token of a prompt has nothing to name"
    assert (read_tokens(paths, prompts) == paths.position + 100 * paths.prompt).all()


def test_a_calibrated_output_gains_nothing_and_a_sharpened_one_is_found_out():
    paths = flow_paths(torch.zeros(6, 6))
    p = paths.readout.logits(paths.hidden[:, LAYERS]).softmax(-1)
    targets = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(0))[:, 0].numpy()
    fair = calibration(paths, targets, (0.5, 2.0), COUNTS, seed=0)
    assert fair.chosen == (1.0, 1.0)
    assert_allclose(float(fair.gain.numbers()), 0.0)
    paths.readout._tail.weight.mul_(2.0)  # twice as sure as it should be
    sharp = calibration(paths, targets, (0.5, 2.0), COUNTS, seed=0)
    assert sharp.chosen == (2.0, 2.0)
    assert float(sharp.gain.interval.low) > 0
    table = sharp.table.set_index("temperature")
    assert table.loc[2.0, "ece"] < table.loc[1.0, "ece"]
