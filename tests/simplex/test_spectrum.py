"""Eigenvalues of the mobility against dense linear algebra, Lanczos and closed forms."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, eigsh
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError


def dense_spectrum(p: torch.Tensor) -> torch.Tensor:
    J = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return torch.linalg.eigvalsh(J).flip(-1)


def peaked_spectrum(p: torch.Tensor) -> torch.Tensor:
    """Spectrum with p₁(1−p₁) read from the tail: plain ppᵀ loses it to cancellation."""
    J = torch.diag(p) - torch.outer(p, p)
    J[0, 0] = p[0] * p[1:].sum()
    return torch.linalg.eigvalsh(J).flip(-1)


CASES = {
    "two outcomes": [0.9, 0.1],
    "distinct": [0.4, 0.3, 0.2, 0.1],
    "tie at the top": [0.3, 0.3, 0.2, 0.15, 0.05],
    "three at the top": [0.3, 0.3, 0.3, 0.1],
    "tie below": [0.5, 0.25, 0.25],
    "ties everywhere": [0.2, 0.2, 0.2, 0.15, 0.15, 0.05, 0.05],
    "uniform": [0.125] * 8,
    "zeros": [0.6, 0.0, 0.3, 0.0, 0.1],
    "half and half": [0.5, 0.5, 0.0, 0.0],
    "vertex": [0.0, 1.0, 0.0],
    "nearly tied": [0.3 + 1e-9, 0.3, 0.3 - 1e-9, 0.1],
    "many scales": [0.9, 0.09, 0.009, 0.0009, 0.0001],
}
every_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())


@every_case
def test_norm_is_the_largest_eigenvalue(values):
    p = torch.tensor(values, dtype=torch.float64)
    assert_close(simplex.mobility_norm(p), dense_spectrum(p)[0], rtol=1e-12, atol=1e-15)


@every_case
def test_spectrum_is_that_of_the_matrix(values):
    p = torch.tensor(values, dtype=torch.float64)
    assert_close(simplex.mobility_spectrum(p, len(p)), dense_spectrum(p), rtol=1e-10, atol=1e-15)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-3, 0.1, 0.1, 1.0, 1.0, 3.0, 7.0]), min_size=2, max_size=9)
    .filter(sum)
    .map(lambda w: torch.tensor(w, dtype=torch.float64) / sum(w))
)
def test_spectrum_of_rows_full_of_ties_and_zeros(p):
    spectrum = dense_spectrum(p)
    assert_close(simplex.mobility_spectrum(p, len(p)), spectrum, rtol=1e-10, atol=1e-15)
    assert_close(simplex.mobility_norm(p), spectrum[0], rtol=1e-12, atol=1e-15)


def test_the_numbers_of_the_theory_page():
    # 000 J.2 claims λ ≤ ¼.
    assert_close(simplex.mobility_norm([0.9, 0.1]).item(), 0.18)
    spectrum = simplex.mobility_spectrum([0.5, 0.25, 0.25], 3)
    assert_close(spectrum, torch.tensor([0.375, 0.25, 0.0], dtype=torch.float64))
    assert_close(simplex.mobility_norm([0.5, 0.5, 0.0]).item(), 0.5)


def test_norm_is_at_most_twice_the_largest_variance():
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(-2, 1, 500, dtype=torch.float64)[:, None]
    p = torch.softmax(scale * torch.randn(500, 9, generator=generator, dtype=torch.float64), -1)
    bound = 2 * (p * (1 - p)).amax(-1)
    assert (simplex.mobility_norm(p) <= bound * (1 + 1e-12)).all()
    assert (bound <= 0.5).all()


def test_eigenvalues_interlace_the_sorted_outcomes_and_sum_to_the_trace():
    p = torch.softmax(torch.randn(5, 40, generator=torch.Generator().manual_seed(1)).double(), -1)
    spectrum = simplex.mobility_spectrum(p, 40)
    ordered = p.sort(-1, descending=True).values
    assert (spectrum <= ordered).all()
    assert (spectrum[:, :-1] >= ordered[:, 1:]).all()
    assert_close(spectrum.sum(-1), simplex.mobility_trace(p))
    assert_close(spectrum.square().sum(-1).sqrt(), simplex.mobility_frobenius(p))


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10, 1e-14])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norm_of_peaked_rows_keeps_its_relative_accuracy(delta, dtype):
    generator = torch.Generator().manual_seed(2)
    for power, v in itertools.product((0.0, 1.0, 6.0), (3, 60)):
        tail = torch.rand(v - 1, generator=generator, dtype=torch.float64) ** power
        tail = (delta * tail / tail.sum()).to(dtype)
        p = torch.cat([torch.tensor([1 - delta], dtype=dtype), tail])
        oracle = peaked_spectrum(p.double() / p.double().sum())[0].item()
        tolerance = 1e-6 if dtype == torch.float32 else 1e-13
        assert_close(simplex.mobility_norm(p).item(), oracle, rtol=tolerance, atol=0)
        assert_close(simplex.mobility_spectrum(p, 1)[0].item(), oracle, rtol=tolerance, atol=0)


def bisected_norm(p: np.ndarray) -> float:
    """λ_max by plain bisection of Σ p/(p − λ) in float64."""
    top = p.argmax()
    tail = np.delete(p, top)
    low, high = tail.max(), p[top]
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        below = p[top] / (p[top] - middle) < (tail / (middle - tail)).sum()
        low, high = (middle, high) if below else (low, middle)
    return 0.5 * (low + high)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 2.0, 6.0, 15.0])
def test_norm_over_a_vocabulary_in_float32(scale):
    z = scale * torch.randn(3, 50_257, generator=torch.Generator().manual_seed(3))
    p = torch.softmax(z, -1)
    exact = (p.double() / p.double().sum(-1, keepdim=True)).numpy()
    oracle = torch.tensor([bisected_norm(row) for row in exact])
    assert_close(simplex.mobility_norm(p).double(), oracle.double(), rtol=1e-6, atol=0)


def test_norm_over_a_vocabulary_agrees_with_lanczos():
    z = 3 * torch.randn(50_257, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    p = torch.softmax(z, -1)
    q = p.numpy()
    J = LinearOperator((q.size, q.size), matvec=lambda v: q * (v - q @ v), dtype=np.float64)
    largest = eigsh(J, k=4, which="LA", return_eigenvectors=False, tol=1e-12)[::-1]
    assert_close(simplex.mobility_norm(p).item(), largest[0], rtol=1e-10, atol=0)
    assert_close(simplex.mobility_spectrum(p, 4).numpy(), largest.copy(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("values", [[0.4, 0.3, 0.2, 0.1], [0.3, 0.3, 0.25, 0.15]])
def test_slopes_of_simple_eigenvalues(values):
    z = torch.tensor(values, dtype=torch.float64).log().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: simplex.mobility_norm(torch.softmax(z, -1)), z)
    assert torch.autograd.gradcheck(lambda z: simplex.mobility_spectrum(torch.softmax(z, -1), 4), z)


def test_slope_where_an_outcome_has_no_mass():
    p = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64, requires_grad=True)
    norm, second = simplex.mobility_norm(p), simplex.mobility_spectrum(p, 2)[1]
    inward = torch.tensor([-0.5, -0.5, 1.0], dtype=torch.float64)
    h = 1e-7
    moved = p.detach() + h * inward
    for value, function in [
        (norm, simplex.mobility_norm),
        (second, lambda p: simplex.mobility_spectrum(p, 2)[1]),
    ]:
        (slope,) = torch.autograd.grad(value, p, retain_graph=True)
        assert_close(slope @ inward, (function(moved) - value.detach()) / h, rtol=1e-5, atol=1e-6)


def test_slopes_of_tied_eigenvalues_share_their_sum():
    # A multiple eigenvalue has no slope of its own, but the sum over the cluster has.
    z = torch.tensor([0.3, 0.3, 0.3, 0.1], dtype=torch.float64).log().requires_grad_()
    total = simplex.mobility_spectrum(torch.softmax(z, -1), 2).sum()
    (slope,) = torch.autograd.grad(total, z)
    h = 1e-5
    for i in range(4):
        e = torch.zeros(4, dtype=torch.float64)
        e[i] = h
        up, down = (
            simplex.mobility_spectrum(torch.softmax(z.detach() + s * e, -1), 2).sum()
            for s in (1, -1)
        )
        assert_close(slope[i], (up - down) / (2 * h), rtol=1e-6, atol=1e-8)


def test_slope_of_the_norm_in_float32_agrees_with_float64_among_near_ties():
    # Gaps of a few units in the last place decide the eigenvector.
    p = torch.tensor([0.3 + 4e-7, 0.3, 0.3 - 2e-7, 0.1])
    slopes = []
    for x in (p, p.double() / p.double().sum()):
        x = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(simplex.mobility_norm(x), x)[0].double())
    assert_close(*slopes, rtol=1e-5, atol=1e-6)


def test_slopes_have_slopes():
    z = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.9, 0.05, 0.04, 0.01]], dtype=torch.float64)
    z = z.log().requires_grad_()
    for function in (simplex.mobility_norm, lambda p: simplex.mobility_spectrum(p, 3)):
        assert torch.autograd.gradgradcheck(lambda z, f=function: f(torch.softmax(z, -1)), z)


def hard_rows() -> torch.Tensor:
    """Rows that make a secular solver work: clusters, many scales, peaks over structured tails."""
    generator = torch.Generator().manual_seed(6)
    noise = torch.randn(600, 25, generator=generator, dtype=torch.float64)
    level = torch.randint(0, 3, (600, 25), generator=generator)
    tight = 10 ** (-9 * torch.rand(600, 1, generator=generator, dtype=torch.float64))
    peak = torch.zeros(25, dtype=torch.float64)
    peak[0] = 12.0
    return torch.cat(
        [torch.softmax(z, -1) for z in (3 * noise, tight * noise - level, noise + peak)]
    )


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2), (torch.float64, 4)])
def test_the_largest_root_takes_few_steps(monkeypatch, dtype, most):
    from flowscope.simplex import secular

    sums, calls = secular._secular_sums, []
    monkeypatch.setattr(secular, "_secular_sums", lambda *x: calls.append(1) or sums(*x))
    p = hard_rows().to(dtype)
    norm = simplex.mobility_norm(p)
    assert len(calls) <= most
    exact = p.double() / p.double().sum(-1, keepdim=True)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    assert_close(norm.double(), dense_spectrum(exact)[:, 0], rtol=tolerance, atol=1e-15)


def test_the_other_roots_take_few_steps(monkeypatch):
    from flowscope.simplex import secular

    step, calls = secular._newton_step, []
    monkeypatch.setattr(secular, "_newton_step", lambda *x: calls.append(1) or step(*x))
    p = hard_rows()[::20]
    assert_close(simplex.mobility_spectrum(p, 25), dense_spectrum(p), rtol=0, atol=1e-15)
    assert len(calls) <= 10


def test_blocks_of_rows_do_not_show(monkeypatch):
    from flowscope.simplex import blocks

    p = torch.softmax(torch.randn(7, 11, generator=torch.Generator().manual_seed(5)), -1)
    norm, spectrum = simplex.mobility_norm(p), simplex.mobility_spectrum(p, 6)
    monkeypatch.setattr(blocks, "BLOCK", 30)
    monkeypatch.setattr(blocks, "STRIP", 4)
    assert_close(simplex.mobility_norm(p), norm, rtol=1e-6, atol=0)
    assert_close(simplex.mobility_spectrum(p, 6), spectrum, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("k", "found"), [(0, "0"), (-1, "-1"), (5, "5"), (2.0, "2.0"), (True, "True")]
)
def test_a_count_out_of_range_is_refused(k, found):
    with pytest.raises(
        InvalidInputError, match=rf"k must be a whole number from 1 to V = 4.*{found}"
    ):
        simplex.mobility_spectrum([0.4, 0.3, 0.2, 0.1], k)
