"""Resamples: every unit as likely as any other."""

import torch
from torch.testing import assert_close

from flowscope.flows.sampling import resamples
from flowscope.flows.sampling.resamples import resample_weights, resampled_means


def test_weights_are_multinomial():
    """Mean 1, variance 1 − 1/n, covariance −1/n over 40,000 resamples of five units."""
    weights = resample_weights(40_000, 5, torch.Generator().manual_seed(0))
    assert weights.sum(1).unique().tolist() == [5.0]
    assert_close(weights.mean(0), torch.ones(5).double(), atol=0.02, rtol=0)
    expected = torch.eye(5).double() - 1 / 5
    assert_close(torch.cov(weights.mT), expected, atol=0.03, rtol=0)


def test_means_are_those_of_the_weights_and_panels_do_not_matter(monkeypatch):
    rows = torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = resample_weights(9, 7, torch.Generator().manual_seed(0))
    monkeypatch.setattr(resamples, "_DRAWN", 14)
    found = resampled_means(rows, 9, torch.Generator().manual_seed(0))
    assert_close(found, weights @ rows / 7)
