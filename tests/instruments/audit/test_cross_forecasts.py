"""P1 against the mean step of each layer, on paths whose answer is known."""

import pytest
import torch
from numpy.testing import assert_allclose
from tests.instruments.audit.synthetic_paths import LAYERS, PROMPTS, WIDTH, flow_paths, paths_of
from tests.instruments.audit.test_adequacy import A, segment

from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts, skill_table
from flowscope.instruments.audit.adequacy.forecasts import halves
from flowscope.instruments.audit.adequacy.rule import decision_of, forecast_effect


def constant_paths(noise):
    """The same step for every token, another one at each layer."""
    g = torch.Generator().manual_seed(3)
    n = PROMPTS * 16
    steps = 0.5 * torch.randn(LAYERS, WIDTH, generator=g)
    fresh = noise * torch.randn(n, LAYERS, WIDTH, generator=g)
    start = torch.randn(n, 1, WIDTH, generator=g)
    return paths_of(torch.cat([start, start + (steps + fresh).cumsum(1)], 1), g)


def effect_of(paths, **options):
    return forecast_effect(skill_table([cross_forecasts(paths, segment(), rank=WIDTH, **options)]))


@pytest.fixture(scope="module")
def flowing():
    return cross_forecasts(flow_paths(A), segment(), rank=WIDTH)


def test_constant_drift_is_forecast_by_the_mean_step_and_is_no_flow():
    effect = effect_of(constant_paths(0.1))
    assert effect.skills["mean_drift"] > 0.6
    assert effect.skills["flow"] > 0.2  # so that it would have held against persistence
    assert effect.effect < 0
    assert decision_of(effect) != "holds"


def test_exact_constant_drift_leaves_no_room():
    effect = effect_of(constant_paths(0.0))
    assert effect.skills["mean_drift"] > 0.999
    assert decision_of(effect) == "uninformative"


def test_linear_flow_holds(flowing):
    effect = forecast_effect(skill_table([flowing]))
    assert decision_of(effect) == "holds"
    assert effect.strength == "strong"
    assert effect.skills["floor"] > 0.999


def test_table_sums_are_the_errors_of_the_prompt(flowing):
    table = skill_table([flowing]).set_index("prompt")
    assert sorted(table.index) == list(range(PROMPTS))
    rows = flowing.prompt == 7
    assert_allclose(table.loc[7, "flow"], flowing.errors["onward_flow"][rows].sum())
    assert_allclose(table.loc[7, "still"], flowing.errors["onward_persistence"][rows].sum())
    assert table.loc[7, "tokens"] == rows.sum()


def test_axes_and_drifts_see_nothing_of_the_judged_half():
    """States of judged prompts change after the first: forecasts of these prompts do not."""
    paths = flow_paths(A)
    judged = halves(PROMPTS, 0)[paths.prompt]
    hidden = paths.hidden.clone()
    hidden[judged, 1:] = torch.randn(hidden[judged, 1:].shape)
    other = paths_of(hidden, torch.Generator())
    object.__setattr__(other, "readout", paths.readout)
    before, after = (cross_forecasts(p, segment(), rank=4) for p in (paths, other))
    rows = judged[paths.close]
    # shown in the axes of the first half, which forecasts the judged rows
    assert_allclose(after.predicted[rows], before.predicted[rows], atol=1e-9)
    assert float((after.predicted[~rows] - before.predicted[~rows]).abs().max()) > 1e-3


def test_an_autonomous_flow_does_not_notice_shuffled_layers(flowing):
    skills = forecast_effect(skill_table([flowing])).skills
    assert abs(skills["flow_shuffled"] - skills["flow"]) < 0.1
    assert skills["flow_half"] > 0.5


def test_a_drift_that_depends_on_depth_notices_shuffled_layers():
    """ḣ = ±h, the sign changing at half depth."""
    g = torch.Generator().manual_seed(0)
    h = torch.randn(PROMPTS * 16, WIDTH, generator=g)
    factors = torch.cat([torch.full((4,), 1.25), torch.full((4,), 0.8)]).cumprod(0)
    hidden = h[:, None] * torch.cat([torch.ones(1), factors])[:, None]
    skills = effect_of(paths_of(hidden, g)).skills
    assert skills["flow_shuffled"] < skills["flow"] - 0.1


def test_too_few_prompts_are_refused_in_words():
    few = paths_of(flow_paths(A).hidden[: 16 * 4], torch.Generator().manual_seed(0))
    assert "at least 14 prompts" in cross_forecasts(few, segment(), rank=4).reason
