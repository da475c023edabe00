import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from tests.flows.drift.worlds import seeded

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import fit_budget, rank_correlation


def tokens(n=4000, per_prompt=10, seed=0):
    m = 1 + torch.rand(n, generator=seeded(seed)).double()
    s = m**2 * (1 + 3 * torch.rand(n, generator=seeded(seed + 1)).double())
    return m, s, torch.arange(n) // per_prompt


def exponential(n, seed):
    return -torch.rand(n, generator=seeded(seed)).double().log()


def test_planted_alphas_are_recovered():
    m, s, prompts = tokens()
    found = fit_budget(0.3 * m + 0.02 * s, m, s, prompts, generator=seeded(0))
    np.testing.assert_allclose(found.alphas, (0.3, 0.02))
    noise = 0.01 * torch.randn(4000, generator=seeded(7)).double()
    shaken = fit_budget(0.3 * m + 0.02 * s + noise, m, s, prompts, generator=seeded(0))
    np.testing.assert_allclose(shaken.alphas, (0.3, 0.02), rtol=0.05)


def test_alphas_are_never_negative():
    m, s, prompts = tokens()
    found = fit_budget(0.3 * m, m, s, prompts)
    assert fit_budget((10 - s).clamp_min(0), m, s, prompts).alphas[1] == 0
    np.testing.assert_allclose(found.alphas, (0.3, 0.0), atol=1e-9)


def test_least_squares_covers_half_and_the_factor_its_level():
    """Errors symmetric about the budget; coverage of 2,000 tokens is off by .011 (1 se) at ½."""
    m, s, prompts = tokens()
    noise = 0.05 * torch.randn(4000, generator=seeded(3)).double()
    for level in (0.8, 0.9):
        found = fit_budget(m + 0.1 * s + noise, m, s, prompts, level=level, generator=seeded(1))
        assert abs(found.coverage - 0.5) < 0.05
        assert abs(found.level_coverage - level) < 0.03


def test_coverage_over_many_halves_is_the_level_on_average():
    """Prompts with an error of their own: each split is off, their mean is not."""
    m, s, prompts = tokens(n=400)
    own = exponential(40, 5)[prompts]
    covered = [
        fit_budget(m * own, m, s, prompts, generator=seeded(i)).level_coverage for i in range(100)
    ]
    assert np.std(covered) > 0.03
    assert abs(np.mean(covered) - 0.9) < 0.06


def test_halves_are_whole_prompts_and_values_are_the_budget():
    m, s, prompts = tokens(n=100)
    found = fit_budget(m, m, s, prompts, generator=seeded(2))
    assert set(prompts[found.calibration].tolist()).isdisjoint(prompts[~found.calibration].tolist())
    torch.testing.assert_close(found.values, found.alphas[0] * m + found.alphas[1] * s)


def test_rank_correlation_is_that_of_scipy_and_its_draws_spread_like_prompts():
    n, per_prompt = 600, 20
    own = torch.randn(n // per_prompt, generator=seeded(0)).double()
    x = own.repeat_interleave(per_prompt).exp()
    y = (own + torch.randn(n // per_prompt, generator=seeded(1)).double()).exp()
    y = y.repeat_interleave(per_prompt)
    prompts = torch.arange(n) // per_prompt
    found = rank_correlation(x, y, prompts, draws=400, generator=seeded(2))
    np.testing.assert_allclose(found.value, spearmanr(x, y).statistic)
    alone = rank_correlation(x, y, torch.arange(n), draws=400, generator=seeded(2))
    # 30 prompts, not 600 tokens: √20 times as wide.
    assert 3 < found.draws.std() / alone.draws.std() < 6
    low, high = found.interval()
    assert low < found.value < high


def test_impossible_input_is_refused():
    m, s, prompts = tokens(n=40)
    with pytest.raises(InvalidInputError, match="not negative"):
        fit_budget(-m, m, s, prompts)
    with pytest.raises(InvalidInputError, match="at least 9 tokens"):
        fit_budget(m[:12], m[:12], s[:12], torch.arange(12))
    with pytest.raises(InvalidInputError, match="2 folds for 1 prompts"):
        fit_budget(m, m, s, torch.zeros(40).long())
    with pytest.raises(InvalidInputError, match="Nothing moves"):
        fit_budget(m, 0 * m, 0 * s, prompts)
    with pytest.raises(InvalidInputError, match="constant"):
        rank_correlation(m, 0 * m, prompts, generator=seeded(0))
