"""A score against the law its points follow: gradient errors are measured, rotations unseen."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from flowscope.errors import InvalidInputError
from flowscope.flows.score import score_consistency

COVARIANCE = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussian(n=2000, seed=0, covariance=COVARIANCE):
    """Points of a Gaussian and its exact score there."""
    noise = torch.randn(n, len(covariance), generator=generator(seed), dtype=torch.float64)
    x = noise @ torch.linalg.cholesky(covariance).mT
    return x, -x @ torch.linalg.inv(covariance)


def consistency(x, s, seed=0, **options):
    return score_consistency(x, s, generator=generator(seed), **options)


def turned(x, covariance=COVARIANCE):
    """Σ^{1/2} Q Σ^{-1/2} x, which leaves N(0, Σ) where it is."""
    values, axes = torch.linalg.eigh(covariance)
    root = axes @ values.sqrt().diag() @ axes.mT
    Q = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return x @ (root @ Q @ torch.linalg.inv(root)).mT


def errors():
    yield "exact", lambda x, s: 0 * x, 0.0
    yield "scaled", lambda x, s: 0.3 * s, 0.3**2 * 1.25
    yield "shifted", lambda x, s: torch.tensor([0.3, -0.4]).double().expand_as(x), 0.25
    yield "turned", lambda x, s: turned(x), 0.0


@pytest.mark.parametrize(("name", "error", "truth"), list(errors()))
def test_the_gradient_part_of_the_error_is_measured(name, error, truth):
    x, s = gaussian()
    found = consistency(x, s + error(x, s))
    assert found.status == "ok"
    assert found.low <= truth <= found.high
    assert abs(found.energy - truth) < 0.03
    assert (found.p_value < 0.01) == (truth > 0)
    assert (found.n, found.groups, found.functions) == (2000, 2000, 5)


def test_with_many_points_the_energy_is_that_of_theory():
    x, s = gaussian(200_000)
    for name, error, truth in errors():
        assert_allclose(consistency(x, s + error(x, s)).energy, truth, atol=4e-3, err_msg=name)


def test_a_third_degree_error_needs_the_third_degree():
    """e = ∇(x³/6 − x/2) for N(0, 1): orthogonal to gradients of degree two, energy E(x²−1)²/4."""
    x, s = gaussian(50_000, covariance=torch.eye(1).double())
    e = (x.square() - 1) / 2
    assert abs(consistency(x, s + e, degree=2).energy) < 0.02
    found = consistency(x, s + e, degree=3)
    assert_allclose(found.energy, 0.5, atol=0.04)
    assert found.functions == 3


def test_any_affine_coordinates_give_the_same_energy_in_the_same_metric():
    """Turning y and s and shifting y changes nothing; scaling y by c divides the energy by c²."""
    x, s = gaussian()
    s = s + 0.2 * s
    plain = consistency(x, s)
    turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    moved = consistency(x @ turn + 5, s @ turn)
    scaled = consistency(10 * x, s / 10)
    for name in ("energy", "low", "high", "p_value"):
        assert_allclose(getattr(moved, name), getattr(plain, name), rtol=1e-8)
    assert_allclose(scaled.energy, plain.energy / 100, rtol=1e-8)


def spread_of(error, repeats, **options):
    found = []
    for repeat in range(repeats):
        x, s = gaussian(500, seed=repeat)
        one = consistency(x, s + error(x, s), seed=repeat, draws=99, **options)
        found.append((one.energy, one.low, one.high, one.p_value))
    return np.array(found).T


@pytest.mark.parametrize("c", [0.0, 0.1, 0.3])
def test_the_interval_covers_and_the_energy_is_unbiased(c):
    """Nominal .95 over 100 repeats; near zero the interval is wider than it need be."""
    energy, low, high, _ = spread_of(lambda x, s: c * s, 100)
    truth = c**2 * 1.25
    assert ((low <= truth) & (truth <= high)).mean() >= 0.9
    assert abs(energy.mean() - truth) < 3 * energy.std() / 10


def test_an_exact_score_and_a_rotation_are_blamed_as_often_as_stated():
    exact = spread_of(lambda x, s: 0 * x, 100)[3]
    rotated = spread_of(lambda x, s: turned(x), 100)[3]
    assert 0 < (exact <= 0.05).mean() <= 0.11
    assert 0 < (rotated <= 0.05).mean() <= 0.11


def test_copies_of_one_point_are_one_group():
    """Each point five times: as groups they are n points, as points they pretend to be 5n."""
    x, s = gaussian(300)
    groups = torch.arange(300).repeat_interleave(5)
    copied = [v.repeat_interleave(5, 0) for v in (x, s)]
    honest = consistency(*copied, groups=groups)
    assert_allclose(honest.energy, consistency(x, s).energy, atol=1e-4)
    assert honest.groups == 300
    fooled = consistency(*copied)
    assert fooled.high - fooled.low < 0.5 * (honest.high - honest.low)


def test_too_few_groups_or_points_abstain_with_a_sentence():
    x, s = gaussian(200)
    few = consistency(x, s, groups=torch.arange(200) % 12)
    assert few.status == "abstained"
    assert "12 groups" in few.because
    assert math.isnan(few.energy)
    wide, score = gaussian(200, covariance=torch.eye(9).double())
    small = consistency(wide, score)
    assert small.status == "abstained"
    assert "54 functions" in small.because


def refusals():
    x, s = gaussian(100)
    still, broken = x.clone(), s.clone()
    still[:, 1] = 2.0
    broken[3, 0] = float("nan")
    yield "shape", (x, s[:, :1]), {}
    yield "finite", (x, broken), {}
    yield "vary", (still, s), {}
    yield "span", (torch.cat([x, x.sum(1, keepdim=True)], 1), torch.cat([s, s[:, :1]], 1)), {}
    yield "degree", (x, s), {"degree": 0}
    yield "draws", (x, s), {"draws": 3}
    yield "level", (x, s), {"level": 1.0}
    yield "groups", (x, s), {"groups": torch.arange(7)}


@pytest.mark.parametrize(("match", "given", "options"), list(refusals()))
def test_bad_input_is_named(match, given, options):
    with pytest.raises(InvalidInputError, match=match):
        consistency(*given, **options)
