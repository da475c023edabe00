"""Histograms of two samplers: how far apart, and how far by chance."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import ks_2samp
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling import histograms
from flowscope.flows.sampling.histograms import (
    histogram_counts,
    histogram_distances,
    marginal_parity,
)

BINS = 6
counts = st.lists(st.integers(0, 50), min_size=BINS, max_size=BINS).filter(lambda c: sum(c) > 0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn_counts(rng, law, groups=24, times=2, channels=2, size=40):
    """Counts [G, K, C, bins] of independent draws from one law of each time."""
    law = np.broadcast_to(law, (times, np.shape(law)[-1]))
    shape = (groups, channels)
    found = np.stack([rng.multinomial(size, p, size=shape) for p in law], 1)
    return torch.from_numpy(found)


def test_two_known_laws():
    first, second = torch.tensor([5, 3, 2]), torch.tensor([0.2, 0.2, 0.6])
    tv, ks = histogram_distances(first, second)
    assert_close((tv.item(), ks.item()), (0.4, 0.4))
    tv, ks = histogram_distances(torch.tensor([4, 0, 4, 0]), torch.tensor([0, 1, 0, 1]))
    assert_close((tv.item(), ks.item()), (1.0, 0.5))


def test_the_larger_sample_does_not_weigh_more():
    rows = torch.tensor([[1, 2, 3], [3, 2, 1]])
    scaled = torch.tensor([[10, 20, 30], [9, 6, 3]])
    assert_close(torch.stack(histogram_distances(rows, scaled)), torch.zeros(2, 2).double())


@given(counts, counts)
def test_distances_obey_their_laws(first, second):
    p, q = torch.tensor(first), torch.tensor(second)
    tv, ks = (float(d) for d in histogram_distances(p, q))
    assert 0 <= ks <= tv + 1e-12
    assert tv <= 1 + 1e-12
    assert_close(histogram_distances(q, p), histogram_distances(p, q))
    assert [float(d) for d in histogram_distances(p, 3 * p)] == pytest.approx([0, 0], abs=1e-15)


@given(counts, counts)
def test_kolmogorov_smirnov_is_that_of_scipy(first, second):
    _, ks = histogram_distances(torch.tensor(first), torch.tensor(second))
    values = np.arange(BINS)
    expected = ks_2samp(np.repeat(values, first), np.repeat(values, second), method="asymp")
    assert_allclose(float(ks), expected.statistic, atol=1e-12)


def test_counts_are_those_of_numpy_row_by_row():
    x = torch.randn(5, 3, 7, 4, generator=generator(), dtype=torch.float64)
    found, beyond = histogram_counts(x, 1.5, 8)
    edges = np.linspace(-1.5, 1.5, 9)
    for n in range(5):
        for c in range(3):
            expected = np.histogram(x[n, c].clamp(-1.5, 1.5).numpy(), edges)[0]
            assert found[n, c].tolist() == expected.tolist()
    assert beyond == pytest.approx(float((x.abs() > 1.5).double().mean()))


def test_values_beyond_go_to_the_outermost_bins_and_edges_are_inside():
    x = torch.tensor([[[-7.0, -1.0, -0.5, 0.0, 0.5, 1.0, 9.0, 1e30]]])
    found, beyond = histogram_counts(x, 1.0, 4)
    assert found.dtype == torch.int64
    assert found.tolist() == [[[2, 1, 1, 4]]]
    assert beyond == 3 / 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_counting_does_not_depend_on_panels_or_layout(dtype, monkeypatch):
    x = torch.randn(9, 6, 5, 2, generator=generator()).to(dtype).permute(0, 3, 1, 2)
    whole = histogram_counts(x, 1.0, 16)
    monkeypatch.setattr(histograms, "_VALUES", 70)
    parts = histogram_counts(x, 1.0, 16)
    assert_close(whole, parts)
    assert whole[0].sum(-1).unique().tolist() == [30]
    assert_close(whole[0], histogram_counts(x.double(), 1.0, 16)[0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_value_is_named(bad):
    x = torch.zeros(2, 1, 3)
    x[1, 0, 2] = bad
    with pytest.raises(InvalidInputError, match="1 of 6"):
        histogram_counts(x, 1.0, 4)


@pytest.mark.parametrize(
    ("shape", "width", "bins"), [((4,), 1.0, 4), ((2, 1, 3), 0.0, 4), ((2, 1, 3), 1.0, 1)]
)
def test_a_design_without_histogram_is_refused(shape, width, bins):
    with pytest.raises(InvalidInputError):
        histogram_counts(torch.zeros(shape), width, bins)


@pytest.mark.parametrize(
    ("first", "second"), [([1, 2], [1, 2, 3]), ([0, 0], [1, 1]), ([-1, 3], [1, 1])]
)
def test_what_is_no_pair_of_histograms_is_refused(first, second):
    with pytest.raises(InvalidInputError):
        histogram_distances(torch.tensor(first), torch.tensor(second))


def test_parity_holds_the_distances_of_the_sums_over_groups():
    rng = np.random.default_rng(0)
    a, b, c = (drawn_counts(rng, [0.5, 0.3, 0.2]) for _ in range(3))
    found = marginal_parity(a, b, c, draws=50, generator=generator())
    tv, ks = histogram_distances(a.sum(0), b.sum(0))
    assert_close(found.tv, torch.cat([tv, tv.mean(-1, keepdim=True)], -1))
    assert_close(found.ks, torch.cat([ks, ks.mean(-1, keepdim=True)], -1))
    assert (found.groups, found.draws) == (24, 50)
    assert found.tv_p.shape == found.ks_null_high.shape == (2, 3)


def test_a_null_of_two_groups_of_values_is_the_closed_form():
    """Every group of the second sampler sits in bin 0, of the third in bin 1: d* = |2B − G|/G."""
    G, draws = 16, 4000
    b, c = torch.zeros(2, G, 1, 1, 2).long()
    b[..., 0], c[..., 1] = 3, 3
    found = marginal_parity(b, b, c, draws=draws, generator=generator())
    swaps = np.random.default_rng(0).binomial(G, 0.5, size=100_000)
    d = np.abs(2 * swaps - G) / G
    assert_close(float(found.tv_null[0, 0]), float(np.median(d)))
    assert_close(float(found.tv_null_high[0, 0]), float(np.quantile(d, 0.95)))
    assert found.tv[0, 0] == 0
    assert found.tv_p[0, 0] == 1


def test_exchanging_the_two_runs_of_one_sampler_leaves_the_null():
    rng = np.random.default_rng(1)
    a, b, c = (drawn_counts(rng, [0.5, 0.3, 0.2]) for _ in range(3))
    one = marginal_parity(a, b, c, draws=60, generator=generator())
    other = marginal_parity(a, c, b, draws=60, generator=generator())
    assert_close((one.tv_null, one.tv_null_high), (other.tv_null, other.tv_null_high))
    assert_close((one.ks_null, one.ks_null_high), (other.ks_null, other.ks_null_high))


def test_chunks_of_times_leave_everything_as_it_is(monkeypatch):
    rng = np.random.default_rng(2)
    a, b, c = (drawn_counts(rng, [0.5, 0.3, 0.2], times=5) for _ in range(3))
    whole = marginal_parity(a, b, c, draws=40, generator=generator())
    monkeypatch.setattr(histograms, "_NUMBERS", 1)
    parts = marginal_parity(a, b, c, draws=40, generator=generator())
    for name in ("tv", "tv_low", "tv_high", "tv_null_high", "tv_p", "ks", "ks_low", "ks_p"):
        assert_close(getattr(parts, name), getattr(whole, name))
    assert parts.tv_p_overall == whole.tv_p_overall


@pytest.fixture(scope="module")
def equal_samplers():
    """p values of 200 repeats in which all three samplers draw from one law."""
    rng, found = np.random.default_rng(3), []
    law = rng.dirichlet(np.ones(12), size=3)
    for repeat in range(200):
        runs = [drawn_counts(rng, law, times=3) for _ in range(3)]
        parity = marginal_parity(*runs, draws=99, generator=generator(repeat))
        ends = [parity.tv_p[1, -1], parity.ks_p[1, -1], parity.tv_p_overall, parity.ks_p_overall]
        found.append([float(p) for p in ends])
    return np.array(found)


def test_equal_samplers_are_called_different_as_often_as_stated(equal_samplers):
    share = (equal_samplers <= 0.05).mean(0)
    assert ((share >= 0.01) & (share <= 0.1)).all(), share


def test_p_values_of_equal_samplers_fill_the_unit_interval(equal_samplers):
    assert_allclose(equal_samplers.mean(0), 0.5, atol=0.08)


def test_a_shifted_law_is_found_at_its_time():
    rng = np.random.default_rng(4)
    same, moved = np.full(8, 1 / 8), np.linspace(0.5, 1.5, 8) / 8
    b, c = (drawn_counts(rng, np.stack([same, same]), groups=60) for _ in range(2))
    a = drawn_counts(rng, np.stack([same, moved]), groups=60)
    found = marginal_parity(a, b, c, draws=199, generator=generator())
    assert found.tv_p[1, -1] == found.ks_p[1, -1] == found.tv_p_overall == 1 / 200
    assert found.tv_p[0, -1] > 0.05
    assert found.tv_low[1, -1] > 0
    true = 0.5 * np.abs(same - moved).sum()
    assert found.tv_low[1, -1] <= true <= found.tv_high[1, -1]


def test_a_loud_time_does_not_hide_a_quiet_one_in_the_overall_p_value():
    """Four counts a group at the first time, 4,000 at the second: only ratios to the null tell."""
    rng = np.random.default_rng(7)
    same, moved = np.full(8, 1 / 8), np.linspace(0.9, 1.1, 8) / 8
    loud = [drawn_counts(rng, same, times=1, size=4) for _ in range(3)]
    quiet = [drawn_counts(rng, law, times=1, size=4000) for law in (moved, same, same)]
    runs = [torch.cat(pair, 1) for pair in zip(loud, quiet, strict=True)]
    found = marginal_parity(*runs, draws=199, generator=generator())
    assert found.tv[1, -1] < found.tv_null[0, -1]
    assert found.tv_p_overall == found.ks_p_overall == 1 / 200


def test_ends_of_intervals_are_distances():
    rng = np.random.default_rng(8)
    runs = [drawn_counts(rng, np.full(64, 1 / 64)) for _ in range(3)]
    found = marginal_parity(*runs, draws=99, generator=generator())
    assert found.tv_low.tolist() == [[0.0] * 3] * 2
    assert (found.tv_high >= found.tv).all()


@pytest.mark.parametrize("bend", [0.0, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("bins", [8, 64])
def test_the_interval_covers_whether_laws_are_equal_near_or_far(bins, bend):
    """Nominal .95 from 24 groups; 2d − d* in place of squares loses the zero of equal laws."""
    rng = np.random.default_rng(5)
    p = np.full(bins, 1 / bins)
    q = p * np.linspace(1 - bend, 1 + bend, bins)
    true, tv, ks = 0.5 * np.abs(p - q).sum(), 0, 0
    for repeat in range(100):
        a, b, c = (drawn_counts(rng, law, times=1, channels=1) for law in (p, q, q))
        found = marginal_parity(a, b, c, draws=199, generator=generator(repeat))
        tv += bool(found.tv_low[0, 0] <= true + 1e-12 <= found.tv_high[0, 0] + 2e-12)
        ks += bool(found.ks_low[0, 0] <= true + 1e-12 <= found.ks_high[0, 0] + 2e-12)
    assert tv >= 90
    assert ks >= 90


def test_a_time_at_which_all_samplers_agree_exactly_is_no_evidence():
    rng = np.random.default_rng(6)
    a, b, c = (drawn_counts(rng, [0.5, 0.3, 0.2]) for _ in range(3))
    b[:, 0] = c[:, 0] = a[:, 0]
    found = marginal_parity(a, b, c, draws=99, generator=generator())
    assert found.tv[0].tolist() == found.tv_null_high[0].tolist() == [0, 0, 0]
    assert found.tv_p[0].tolist() == [1, 1, 1]
    assert np.isfinite(found.tv_p_overall)


def refusals():
    good = torch.ones(8, 2, 1, 4).long()
    empty, wrong = good.clone(), good.double()
    empty[3, 1] = 0
    wrong[0, 0, 0, 0] = float("nan")
    yield "same shape", (good, good, good[:, :1])
    yield "8 groups", (good[:7], good[:7], good[:7])
    yield "group 3 has none", (good, empty, good)
    yield "counts must be", (good, good, wrong)
    yield "shape", (good[0], good[0], good[0])


@pytest.mark.parametrize(("match", "runs"), list(refusals()))
def test_what_is_not_three_runs_of_groups_is_refused(match, runs):
    with pytest.raises(InvalidInputError, match=match):
        marginal_parity(*runs, draws=99, generator=generator())


@pytest.mark.parametrize(("draws", "level"), [(5, 0.95), (99, 1.0)])
def test_a_design_without_interval_is_refused(draws, level):
    runs = [torch.ones(8, 1, 1, 4)] * 3
    with pytest.raises(InvalidInputError):
        marginal_parity(*runs, draws=draws, level=level, generator=generator())
