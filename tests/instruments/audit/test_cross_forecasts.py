"""P1 against shift, scale and lookup, on paths whose answer is known."""

import pytest
import torch
from numpy.testing import assert_allclose
from tests.instruments.audit.synthetic_paths import LAYERS, PROMPTS, WIDTH, flow_paths, paths_of
from tests.instruments.audit.test_adequacy import A, segment

from flowscope.instruments.audit.adequacy import cross_forecasts as crossed
from flowscope.instruments.audit.adequacy.cross_forecasts import cross_forecasts, skill_table
from flowscope.instruments.audit.adequacy.forecasts import halves
from flowscope.instruments.audit.adequacy.judge import judge_forecast
from flowscope.instruments.audit.adequacy.rule import forecast_effect
from flowscope.records import Unavailable

N = PROMPTS * 16


@pytest.fixture(autouse=True, scope="module")
def only_ridge():
    """One kind of drift is enough for the rule, and fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossed, "KINDS", ("ridge",))
        yield


def forecast(paths, rank=WIDTH, tokens=None):
    return cross_forecasts(paths, segment(), rank=rank, tokens=tokens)


@pytest.fixture(scope="module")
def flowing(only_ridge):
    return forecast(flow_paths(A))


def test_constant_drift_is_forecast_by_the_mean_step_and_is_no_flow():
    """The same step for every token, another one at each layer."""
    g = torch.Generator().manual_seed(3)
    steps = 0.5 * torch.randn(LAYERS, WIDTH, generator=g)
    fresh = 0.1 * torch.randn(N, LAYERS, WIDTH, generator=g)
    start = torch.randn(N, 1, WIDTH, generator=g)
    hidden = torch.cat([start, start + (steps + fresh).cumsum(1)], 1)
    table = skill_table([forecast(paths_of(hidden, g))])
    effect = forecast_effect(table)
    assert effect.skills["mean_drift"] > 0.6
    assert effect.skills["flow"] > 0.2  # so that it would have held against persistence
    assert effect.effect < 0
    assert judge_forecast(table).outcome == "fails"


def test_noise_does_not_hold():
    table = skill_table([forecast(flow_paths(0 * A, noise=0.4))])
    assert judge_forecast(table).outcome in ("abstains", "fails")


def test_fading_toward_the_mean_is_a_scale_and_no_flow():
    """What random networks do: y shrinks and something unrelated is added."""
    g = torch.Generator().manual_seed(0)
    states = [torch.randn(N, WIDTH, generator=g)]
    for _ in range(LAYERS):
        states.append(0.75 * states[-1] + 0.66 * torch.randn(N, WIDTH, generator=g))
    table = skill_table([forecast(paths_of(torch.stack(states, 1), g))])
    effect = forecast_effect(table)
    assert effect.skills["flow"] > effect.skills["mean_drift"] + 0.05
    assert effect.reference == "scaled_drift"
    assert judge_forecast(table).outcome != "holds"


def named(seed, names=8):
    """A generator, the name of every token, and a start for each name."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(names, (N,), generator=g)
    return g, tokens, torch.randn(names, WIDTH, generator=g)


def test_a_step_by_name_is_a_lookup_and_no_flow(monkeypatch):
    """What untrained networks do: a token moves by its name, which neighbours find again."""
    monkeypatch.setattr(crossed, "KINDS", ("neighbours",))
    g, tokens, start = named(5)
    steps = 0.4 * torch.randn(len(start), LAYERS, WIDTH, generator=g)
    fresh = 0.05 * torch.randn(N, LAYERS + 1, WIDTH, generator=g)
    course = torch.cat([start[:, None], start[:, None] + steps.cumsum(1)], 1)
    paths = paths_of(course[tokens] + fresh, g)
    table = skill_table([forecast(paths, tokens=tokens.numpy())])
    effect = forecast_effect(table)
    assert effect.skills["flow"] > effect.skills["scaled_drift"] + 0.2  # it would have held
    assert effect.reference == "lookup"
    assert judge_forecast(table).outcome != "holds"
    assert judge_forecast(table.drop(columns="lookup")).outcome == "holds"


def test_a_flow_of_tokens_with_names_holds_against_the_lookup():
    """Tokens of one name start apart, so that the name does not tell where they go."""
    g, tokens, start = named(6)
    h = start[tokens] + torch.randn(N, WIDTH, generator=g)
    step = torch.linalg.matrix_exp(A / LAYERS)
    states = [h]
    for _ in range(LAYERS):
        states.append(states[-1] @ step.mT)
    table = skill_table([forecast(paths_of(torch.stack(states, 1), g), tokens=tokens.numpy())])
    assert forecast_effect(table).skills["lookup"] > 0.1
    assert judge_forecast(table).outcome == "holds"


def test_linear_flow_holds(flowing):
    table = skill_table([flowing])
    verdict = judge_forecast(table)
    assert (verdict.outcome, verdict.strength) == ("holds", "strong")
    assert forecast_effect(table).skills["floor"] > 0.999


def test_table_sums_are_the_errors_of_the_prompt(flowing):
    table = skill_table([flowing]).set_index("prompt")
    assert sorted(table.index) == list(range(PROMPTS))
    rows = flowing.prompt == 7
    for column, name in (("flow", "flow"), ("still", "persistence"), ("scaled_drift", "scaled")):
        assert_allclose(table.loc[7, column], flowing.errors[f"onward_{name}"][rows].sum())
    assert table.loc[7, "tokens"] == rows.sum()


def test_axes_and_drifts_see_nothing_of_the_judged_half():
    """States of judged prompts change after the first: forecasts of these prompts do not."""
    paths = flow_paths(A)
    judged = halves(PROMPTS, 0)[paths.prompt]
    hidden = paths.hidden.clone()
    hidden[judged, 1:] = flow_paths(-A).hidden[judged, 1:]
    other = paths_of(hidden, torch.Generator())
    object.__setattr__(other, "readout", paths.readout)
    before, after = (forecast(p, 4) for p in (paths, other))
    rows = judged[paths.close]
    # shown in the axes of the first half, which forecasts the judged rows
    assert_allclose(after.predicted[rows], before.predicted[rows], atol=1e-9)
    assert float((after.predicted[~rows] - before.predicted[~rows]).abs().max()) > 1e-3


def test_an_autonomous_flow_does_not_notice_shuffled_layers(flowing):
    skills = forecast_effect(skill_table([flowing])).skills
    assert abs(skills["flow_shuffled"] - skills["flow"]) < 0.1
    assert skills["flow_half"] > 0.5


def test_a_drift_that_depends_on_depth_notices_shuffled_layers(monkeypatch):
    """ḣ = ±h, the sign changing at half depth, which neighbours in time can see."""
    monkeypatch.setattr(crossed, "KINDS", ("neighbours",))
    g = torch.Generator().manual_seed(0)
    h = torch.randn(N, WIDTH, generator=g)
    factors = torch.cat([torch.full((4,), 1.25), torch.full((4,), 0.8)]).cumprod(0)
    hidden = h[:, None] * torch.cat([torch.ones(1), factors])[:, None]
    effect = forecast_effect(skill_table([forecast(paths_of(hidden, g))]))
    assert effect.skills["flow_shuffled"] < effect.skills["flow"] - 0.1
    assert effect.skills["scaled_drift"] > 0.99  # one scale per layer says it all
    assert effect.effect < 0


def test_too_few_prompts_are_refused_in_words():
    few = paths_of(flow_paths(A).hidden[: 16 * 4], torch.Generator().manual_seed(0))
    reason = forecast(few, 4).reason
    assert "at least 14 prompts are needed" in reason
    assert "there are 4" in reason


def test_states_that_do_not_move_say_so():
    still = torch.randn(N, 1, WIDTH, generator=torch.Generator().manual_seed(0))
    made = forecast(paths_of(still.expand(-1, LAYERS + 1, -1), torch.Generator()), 4)
    assert isinstance(made, Unavailable)
    assert made.reason
