"""The mobility J = diag p − ppᵀ without its matrix, against the matrix."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.testing import assert_close

from flowscope import simplex
from flowscope.errors import InvalidInputError


def dense(p: torch.Tensor) -> torch.Tensor:
    """J with its diagonal p_i Σ_{j≠i} p_j: p_i − p_i² would cancel near a vertex."""
    cross = p[..., :, None] * p[..., None, :] * (1 - torch.eye(p.shape[-1], dtype=p.dtype))
    return torch.diag_embed(cross.sum(-1)) - cross


def rows() -> torch.Tensor:
    """Random, tied, sparse, uniform, peaked and vertex rows of seven outcomes."""
    generator = torch.Generator().manual_seed(0)
    random = torch.softmax(2 * torch.randn(4, 7, generator=generator, dtype=torch.float64), -1)
    special = torch.tensor(
        [
            [0.3, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05],
            [0.3, 0.3, 0.3, 0.1, 0.0, 0.0, 0.0],
            [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
            [1 / 7] * 7,
            [1 - 6e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9],
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
        dtype=torch.float64,
    )
    return torch.cat([random, special])


def peaked(delta: float, dtype: torch.dtype, v: int = 2000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tail = torch.rand(v - 1, generator=generator, dtype=torch.float64) ** 4
    tail = delta * tail / tail.sum()
    return torch.cat([torch.tensor([1 - delta], dtype=torch.float64), tail]).to(dtype)


def test_apply_mobility_is_the_matrix_product():
    p = rows()
    v = torch.randn(p.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    oracle = (dense(p) @ v[..., None])[..., 0]
    assert_close(simplex.apply_mobility(p, v), oracle, rtol=1e-9, atol=1e-22)


def test_apply_mobility_is_the_softmax_jacobian():
    z = torch.tensor([0.4, -1.0, 2.0, 0.0], dtype=torch.float64)
    v = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    _, oracle = torch.func.jvp(lambda x: torch.softmax(x, -1), (z,), (v,))
    assert_close(simplex.apply_mobility(torch.softmax(z, -1), v), oracle)


def test_apply_mobility_conserves_mass_near_a_vertex_in_float32():
    p = peaked(1e-8, torch.float32)
    v = torch.randn(2000, generator=torch.Generator().manual_seed(3))
    moved = simplex.apply_mobility(p, v)
    assert_close(moved[0], -moved[1:].sum(), rtol=1e-5, atol=0)


def test_rock_paper_scissors_never_settles():
    # 000 R.3 claims exponential convergence; λ_min(J) = 0 and this orbit keeps Π p_i.
    payoff = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]).double()
    start = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)

    def velocity(p):
        p = p / p.sum()  # rounding adds up over the steps
        return simplex.apply_mobility(p, payoff @ p)

    p, h, farthest = start, 0.03, 0.0
    for _ in range(400):
        k1 = velocity(p)
        k2 = velocity(p + h / 2 * k1)
        k3 = velocity(p + h / 2 * k2)
        p = p + h / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(p + h * k3))
        p = p / p.sum()
        farthest = max(farthest, simplex.total_variation(p, start).item())
    assert_close(p.log().sum(), start.log().sum(), rtol=1e-6, atol=0)
    assert farthest > 0.4


def test_trace_is_the_sum_of_the_diagonal():
    p = rows()
    oracle = dense(p).diagonal(dim1=-2, dim2=-1).sum(-1)
    assert_close(simplex.mobility_trace(p), oracle, rtol=1e-12, atol=0)


def test_frobenius_is_the_norm_of_the_matrix():
    p = rows()
    oracle = torch.linalg.matrix_norm(dense(p))
    assert_close(simplex.mobility_frobenius(p), oracle, rtol=1e-12, atol=0)


def test_frobenius_of_two_outcomes_is_twice_the_product():
    p = torch.tensor([0.9, 0.1], dtype=torch.float64)
    assert_close(simplex.mobility_frobenius(p).item(), 0.18)


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-8])
def test_frobenius_keeps_its_digits_where_the_moment_form_cancels(delta):
    p = peaked(delta, torch.float32)
    exact = p.double()
    exact[0] = 1 - exact[1:].sum()
    oracle = torch.linalg.matrix_norm(dense(exact)).item()
    assert_close(simplex.mobility_frobenius(p).item(), oracle, rtol=1e-6, atol=0)
    s2, s3 = (p**2).sum(), (p**3).sum()
    moments = (s2 + s2**2 - 2 * s3).clamp(min=0).sqrt().item()  # 000 App. H
    assert abs(moments / oracle - 1) > 0.1


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-8])
def test_trace_keeps_its_digits_near_a_vertex(delta):
    p = peaked(delta, torch.float32)
    tail = p[1:].double()
    oracle = (2 * tail.sum() - tail.sum() ** 2 - (tail**2).sum()).item()
    assert_close(simplex.mobility_trace(p).item(), oracle, rtol=1e-6, atol=0)


def test_frobenius_holds_where_its_square_underflows():
    p = torch.tensor([1.0, 1e-25, 0.0])
    assert_close(simplex.mobility_frobenius(p).item(), 2e-25, rtol=1e-6, atol=0)


def test_tail_gradients_are_finite_at_a_vertex():
    for function in (simplex.mobility_trace, simplex.mobility_frobenius, simplex.mobility_norm):
        p = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(p), p)
        step = torch.tensor([-2e-7, 1e-7, 1e-7], dtype=torch.float64)
        rise = function(torch.tensor([1 - 2e-7, 1e-7, 1e-7], dtype=torch.float64))
        assert slope.isfinite().all()
        assert slope @ step <= rise * (1 + 1e-6)  # a supporting slope from below
        assert slope @ step > 0


@pytest.mark.parametrize("gap", [0.5, 2.0, 7.0])
def test_mobility_of_a_logit_gap_is_unimodal_in_temperature(gap):
    # 000 makes three claims on temperature that contradict each other; this is the fact.
    def norm(tau):
        p = torch.softmax(torch.tensor([gap / tau, 0.0], dtype=torch.float64), -1)
        return simplex.mobility_norm(p).item() / tau

    for tau in (0.2, 1.0, 3.0):
        assert_close(norm(tau), 1 / (2 * tau * math.cosh(gap / (2 * tau)) ** 2))
    peak = minimize_scalar(
        lambda tau: -norm(tau),
        bounds=(0.1 * gap, 3 * gap),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert_close(peak.x / gap, 0.64792, rtol=0, atol=5e-6)


def hidden(d=3, v=5, seed=5):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(d, v, generator=generator, dtype=torch.float64)
    root = torch.randn(d, d, generator=generator, dtype=torch.float64)
    p = torch.softmax(torch.randn(4, v, generator=generator, dtype=torch.float64), -1)
    v = torch.randn(4, v, generator=generator, dtype=torch.float64)
    return p, weight, root @ root.T, v


@pytest.mark.parametrize("kind", ["matrix", "diagonal", "scalar", "number"])
def test_effective_mobility_is_the_product_of_its_matrices(kind):
    p, weight, a, v = hidden()
    diffusion = {"matrix": a, "diagonal": a.diagonal(), "scalar": a[0, 0], "number": 0.7}[kind]
    full = {
        "matrix": a,
        "diagonal": torch.diag(a.diagonal()),
        "scalar": a[0, 0] * torch.eye(3).double(),
        "number": 0.7 * torch.eye(3).double(),
    }[kind]
    J = dense(p)
    oracle = (J @ weight.T @ full @ weight @ J @ v[..., None])[..., 0]
    assert_close(simplex.effective_mobility(p, weight, diffusion)(v), oracle)


def test_effective_mobility_is_the_covariance_of_a_pushed_forward_step():
    _, weight, a, _ = hidden()
    h = torch.tensor([0.2, -0.5, 1.0], dtype=torch.float64)
    slope = torch.func.jacrev(lambda x: torch.softmax(weight.T @ x, -1))(h)
    operator = simplex.effective_mobility(torch.softmax(weight.T @ h, -1), weight, a)
    assert_close(operator(torch.eye(5, dtype=torch.float64)), slope @ a @ slope.T)


def test_effective_mobility_is_differentiable_in_all_it_is_given():
    p, weight, a, v = hidden(2, 3)

    def product(z, w, root, x):
        return simplex.effective_mobility(torch.softmax(z, -1), w, root @ root.T)(x)

    inputs = (p.log(), weight, torch.linalg.cholesky(a), v)
    assert torch.autograd.gradcheck(product, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize(
    ("weight", "diffusion", "sentence"),
    [
        (torch.ones(5), 1.0, r"shape \[d, V\].*\(5,\)"),
        (torch.ones(3, 4), 1.0, "p has 5 outcomes and weight has 4"),
        (torch.ones(3, 5), torch.ones(2), r"\[3, 3\], \[3\] or \[\].*\(2,\)"),
        (torch.ones(3, 5), torch.ones(3, 2), r"\[3, 3\], \[3\] or \[\].*\(3, 2\)"),
        (torch.ones(3, 5), -1.0, "non-negative diagonal.*-1"),
        (torch.ones(3, 5), torch.tensor([1.0, -2.0, 1.0]), r"non-negative diagonal.*-2"),
        (torch.ones(3, 5), torch.ones(3, 3).triu(), "symmetric.*differ by 1"),
        (torch.full((3, 5), math.nan), 1.0, r"weight.*finite.*nan at \(0, 0\)"),
        (torch.ones(3, 5).long(), 1.0, "floating-point"),
    ],
)
def test_effective_mobility_refuses(weight, diffusion, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        simplex.effective_mobility(torch.full((5,), 0.2), weight, diffusion)


def test_effective_mobility_refuses_a_vector_of_another_length():
    operator = simplex.effective_mobility(torch.full((5,), 0.2), torch.ones(3, 5), 1.0)
    with pytest.raises(InvalidInputError, match="p has 5 outcomes and v has 4"):
        operator(torch.ones(4))
