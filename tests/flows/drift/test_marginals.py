import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, norm
from tests.flows.drift.worlds import seeded
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    discrepancy,
    distance_kernel,
    energy_distance,
    gaussian_kernel,
    ks_distance,
    ks_draws,
    mmd2,
)


def normal(n, r, seed, shift=0.0):
    return torch.randn(n, r, generator=seeded(seed)).double() + shift


def gaussian_mmd2(m, h, d):
    """Two Gaussians of unit variance, a distance m apart, under a kernel of width h."""
    return 2 * (h**2 / (h**2 + 2)) ** (d / 2) * (1 - math.exp(-(m**2) / (2 * (h**2 + 2))))


def gaussian_energy(m):
    """Energy distance of N(0,1) and N(m,1): x − y is N(−m, 2), and E|N(m, 2)| is known."""
    mean = 2 / math.sqrt(math.pi) * math.exp(-(m**2) / 4) + m * (2 * norm.cdf(m / math.sqrt(2)) - 1)
    return 2 * mean - 4 / math.sqrt(math.pi)


@pytest.mark.parametrize(("h", "shift"), [(1.0, 0.0), (1.0, 0.5), (3.0, 1.0)])
def test_mmd_of_gaussians_on_average_over_samples(h, shift):
    d = 3
    found = [
        mmd2(normal(60, d, 2 * s), normal(40, d, 2 * s + 1, shift), bandwidth=h) for s in range(200)
    ]
    expected = gaussian_mmd2(shift * math.sqrt(d), h, d)
    assert abs(np.mean(found) - expected) < 3 * np.std(found) / math.sqrt(200)
    if shift == 0:
        assert min(found) < 0 < max(found)


def test_energy_distance_of_gaussians():
    found = [
        energy_distance(normal(80, 1, 2 * s), normal(80, 1, 2 * s + 1, 1.5)) for s in range(100)
    ]
    assert abs(np.mean(found) - gaussian_energy(1.5)) < 3 * np.std(found) / 10


@pytest.mark.parametrize("delta", [0.5, 2.0])
def test_ks_of_shifted_gaussians(delta):
    """2Φ(δ/2) − 1; the empirical distance of 2·20,000 points is within 1.6/√10⁴."""
    found = ks_distance(normal(20_000, 2, 0), normal(20_000, 2, 1, delta))
    assert_close(found, torch.full((2,), 2 * norm.cdf(delta / 2) - 1).double(), atol=0.016, rtol=0)


def test_ks_is_that_of_scipy_also_with_ties():
    x, y = (normal(n, 3, n).round(decimals=1) for n in (50, 70))
    expected = [ks_2samp(x[:, i], y[:, i]).statistic for i in range(3)]
    np.testing.assert_allclose(ks_distance(x, y), expected)


def brute_force(x, y, groups, kernel):
    """Mean over pairs of rows of different prompts, row by row."""
    K = kernel(x, x) + kernel(y, y) - kernel(x, y) - kernel(y, x)
    other = groups[:, None] != groups
    return (K * other).sum() / other.sum()


@pytest.mark.parametrize("kernel", [gaussian_kernel(1.3), distance_kernel])
def test_sums_over_prompts_are_those_of_brute_force(kernel):
    x, y = normal(30, 2, 0), normal(30, 2, 1, 0.3)
    groups = torch.randint(6, (30,), generator=seeded(2))
    found = discrepancy(x, y, groups, kernel=kernel, draws=50, generator=seeded(3))
    np.testing.assert_allclose(found.value, brute_force(x, y, groups, kernel))
    drawn = torch.randint(6, (50, 6), generator=seeded(3))
    for draw, one in zip(found.draws[:5], drawn[:5], strict=True):
        rows = torch.cat([torch.nonzero(groups == g)[:, 0] for g in one])
        np.testing.assert_allclose(draw, brute_force(x[rows], y[rows], groups[rows], kernel))


def test_tokens_that_repeat_their_prompt_do_not_look_like_a_difference():
    """Prompts differ, laws do not: pairs within a prompt would make every cloud look tight."""
    found, naive = [], []
    for s in range(100):
        x, y = (normal(10, 2, 2 * s + i).repeat_interleave(8, 0) for i in (0, 1))
        groups = torch.arange(80) // 8
        found.append(mmd2(x, y, bandwidth=1.0, groups=groups))
        naive.append(mmd2(x, y, bandwidth=1.0))
    assert abs(np.mean(found)) < 3 * np.std(found) / 10
    assert np.mean(naive) > 0.1


def test_without_prompts_each_row_stands_for_itself():
    x, y = normal(20, 2, 0), normal(20, 2, 1)
    paired = mmd2(x, y, bandwidth=1.0, groups=torch.arange(20))
    K = gaussian_kernel(1.0)
    cross = (K(x, y).sum() - K(x, y).diagonal().sum()) / (20 * 19)
    free = mmd2(x, y, bandwidth=1.0)
    np.testing.assert_allclose(paired - free, 2 * (K(x, y).mean() - cross), atol=1e-12)


def test_clouds_that_coincide_are_at_distance_zero():
    x = normal(40, 3, 0)
    groups = torch.arange(40) // 4
    assert mmd2(x, x, groups=groups) == pytest.approx(0, abs=1e-14)
    assert ks_distance(x, x).tolist() == [0.0] * 3


def test_bands_cover_the_truth():
    """Energy distance of N(0,1) and N(1.5,1), 40 prompts of 5: 90 % bands, 60 times."""
    covered = 0
    for s in range(60):
        x, y = normal(200, 1, 2 * s), normal(200, 1, 2 * s + 1, 1.5)
        found = discrepancy(
            x, y, torch.arange(200) // 5, kernel=distance_kernel, generator=seeded(s)
        )
        low, high = torch.quantile(found.draws, torch.tensor([0.05, 0.95]).double())
        covered += bool(low <= gaussian_energy(1.5) <= high)
    assert 46 <= covered <= 60  # 54 expected, sd 2.3


def test_ks_is_resampled_by_prompt():
    x = normal(30, 1, 0).repeat_interleave(10, 0)
    y = normal(30, 1, 1).repeat_interleave(10, 0)
    prompts, tokens = (
        ks_draws(x, y, g, draws=100, generator=seeded(0)).std()
        for g in (torch.arange(300) // 10, torch.arange(300))
    )
    assert prompts > 1.5 * tokens


def test_impossible_clouds_are_refused():
    x = normal(10, 2, 0)
    with pytest.raises(InvalidInputError, match="same coordinates"):
        ks_distance(x, x[:, :1])
    with pytest.raises(InvalidInputError, match="two prompts"):
        mmd2(x, x, groups=torch.zeros(10).long())
    with pytest.raises(InvalidInputError, match="one token"):
        mmd2(x, x[:5], groups=torch.arange(10))
    with pytest.raises(InvalidInputError, match="finite"):
        energy_distance(x, x * math.nan)
    with pytest.raises(InvalidInputError, match="bandwidth must be"):
        mmd2(torch.zeros(4, 1), torch.zeros(4, 1))
