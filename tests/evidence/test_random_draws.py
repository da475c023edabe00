"""Distance from random draws: the spread over prompts and over draws is in the interval."""

import numpy as np
import pytest

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.random_draws import distance_from_draws
from flowscope.records import Interval, Unavailable


def drawn(rng, twins, prompts, spreads):
    a, b, c = spreads
    x = a * rng.normal(size=(twins + 1, 1)) + c * rng.normal(size=(twins + 1, prompts))
    return x[0] - x[1:] + b * rng.normal(size=(1, prompts))


def test_equal_draws_leave_the_interval_over_prompts():
    row = np.random.default_rng(0).normal(size=12)
    mean, interval = distance_from_draws(np.tile(row, (3, 1)), seed=4)
    counts = resampled_counts(12, resamples=999, seed=4)
    points, plain = mean_over_prompts(row[:, None], np.ones((12, 1)), counts)
    assert mean == pytest.approx(points[0])
    assert isinstance(interval, Interval)
    np.testing.assert_allclose(
        [interval.low, interval.high], [plain.low[0], plain.high[0]], rtol=1e-12
    )


def test_equal_prompts_leave_the_student_interval_of_one_more_draw():
    column = np.array([1.0, 2.0, 6.0])
    mean, interval = distance_from_draws(np.tile(column[:, None], (1, 9)))
    reach = 4.302652729749464 * column.std(ddof=1) * np.sqrt(4 / 3)
    assert (mean, interval.low, interval.high) == pytest.approx((3.0, 3 - reach, 3 + reach))


@pytest.mark.parametrize("spreads", [(0.0, 1.0, 0.3), (0.3, 1.0, 0.3), (1.0, 0.3, 0.3)])
@pytest.mark.parametrize("prompts", [8, 16])
def test_the_interval_misses_in_at_most_five_per_cent(spreads, prompts):
    rng, missed = np.random.default_rng(prompts), 0
    for repeat in range(300):
        _, interval = distance_from_draws(drawn(rng, 3, prompts, spreads), seed=repeat % 8)
        missed += not interval.low <= 0 <= interval.high
    assert missed <= 300 * 0.05 + 2 * np.sqrt(300 * 0.05 * 0.95)


def test_a_prompt_or_a_draw_without_a_value_is_left_out():
    values = np.random.default_rng(1).normal(size=(4, 10))
    holed = np.full((5, 11), np.nan)
    holed[:4, :10] = values
    assert distance_from_draws(holed)[0] == pytest.approx(distance_from_draws(values)[0])


def test_one_draw_has_no_spread_and_one_prompt_has_no_interval():
    values = np.random.default_rng(2).normal(size=(3, 9))
    assert isinstance(distance_from_draws(values[:1])[1], Unavailable)
    assert isinstance(distance_from_draws(values[:, :1])[1], Unavailable)
    mean, interval = distance_from_draws(np.full((3, 9), np.nan))
    assert np.isnan(mean)
    assert isinstance(interval, Unavailable)


def test_a_list_is_refused():
    with pytest.raises(InvalidInputError, match="draws"):
        distance_from_draws(np.zeros(4))
