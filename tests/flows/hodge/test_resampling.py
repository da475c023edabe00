"""BCa intervals: against scipy, and where they do not exist."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import bootstrap

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import bca_interval


def test_agrees_with_scipy_on_the_variance_of_a_skewed_sample():
    rng = np.random.default_rng(0)
    x = rng.exponential(size=60)
    peer = bootstrap((x,), np.var, n_resamples=9999, method="BCa", rng=rng)
    draws = torch.from_numpy(peer.bootstrap_distribution)
    jackknife = torch.tensor([np.var(np.delete(x, i)) for i in range(60)])
    ours = bca_interval(float(np.var(x)), draws, jackknife)
    assert ours.method == "bca"
    # scipy takes quantiles without interpolation between order statistics
    assert_allclose([ours.low, ours.high], list(peer.confidence_interval), rtol=5e-3)


def test_symmetric_case_is_the_percentile_interval():
    draws = torch.linspace(-1, 1, 2000, dtype=torch.float64)
    ours = bca_interval(0.0, draws, torch.tensor([-1.0, 0.0, 1.0]).double(), 0.8)
    assert_allclose([ours.low, ours.high], [-0.8, 0.8], atol=1e-9)


@pytest.mark.parametrize(
    ("point", "jackknife", "why"),
    [(2.0, [-1.0, 0.0, 1.0], "one side"), (0.0, [1.0, 1.0, 1.0], "do not vary")],
)
def test_falls_back_to_percentiles_and_says_so(point, jackknife, why):
    draws = torch.linspace(-1, 1, 2000, dtype=torch.float64)
    ours = bca_interval(point, draws, torch.tensor(jackknife).double(), 0.9)
    assert ours.method.startswith("percentile")
    assert why in ours.method
    assert_allclose([ours.low, ours.high], [-0.9, 0.9], atol=1e-9)


def test_bad_input_is_refused():
    draws, three = torch.linspace(0, 1, 50).double(), torch.arange(3).double()
    for arguments, match in (
        ((0.5, draws, three, 1.5), "level"),
        ((0.5, draws[:5], three), "at least 20"),
        ((0.5, draws * torch.nan, three), "finite"),
        ((float("nan"), draws, three), "point"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            bca_interval(*arguments)
