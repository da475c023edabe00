"""Entropy and dimension from nearest neighbours against closed forms."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.entropy import (
    gaussian_entropy,
    gaussian_surrogate,
    intrinsic_dimension,
    kozachenko_leonenko,
    negentropy,
    neighbour_lists,
    subsampled_interval,
)

NORMAL = 0.5 * math.log(2 * math.pi * math.e)


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("d", "within"), [(1, 0.1), (3, 0.1), (10, 0.2)])
def test_entropy_of_a_gaussian_is_its_closed_form(d, within):
    assert abs(kozachenko_leonenko(normal(2000, d), k=3).value - d * NORMAL) < within


def test_scaling_adds_the_dimension_times_the_log_of_the_scale():
    x = normal(500, 4)
    larger = kozachenko_leonenko(7.0 * x).value - kozachenko_leonenko(x).value
    assert larger == pytest.approx(4 * math.log(7.0), abs=1e-10)


def test_circle_with_its_own_dimension_has_the_log_of_its_length():
    angle = torch.rand(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    circle = torch.stack([(2 * math.pi * angle).cos(), (2 * math.pi * angle).sin()], 1)
    assert kozachenko_leonenko(circle, dimension=1).value == pytest.approx(
        math.log(2 * math.pi), abs=0.05
    )


def test_neighbours_of_other_groups_remove_copies_inside_a_group():
    x = normal(1000, 3)
    twice = torch.cat([x, x + 1e-9 * normal(1000, 3, 5)])
    groups = torch.arange(1000).repeat(2)
    free = kozachenko_leonenko(twice, k=1).value
    grouped = kozachenko_leonenko(twice, k=1, groups=groups).value
    assert free < 3 * NORMAL - 20
    # the candidates are counted twice and lie at half as many places
    assert grouped == pytest.approx(3 * NORMAL + math.log(2), abs=0.15)


def test_groups_of_one_point_change_nothing():
    x = normal(400, 2)
    alone = kozachenko_leonenko(x, groups=torch.arange(400)).value
    assert alone == pytest.approx(kozachenko_leonenko(x).value, abs=1e-12)


def test_grouped_entropy_of_independent_points_is_the_closed_form():
    x = normal(2000, 2)
    grouped = kozachenko_leonenko(x, groups=torch.arange(2000) // 50).value
    assert grouped == pytest.approx(2 * NORMAL, abs=0.1)


@pytest.mark.parametrize("k", [1, 3])
def test_repeated_points_are_refused_with_their_number(k):
    """Also where the k-th neighbour is another point: a law with atoms has no such entropy."""
    x = normal(200, 2)
    x[7] = x[3]
    with pytest.raises(InvalidInputError, match=r"2 of 200 points equal another"):
        kozachenko_leonenko(x, k=k)


def test_repeated_points_of_one_group_are_no_neighbours_and_are_read():
    x, groups = normal(200, 2), torch.arange(200) // 10
    apart = kozachenko_leonenko(x, groups=groups).value
    x[7] = x[6]
    assert abs(kozachenko_leonenko(x, groups=groups).value - apart) < 0.05


def test_too_few_points_for_the_dimension_are_refused():
    with pytest.raises(InvalidInputError, match="10 points for each dimension"):
        kozachenko_leonenko(normal(79, 8))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_points_that_are_not_finite_are_refused(bad):
    x = normal(100, 2)
    x[3, 1] = bad
    with pytest.raises(InvalidInputError, match="finite"):
        kozachenko_leonenko(x)


def test_constant_points_are_refused():
    with pytest.raises(InvalidInputError, match="100 of 100 points"):
        kozachenko_leonenko(torch.ones(100, 2))


@pytest.mark.parametrize("estimator", ["two_nn", "mle"])
@pytest.mark.parametrize("d", [2, 5])
def test_dimension_of_a_flat_patch_in_a_wide_space_is_its_dimension(estimator, d):
    x = torch.rand(2000, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wide = x @ torch.linalg.qr(normal(30, d))[0].mT
    measured = intrinsic_dimension(wide, estimator=estimator)
    assert measured.value == pytest.approx(d, rel=0.1)


def test_dimension_is_read_at_a_scale_that_follows_the_points():
    x = normal(800, 3)
    small, large = (intrinsic_dimension(c * x) for c in (1.0, 10.0))
    assert large.value == pytest.approx(small.value)
    assert large.scale == pytest.approx(10 * small.scale)


def test_an_unknown_estimator_of_dimension_is_refused():
    with pytest.raises(InvalidInputError, match="two_nn"):
        intrinsic_dimension(normal(100, 2), estimator="box")


def test_gaussian_entropy_has_no_bias_at_small_samples():
    d, n = 4, 24
    values = [gaussian_entropy(normal(n, d, seed)) for seed in range(600)]
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values) - d * NORMAL) < 3 * error
    assert error < 0.05


def test_gaussian_entropy_of_points_in_a_plane_is_refused():
    x = normal(100, 3)
    x[:, 2] = x[:, 0]
    with pytest.raises(InvalidInputError, match="lie in"):
        gaussian_entropy(x)


CASES = {
    "uniform": (lambda u: u, 0.1764852),
    "laplace": (lambda u: -torch.sign(u - 0.5) * torch.log1p(-2 * (u - 0.5).abs()), 0.0723649),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("d", [1, 2])
def test_negentropy_per_coordinate_is_its_closed_form(name, d):
    transform, exact = CASES[name]
    u = torch.rand(4000, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    measured = negentropy(transform(u), generator=torch.Generator().manual_seed(0))
    assert measured.value / d == pytest.approx(exact, abs=0.05)


def test_negentropy_of_a_gaussian_is_zero_where_the_estimator_is_biased():
    x = normal(1500, 16)
    measured = negentropy(x, generator=torch.Generator().manual_seed(0))
    assert measured.bias > 0.4
    assert abs(measured.value) < 0.15


def test_surrogate_bias_is_small_in_eight_dimensions():
    measured = negentropy(normal(1500, 8), generator=torch.Generator().manual_seed(0))
    assert abs(measured.bias) < 0.15


def clustered(seed, shared, each=62, d=8):
    """Gaussian points of 24 groups; a share of their variance is common to a group."""
    g = torch.Generator().manual_seed(seed)
    groups = torch.arange(24).repeat_interleave(each)
    own = torch.randn(len(groups), d, generator=g, dtype=torch.float64)
    common = torch.randn(24, d, generator=g, dtype=torch.float64)[groups]
    return math.sqrt(1 - shared) * own + math.sqrt(shared) * common, groups


def test_negentropy_of_gaussian_points_that_groups_share_is_zero():
    """Independent surrogates miss it by -.086 on average over 200 such clouds."""
    values = []
    for seed in range(12):
        x, groups = clustered(seed, 0.2)
        generator = torch.Generator().manual_seed(seed)
        values.append(negentropy(x, groups=groups, generator=generator).value)
    assert abs(np.mean(values)) < 0.03


def test_surrogates_of_groups_have_their_covariance_and_share():
    x, groups = clustered(3, 0.4, d=3)
    x[:, 1:] = normal(len(x), 2, 9)  # one axis is shared, two are not
    drawn = gaussian_surrogate(x, torch.Generator().manual_seed(0), groups=groups)
    assert_close(drawn.mean(0), x.mean(0))
    assert_close(torch.cov(drawn.mT), torch.cov(x.mT))

    def between(y):
        return torch.stack([y[groups == g].mean(0) for g in range(24)]).var(0)

    many = [
        between(gaussian_surrogate(x, torch.Generator().manual_seed(seed), groups=groups))
        for seed in range(20)
    ]
    mean = torch.stack(many).mean(0)
    assert mean[0] == pytest.approx(float(between(x)[0]), rel=0.3)
    assert float(mean[1:].max()) < 0.06 < 0.2 < float(mean[0])
    alone = gaussian_surrogate(x, torch.Generator().manual_seed(0))
    single = gaussian_surrogate(x, torch.Generator().manual_seed(0), groups=torch.arange(len(x)))
    assert_close(alone, single)


def test_surrogates_of_groups_whose_points_are_all_alike_are_drawn_group_by_group():
    x, groups = clustered(0, 1.0 - 1e-12, each=8, d=2)
    drawn = gaussian_surrogate(x, torch.Generator().manual_seed(0), groups=groups)
    within = torch.stack([drawn[groups == g].var(0) for g in range(24)]).mean()
    assert float(within) < 1e-6


def test_lists_give_the_entropy_of_a_subset_exactly():
    x = normal(300, 2)
    lists = neighbour_lists(x, count=64)
    chosen = torch.zeros(300, dtype=torch.bool)
    chosen[::2] = True
    assert_close(
        lists.entropy(3, 2.0, chosen), torch.tensor(kozachenko_leonenko(x[chosen]).value).double()
    )


def test_interval_over_groups_covers_the_entropy_of_a_gaussian():
    hits, repeats = 0, 60
    for seed in range(repeats):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(400, 2, generator=g, dtype=torch.float64)
        groups = torch.arange(400) // 20
        lists = neighbour_lists(x, groups=groups, count=48)
        interval = subsampled_interval(
            lambda chosen, lists=lists: lists.entropy(3, 2.0, chosen),
            groups,
            generator=torch.Generator().manual_seed(1000 + seed),
        )
        hits += interval.low <= 2 * NORMAL <= interval.high
    assert hits >= 0.85 * repeats


def test_interval_needs_several_groups():
    with pytest.raises(InvalidInputError, match="groups"):
        subsampled_interval(lambda chosen: torch.tensor(0.0), torch.zeros(10, dtype=torch.long))
