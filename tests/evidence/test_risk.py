"""Risk control: counts in closed form, the promise over repeats, and a rule without it."""

import numpy as np
import pytest
from scipy.stats import binom

from flowscope.errors import InvalidInputError
from flowscope.evidence.risk import least_units, most_errors, risk_control, running_worst
from flowscope.records import Unavailable

REPEATS = 1_000
RISKS = np.linspace(0.0, 0.2, 11)
ALPHA, DELTA, UNITS = 0.05, 0.05, 300


def losses_of(rng, nested):
    """Losses of eleven settings with the known RISKS; nested ones never fall along the order."""
    luck = rng.random((UNITS, 1)) if nested else rng.random((UNITS, len(RISKS)))
    return (luck < RISKS).astype(float)


def loosest_observed(losses):
    """The rule of every published accelerator: the loosest threshold that looked good enough."""
    good = np.flatnonzero(losses.mean(0) <= ALPHA)
    return good[-1]


def chosen_risks(rule, nested):
    """True risk of the setting that a rule chooses in each of the repeats; 0 where it abstains."""
    risks = []
    for seed in range(REPEATS):
        index = rule(losses_of(np.random.default_rng(seed), nested))
        risks.append(0.0 if isinstance(index, Unavailable) else RISKS[index])
    return np.array(risks)


def slack(level):
    """Number of misses among the repeats that a rule at this level exceeds once in 1,000 times."""
    return binom.ppf(0.999, REPEATS, level) / REPEATS


@pytest.mark.parametrize("nested", [True, False])
def test_learn_then_test_exceeds_alpha_in_at_most_delta_of_all_calibrations(nested):
    order = range(len(RISKS))
    risks = chosen_risks(lambda x: risk_control(x, order, ALPHA, DELTA).index, nested)
    assert (risks > ALPHA).mean() <= slack(DELTA)
    assert np.median(risks) >= RISKS[1]  # and it does choose


def test_learn_then_test_needs_no_monotone_risks():
    """The strictest settings are not the safest: the walk stops before the first bad one."""
    risks = np.array([0.0, 0.12, 0.01, 0.0])
    exceeded = 0
    for seed in range(REPEATS):
        losses = (np.random.default_rng(seed).random((UNITS, 4)) < risks).astype(float)
        index = risk_control(losses, range(4), ALPHA, DELTA).index
        assert not isinstance(index, Unavailable)
        exceeded += risks[index] > ALPHA
    assert exceeded / REPEATS <= slack(DELTA)


def test_conformal_risk_control_keeps_the_mean_risk_below_alpha():
    order = range(len(RISKS))
    risks = chosen_risks(lambda x: risk_control(x, order, ALPHA, method="conformal").index, True)
    error = risks.std() / np.sqrt(REPEATS)
    assert risks.mean() <= ALPHA + 3 * error
    assert (risks > ALPHA).mean() > 0.02  # a promise about the mean, not about this calibration


@pytest.mark.parametrize("nested", [True, False])
def test_the_best_threshold_on_the_calibration_prompts_breaks_the_promise(nested):
    risks = chosen_risks(loosest_observed, nested)
    assert (risks > ALPHA).mean() > 0.2 > slack(DELTA)


@pytest.mark.parametrize(("alpha", "errors"), [(0.05, 16), (0.02, 4), (0.01, 1)])
def test_most_errors_among_500(alpha, errors):
    assert most_errors(500, alpha, 0.05) == errors
    assert binom.cdf(errors, 500, alpha) <= 0.05 < binom.cdf(errors + 1, 500, alpha)
    losses = np.zeros((500, 2))
    losses[: errors + 1, 1] = 1
    assert risk_control(losses, [0, 1], alpha).index == 0
    losses[0, 1] = 0
    found = risk_control(losses, [0, 1], alpha)
    assert (found.index, found.errors) == (1, errors)


@pytest.mark.parametrize(("alpha", "delta", "units"), [(0.01, 0.05, 299), (0.05, 0.05, 59)])
def test_least_units_without_an_error(alpha, delta, units):
    assert least_units(alpha, delta) == units
    assert most_errors(units, alpha, delta) == 0
    assert most_errors(units - 1, alpha, delta) == -1
    short = risk_control(np.zeros((units - 1, 1)), [0], alpha, delta)
    assert (short.status, short.needed) == ("abstains", units)
    assert str(units) in str(short.index)
    assert risk_control(np.zeros((units, 1)), [0], alpha, delta).status == "controlled"


def test_conformal_needs_one_over_alpha_less_one():
    assert [least_units(alpha) for alpha in (0.05, 0.1, 0.02)] == [19, 9, 49]
    assert risk_control(np.zeros((19, 1)), [0], 0.05, method="conformal").status == "controlled"
    short = risk_control(np.zeros((18, 1)), [0], 0.05, method="conformal")
    assert (short.status, short.needed) == ("abstains", 19)


def test_an_abstention_says_how_many_prompts_the_observed_rate_would_need():
    losses = np.zeros((100, 1))
    losses[:3] = 1
    found = risk_control(losses, [0], 0.05, 0.05)
    assert found.status == "abstains"
    errors = int(np.ceil(0.03 * found.needed))
    assert binom.cdf(errors, found.needed, 0.05) <= 0.05
    assert f"about {found.needed} prompts" in str(found.index)
    losses[:6] = 1
    hopeless = risk_control(losses, [0], 0.05, 0.05)
    assert hopeless.needed == 0
    assert "no number of prompts" in str(hopeless.index)


def test_the_walk_stops_at_the_first_setting_that_fails():
    losses = np.zeros((200, 3))
    losses[:60, 1] = 1
    found = risk_control(losses, [0, 1, 2], 0.05)
    assert found.index == 0
    assert found.p_values[2] < 0.05  # it would have passed, and was not reached
    assert risk_control(losses, [0, 2], 0.05).index == 2


def test_running_worst_makes_losses_monotone_along_the_order():
    losses = np.array([[0.0, 1.0, 0.0], [0.2, 0.1, 0.5]])
    worst = running_worst(losses, [2, 0, 1])
    assert worst.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.5, 0.5]]
    assert risk_control(worst, [2, 0, 1], 0.9, method="conformal").status == "controlled"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": 0.0}, "alpha must lie between 0 and 1"),
        ({"alpha": 1.0}, "alpha must lie between"),
        ({"delta": 1.5}, "delta must lie between"),
        ({"delta": float("nan")}, "delta must lie between"),
        ({"order": [0, 0]}, "once each"),
        ({"order": [0, 2]}, "columns 0 … 1"),
        ({"order": []}, "once each"),
        ({"losses": [[0, 2.0]]}, "between 0 and 1; found 2"),
        ({"losses": [[0, float("nan")]]}, "found nan"),
        ({"losses": [0, 1]}, "units × settings"),
        ({"losses": [[0.5, 0.5]]}, "0 or 1; found 0.5"),
        ({"losses": [[1, 0]], "method": "conformal"}, "never fall"),
        ({"method": "best"}, "learn_then_test or conformal"),
    ],
)
def test_bad_risk_arguments_get_a_sentence(change, words):
    given = {"losses": [[0, 1]], "order": [0, 1], "alpha": 0.05} | change
    with pytest.raises(InvalidInputError, match=words):
        risk_control(**given)
