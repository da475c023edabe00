"""L2 on planted flows, on noise, with shuffled layers; where the entropy turns."""

import numpy as np
import pandas as pd
import pytest
import torch

from flowscope.flows.entropy import half_samples
from flowscope.flows.potential import TERMS
from flowscope.instruments.latent.clouds import Clouds, Sample
from flowscope.instruments.latent.rate.judge import error_saved, judge_rates
from flowscope.instruments.latent.rate.steps import COLUMNS, pooled_steps, step_arrays
from flowscope.instruments.latent.rate.tables import halves_of_rates, turning_table
from flowscope.records import Unavailable

RANK, PROMPTS, BLOCKS = 8, 24, 10
CHANGES = 8 * np.array([0.3, -0.2, 0.1, -0.3, 0.2, -0.1, 0.3, -0.2, 0.15, -0.25])


def _arrays(difference, flow, rest, spread=0.05, subject="model"):
    rng = np.random.default_rng(0)
    terms = {"difference": difference, "gaussian": difference, "flow": flow, "noise": 0 * flow,
             "rest": rest}  # fmt: skip
    found = {}
    for sample in ("all", "types"):
        for name, value in terms.items():
            rows = value + rng.normal(0, spread, (49, BLOCKS))
            rows[0] = value
            found[f"{subject}/{sample}/{name}"] = rows
        found[f"{subject}/{sample}/prompts"] = np.array([float(PROMPTS)])
    return found


@pytest.mark.parametrize(
    ("flow", "rest", "outcome"),
    [
        (CHANGES, 0.02, "holds"),
        (np.roll(CHANGES, 1), 0.02, "fails"),
        (-CHANGES, 0.02, "fails"),
        (0 * CHANGES, 0.02, "abstains"),
        (CHANGES, 2.0, "abstains"),
    ],
)
def test_mean_flow_is_compared_with_that_of_other_layers(flow, rest, outcome):
    arrays = _arrays(CHANGES, flow, np.full(BLOCKS, rest))
    assert judge_rates(arrays, rank=RANK).outcome == outcome


def test_a_rest_beyond_the_interval_is_named():
    verdict = judge_rates(_arrays(CHANGES, CHANGES, np.full(BLOCKS, 2.0)), rank=RANK)
    assert "leave a rest of 2 nats a block, more than the interval" in verdict.because


def test_small_changes_hold_nothing():
    """Changes of a hundredth of a nat per coordinate are negligible however well explained."""
    small = CHANGES / 25
    verdict = judge_rates(_arrays(small, small, 0 * small, spread=0.001), rank=RANK)
    assert verdict.outcome == "abstains"


def test_random_weights_that_pass_make_it_uninformative():
    good = _arrays(CHANGES, CHANGES, 0 * CHANGES)
    twin = _arrays(CHANGES, CHANGES, 0 * CHANGES, subject="random twin 1")
    assert judge_rates(good | twin, rank=RANK).outcome == "uninformative"


def test_two_blocks_are_too_few():
    arrays = {
        key: rows if key.endswith("prompts") else rows[:, :2]
        for key, rows in _arrays(CHANGES, CHANGES, 0 * CHANGES).items()
    }
    assert "needs 3 blocks" in judge_rates(arrays, rank=RANK).because


def test_error_saved_is_that_of_all_shuffles():
    rng = np.random.default_rng(0)
    d, f = rng.standard_normal((2, 5))
    shuffled = [np.mean((d - f[rng.permutation(5)]) ** 2) for _ in range(20_000)]
    saved, of = error_saved(d, f)
    assert of == pytest.approx(np.sqrt(np.mean(shuffled)), rel=0.01)
    assert saved == pytest.approx(of - np.sqrt(np.mean((d - f) ** 2)))


def _clouds(growths, noise=0.0, seed=0, each=25):
    """Directions whose eight core coordinates grow block by block, beside a constant one."""
    g = torch.Generator().manual_seed(seed)
    n = PROMPTS * each
    y = 0.5 * torch.randn(n, RANK, generator=g).double()
    states = [y]
    for growth in growths:
        y = (1 + growth) * y + noise * torch.randn(n, RANK, generator=g).double()
        states.append(y)
    full = torch.stack([torch.cat([20 * torch.ones(n, 1), one], 1) for one in states], 1)
    directions = full / full.norm(dim=-1, keepdim=True)
    groups = torch.arange(PROMPTS).repeat_interleave(each)
    sample = Sample(
        name="all", places=torch.arange(n), prompt=groups, kind=torch.full((n,), -1),
        halves=half_samples(groups, 12, g),
    )  # fmt: skip
    return Clouds(
        directions=directions, lengths=full.norm(dim=-1), samples={"all": sample},
        tail=Unavailable("planted"), massive=0, repeated=0,
    )  # fmt: skip


def _steps(clouds):
    return [
        {"all": step_arrays(clouds, clouds.samples["all"], block, RANK, 3, curved=True)}
        for block in range(1, clouds.layers + 1)
    ]


def test_planted_growth_is_read_by_both_routes_and_by_the_curvature():
    growths = (0.2, 0.1, -0.1, -0.2)
    for growth, found in zip(growths, _steps(_clouds(growths)), strict=True):
        step = dict(zip(COLUMNS, found["all"]["step"][0], strict=True))
        exact = RANK * np.log1p(growth)
        assert step["flow"] == pytest.approx(exact, abs=0.1)
        assert step["difference"] == pytest.approx(exact, abs=0.1)
        assert step["lambda_min"] == pytest.approx(-growth, abs=0.03)
        assert step["expanding"] == pytest.approx(RANK if growth > 0 else 0, abs=0.2)
        assert step["conditional_share"] < 0.02


def test_planted_growth_and_noise_are_judged():
    planted = halves_of_rates("model", {"all": PROMPTS}, _steps(_clouds((0.3, -0.3, 0.2, -0.2))))
    assert judge_rates(planted, rank=RANK).outcome == "holds"
    g = torch.Generator().manual_seed(1)
    clouds = _clouds((0.0,) * 4)
    noise = torch.randn(clouds.directions.shape, generator=g).double()
    noise = noise / noise.norm(dim=-1, keepdim=True)
    new = Clouds(**{**clouds.__dict__, "directions": noise})
    arrays = halves_of_rates("model", {"all": PROMPTS}, _steps(new))
    assert judge_rates(arrays, rank=RANK).outcome == "abstains"


def test_entropy_turns_where_it_was_planted():
    clouds = _clouds((0.3, 0.2, -0.2, -0.3))
    steps = _steps(clouds)
    halves = halves_of_rates("model", {"all": PROMPTS}, steps)
    frame = pd.DataFrame({"layer": range(1, 5), "sample": "all", "expanding": [8.0, 8.0, 0.0, 0.0]})

    class Config:
        seed = 0

    table = turning_table(Config, halves, frame)
    assert list(table["route"]) == ["difference", "flow"]
    for row in table.to_dict("records"):
        assert (row["first"], row["last"], row["kind"]) == (2, 3, "maximum")
        assert row["rate_first_low"] > 0 > row["rate_last_high"]
        assert row["expanding"] == 4.0


def test_a_steady_entropy_turns_nowhere():
    clouds = _clouds((0.0001, -0.0001, 0.0001, -0.0001), noise=0.05)
    halves = halves_of_rates("model", {"all": PROMPTS}, _steps(clouds))
    rates = pd.DataFrame({"layer": range(1, 5), "sample": "all", "expanding": 0.0})

    class Config:
        seed = 0

    kinds = turning_table(Config, halves, rates)
    assert kinds.empty


def test_blocks_that_cannot_be_read_say_why():
    clouds = _clouds((0.1, 0.1))
    same = Clouds(**{**clouds.__dict__, "directions": clouds.directions[:, :1].repeat(1, 3, 1)})
    reason = step_arrays(same, same.samples["all"], 1, RANK, 3, curved=False)["reason"]
    assert "Nothing moves" in bytes(reason).decode()
    thin = step_arrays(clouds, clouds.samples["all"], 1, 12, 3, curved=False)["reason"]
    assert "dimensions" in bytes(thin).decode()


def test_steps_of_all_layers_share_their_axes():
    flows = pooled_steps(_clouds((0.2, -0.1)), _clouds((0.2, -0.1)).samples["all"], RANK)
    torch.testing.assert_close(flows[0].points + flows[0].velocities, flows[1].points)
    assert len(TERMS) == 5
