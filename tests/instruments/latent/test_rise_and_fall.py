"""L1 on noise, on planted rises and falls, and where its readings disagree."""

import numpy as np
import pytest

from flowscope.instruments.latent.entropy.judge import READINGS, Reading, judge_readings

LAYERS, RANK, PROMPTS = 12, 8, 24
HUMP = np.sin(np.pi * np.arange(LAYERS) / (LAYERS - 1))


def _reading(course, noise=0.02, seed=0, draws=48):
    """Entropies whose halves scatter by ``noise`` nats per coordinate around their course."""
    rng = np.random.default_rng(seed)
    errors = rng.normal(0, noise * RANK, (1 + draws, LAYERS))
    rows = RANK * course + errors
    rows[0] = RANK * course + errors[0] / 3
    return Reading(rows[0], rows[1:], PROMPTS)


def _readings(*courses):
    return {key: _reading(c, seed=n) for n, (key, c) in enumerate(zip(READINGS, courses))}  # noqa: B905


@pytest.mark.parametrize(
    ("courses", "outcome"),
    [
        ([0 * HUMP] * 4, "abstains"),
        ([0.5 * HUMP] * 4, "holds"),
        ([-0.5 * np.arange(LAYERS)] * 4, "fails"),
        ([-0.5 * HUMP] * 4, "fails"),
        ([0.5 * HUMP] * 3 + [-0.5 * HUMP], "abstains"),
    ],
)
def test_rise_and_fall_is_that_of_all_four_readings(courses, outcome):
    assert judge_readings(_readings(*courses), {}, rank=RANK, seed=0).outcome == outcome


def test_a_disagreement_is_named():
    model = _readings(*[0.5 * HUMP] * 3, -0.5 * HUMP)
    because = judge_readings(model, {}, rank=RANK, seed=0).because
    assert "the readings disagree" in because
    assert "does not by covariance, one occurrence each" in because


def test_a_random_network_that_passes_too_makes_it_uninformative():
    model, twin = _readings(*[0.5 * HUMP] * 4), _readings(*[0.3 * HUMP] * 4)
    verdict = judge_readings(model, {"random twin 1": twin}, rank=RANK, seed=0)
    assert verdict.outcome == "uninformative"


def test_flat_courses_seldom_pass():
    """At most 5 in 100 of courses without a hump hold or fail by chance."""
    outcomes = [
        judge_readings(
            {key: _reading(0 * HUMP, seed=100 * n + m) for m, key in enumerate(READINGS)},
            {}, rank=RANK, seed=0,
        ).outcome
        for n in range(40)
    ]  # fmt: skip
    assert outcomes.count("abstains") >= 38
