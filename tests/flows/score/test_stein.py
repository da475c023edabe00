"""Stein's identities pass the true score and nothing else; the spectrum of a score."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.score import (
    anisotropy_spectrum,
    gaussian_score,
    mixture_score,
    noised_stein_identities,
    stein_identities,
)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def cloud(n=4000, seed=0):
    """Points of N(m, C) with spreads from .1 to 100 and their scores."""
    m = torch.tensor([1.0, -20.0, 0.3]).double()
    root = torch.tensor([[100.0, 0.0, 0.0], [3.0, 2.0, 0.0], [0.02, 0.05, 0.1]]).double()
    x = m + torch.randn(n, 3, generator=source(seed)).double() @ root.T
    return x, gaussian_score(x, m, root @ root.T)


def clustered(groups, seed, size=8):
    """Points of a mixture in dependent groups, with their exact scores."""
    w, m = torch.tensor([0.3, 0.7]), torch.tensor([[2.0, 0.0], [-1.0, 1.0]])
    C = torch.stack([torch.eye(2) * 0.25, torch.tensor([[1.0, 0.5], [0.5, 1.0]])])
    k = torch.multinomial(w, groups, replacement=True, generator=source(seed))
    k = k.repeat_interleave(size)
    shared = torch.randn(groups, 2, generator=source(seed + 10_000)).repeat_interleave(size, 0)
    noise = (shared + torch.randn(len(k), 2, generator=source(seed + 20_000))) / 2**0.5
    x = m[k] + (torch.linalg.cholesky(C)[k] @ noise[..., None])[..., 0]
    return mixture_score(x, w, m, C), x, torch.arange(groups).repeat_interleave(size)


@pytest.mark.parametrize("groups", [8, 16, 64])
def test_the_true_score_is_called_wrong_at_the_stated_level(groups):
    """100 draws at 5 %, no tolerance: above 12 with probability .001; without groups, most are."""
    wrong = ignored = 0
    for seed in range(100):
        s, x, owner = clustered(groups, seed)
        wrong += stein_identities(s, x, groups=owner, tolerance=0.0).outcome == "wrong"
        ignored += stein_identities(s, x, tolerance=0.0).outcome == "wrong"
    assert wrong <= 12
    assert ignored >= 40


def test_wrong_and_too_few_points_are_kept_apart():
    s, x, owner = clustered(1024, 0)
    wrong = stein_identities(1.2 * s, x, groups=owner, tolerance=0.0)
    assert (wrong.outcome, wrong.status) == ("wrong", "abstained")
    assert wrong.because.startswith("wrong: E[s_")
    true = stein_identities(s, x, groups=owner)
    assert (true.outcome, true.because) == ("ok", "")
    assert true.detectable < 0.3
    s, x, owner = clustered(16, 0)
    few = stein_identities(1.2 * s, x, groups=owner)
    assert few.outcome == "too few points"
    assert few.detectable > 0.5
    assert "These 16 groups show violations above" in few.because
    fewest = stein_identities(0 * s[:48], x[:48], groups=owner[:48])
    assert fewest.outcome == "too few points", "6 groups decide nothing"
    assert "at least 8 groups are needed" in fewest.because


def test_the_true_score_of_a_mixture_passes():
    w, m = torch.tensor([0.3, 0.7]), torch.tensor([[2.0, 0.0], [-1.0, 1.0]])
    C = torch.stack([torch.eye(2) * 0.25, torch.tensor([[1.0, 0.5], [0.5, 1.0]])])
    k = torch.multinomial(w, 4000, replacement=True, generator=source())
    noise = torch.randn(4000, 2, 1, generator=source(1))
    x = m[k] + (torch.linalg.cholesky(C)[k] @ noise)[..., 0]
    found = stein_identities(mixture_score(x, w, m, C), x, tolerance=0.0)
    assert found.status == "ok"
    assert_close(found.cross, -torch.eye(2).double(), atol=0.15, rtol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, s: torch.zeros_like(s),
        lambda x, s: 1.3 * s,
        lambda x, s: -s,
        lambda x, s: s + 0.3 * s.square().mean(0).sqrt(),
        lambda x, s: s.roll(1, 0),
        lambda x, s: s.flip(1),
    ],
    ids=["zero", "scale", "sign", "shift", "other points", "other axes"],
)
def test_a_wrong_score_fails(wrong):
    x, s = cloud()
    found = stein_identities(wrong(x, s), x)
    assert found.status == "abstained"
    assert "E[s_" in found.because


def test_the_gaussian_fit_of_another_law_passes_too():
    """Necessary, not sufficient: −C⁻¹(x − m) obeys both identities under every law."""
    sign = torch.randint(2, (4000, 1), generator=source()).double() * 2 - 1
    x = 2 * sign + 0.3 * torch.randn(4000, 1, generator=source(1)).double()
    fit = gaussian_score(x, x.mean(0), torch.cov(x.T)[None, None])
    truth = mixture_score(x, [0.5, 0.5], [[-2.0], [2.0]], [[[0.09]], [[0.09]]])
    assert (fit - truth).norm() > 0.9 * truth.norm()
    assert stein_identities(fit, x).status == "ok"


def test_zero_is_off_by_one():
    x, s = cloud()
    found = stein_identities(0 * s, x)
    assert found.largest_deviation == pytest.approx(1.0)
    assert_close(found.cross, torch.zeros(3, 3).double())


def test_standard_errors_are_those_of_an_independent_repetition():
    """Spread of E[s xᵀ] over 300 draws of 500 points against the reported error, to 15 %."""
    draws = [stein_identities(s, x) for x, s in (cloud(500, seed) for seed in range(300))]
    spread = torch.stack([found.cross for found in draws]).std(0)
    reported = torch.stack([found.cross_error for found in draws]).mean(0)
    assert_close(reported / spread, torch.ones(3, 3).double(), atol=0.15, rtol=0)


def test_copies_within_a_group_add_no_certainty():
    x, s = cloud(500)
    once = stein_identities(s, x)
    groups = torch.arange(500).repeat_interleave(4)
    copied = stein_identities(s.repeat_interleave(4, 0), x.repeat_interleave(4, 0), groups=groups)
    assert_close(copied.cross_error, once.cross_error, rtol=1e-6, atol=0)
    assert_close(copied.mean_error, once.mean_error, rtol=1e-6, atol=0)


def test_units_of_the_coordinates_do_not_matter():
    x, s = cloud()
    units = torch.tensor([1e-3, 7.0, 1e4]).double()
    one, other = stein_identities(1.1 * s, x), stein_identities(1.1 * s / units, x * units)
    assert other.largest_z == pytest.approx(one.largest_z)
    assert other.largest_deviation == pytest.approx(one.largest_deviation)


def test_too_few_points_abstain():
    x, s = cloud(12)
    found = stein_identities(s, x)
    assert found.status == "abstained"
    assert "too few points" in found.because


def test_a_denoising_score_belongs_to_noised_points():
    """N(0, 1) at σ = 1: s = −x/2 passes at noised points and fails at clean ones."""
    x = torch.randn(4000, 1, generator=source())
    assert noised_stein_identities(lambda y: -y / 2, x, 1.0, generator=source(1)).status == "ok"
    assert stein_identities(-x / 2, x).status == "abstained"
    assert noised_stein_identities(lambda y: -y, x, 1.0, generator=source(1)).status == "abstained"


def test_spectrum_of_a_gaussian_score_is_the_inverse_covariance():
    _, s = cloud(20_000)
    root = torch.tensor([[100.0, 0.0, 0.0], [3.0, 2.0, 0.0], [0.02, 0.05, 0.1]]).double()
    exact = torch.linalg.eigvalsh(torch.linalg.inv(root @ root.T)).flip(0)
    found = anisotropy_spectrum(s)
    assert_close(found.eigenvalues, exact, rtol=0.05, atol=0)
    assert found.status == "ok"


def test_even_score_has_full_effective_rank_and_a_flat_one_abstains():
    s = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    assert anisotropy_spectrum(s).effective_rank == pytest.approx(4.0)
    assert anisotropy_spectrum(s).condition == pytest.approx(1.0)
    flat = anisotropy_spectrum(torch.cat([s[:, :3], s[:, :1]], 1))
    assert (flat.rank, flat.status) == (3, "abstained")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: stein_identities(x[:, :2], x), "score_values must have shape"),
        (lambda x: stein_identities(x[:4], x[:4]), "at least 8 points"),
        (lambda x: stein_identities(x / 0, x), "finite"),
        (lambda x: stein_identities(x, x * torch.tensor([1.0, 0.0, 1.0])), "must vary"),
        (lambda x: stein_identities(x, x, groups=torch.arange(len(x)) % 3), "at least 4 groups"),
        (lambda x: stein_identities(x, x, level=0.0), "level must lie"),
        (lambda x: noised_stein_identities(lambda y: y, x, 0.0, generator=source()), "sigma"),
        (lambda x: anisotropy_spectrum(x[:2]), "as many points as coordinates"),
        (lambda x: anisotropy_spectrum(0 * x), "all be zero"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call(cloud(100)[0])
