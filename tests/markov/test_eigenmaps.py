"""Diffusion and magnetic maps: closed forms, laws, and the tiled route against the dense one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import circle_diffusion_spectrum, magnetic_cycle_spectrum
from torch.testing import assert_close

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.markov.eigenmaps import diffusion_map, magnetic_map
from flowscope.markov.eigensolver import leading_eigenpairs
from flowscope.markov.magnetic import magnetic_laplacian
from flowscope.markov.operators import FactoredScores

D = torch.float64
DENSE, TILED = {"dense_limit": 10_000}, {"dense_limit": 2}
ROUTES = pytest.mark.parametrize("route", [DENSE, TILED], ids=["dense", "tiled"])


def circle(n, dtype=D):
    angle = torch.arange(n, dtype=D) * (2 * math.pi / n)
    return torch.stack([angle.cos(), angle.sin()], -1).to(dtype)


def head(n, d=6, seed=0, turn=0.4):
    """Queries and keys of one head: keys are queries, part of them turned away."""
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(n, d, generator=g, dtype=D)
    return FactoredScores(q=q, k=q + turn * torch.randn(n, d, generator=g, dtype=D))


def scores(n, seed=0):
    return head(n, d=3, seed=seed).matrix()


def kernel(W, beta, alpha=0.0):
    """The Markov kernel from its definition, and its stationary law."""
    w = W.diagonal(dim1=-2, dim2=-1)
    K = torch.exp(beta * (W + W.mT - w[..., None] - w[..., None, :]))
    g = K.sum(-1)
    K = K / (g[..., None] * g[..., None, :]) ** alpha
    g = K.sum(-1)
    return K / g[..., None], g / g.sum(-1, keepdim=True)


# The circle


@ROUTES
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_eigenvalues_of_the_circle(route, beta):
    """Points x with W = x·y have D = |x − y|²."""
    x = circle(600)
    found = diffusion_map(FactoredScores(q=x, k=x), beta, coordinates=6, **route)
    wanted = torch.from_numpy(circle_diffusion_spectrum(beta, [1, 1, 2, 2, 3, 3]))
    assert_close(found.eigenvalues, wanted, rtol=0, atol=1e-10)
    assert found.residual < 1e-9
    assert_close(found.stationary, torch.full((600,), 1 / 600, dtype=D))


def test_the_first_eigenvalue_of_the_circle_in_digits():
    x = circle(64)
    assert_close(float(diffusion_map(x @ x.mT, 2.0).eigenvalues[0]), 0.86352261, rtol=0, atol=5e-9)


@ROUTES
def test_the_circle_is_drawn_as_a_circle(route):
    """Two coordinates of a full pair: √2λ^t times the circle, up to a rotation."""
    x = circle(600)
    found = diffusion_map(FactoredScores(q=x, k=x), 2.0, coordinates=2, time=3.0, **route)
    lam = float(circle_diffusion_spectrum(2.0, 1))
    wanted = 2 * lam**6 * x @ x.mT
    assert_close(found.coordinates @ found.coordinates.mT, wanted, rtol=0, atol=1e-8)


@ROUTES
def test_modes_of_the_charged_cycle(route):
    n, charge = 64, 0.04
    W = torch.full((n, n), -torch.inf, dtype=D).fill_diagonal_(0.0)
    i = torch.arange(n)
    W[i, (i + 1) % n], W[(i + 1) % n, i] = 0.5, -0.5
    found = magnetic_map(W, 1.0, charge, coordinates=5, loops=False, **route)
    wanted = torch.from_numpy(magnetic_cycle_spectrum(n, charge))[:5]
    assert_close(found.eigenvalues, wanted, rtol=0, atol=1e-10)
    assert_close(found.moduli[:, 0], torch.ones(n, dtype=D), rtol=0, atol=1e-7)
    # 2πk/n + 2πq is nearest to zero at k = −3: three turns backwards.
    steps = torch.diff(found.phases[:, 0])
    turned = torch.remainder(steps, 2 * math.pi)
    assert_close(turned, torch.full_like(turned, 2 * math.pi * (1 - 3 / n)), rtol=0, atol=1e-6)


# Laws


@given(
    st.integers(3, 9), st.integers(0, 1000), st.floats(0.1, 1.5), st.sampled_from([0.0, 0.5, 1.0])
)
def test_functions_are_right_eigenvectors_orthonormal_under_the_law(n, seed, beta, alpha):
    W = scores(n, seed)
    found = diffusion_map(W, beta, alpha=alpha, coordinates=n - 1, time=0.0)
    P, law = kernel(W, beta, alpha)
    psi = found.functions
    assert_close(found.stationary, law)
    assert_close(P @ psi, psi * found.eigenvalues, rtol=1e-8, atol=1e-8)
    gram = psi.mT @ (law[:, None] * psi)
    assert_close(gram, torch.eye(n - 1, dtype=D), rtol=0, atol=1e-9)
    assert_close(law @ psi, torch.zeros(n - 1, dtype=D), rtol=0, atol=1e-9)
    assert (found.eigenvalues.diff() <= 0).all()
    assert_close(found.least, found.eigenvalues[-1])


@given(st.integers(3, 9), st.integers(0, 1000), st.integers(0, 3))
def test_all_coordinates_give_the_diffusion_distance(n, seed, time):
    """|x_i − x_j|² = Σ_l (P^t_il − P^t_jl)²/π_l (Coifman and Lafon 2006)."""
    W = scores(n, seed)
    found = diffusion_map(W, 0.7, coordinates=n - 1, time=time)
    P, law = kernel(W, 0.7)
    rows = torch.linalg.matrix_power(P, time) / law.sqrt()
    assert_close(
        torch.cdist(found.coordinates, found.coordinates) ** 2, torch.cdist(rows, rows) ** 2
    )


@given(st.integers(2, 9), st.integers(0, 1000), st.floats(-1, 1), st.booleans())
def test_magnetic_modes_are_those_of_the_laplacian(n, seed, charge, loops):
    W = scores(n, seed)
    found = magnetic_map(W, 0.5, charge, coordinates=n, loops=loops)
    L = magnetic_laplacian(W, 0.5, charge, loops=loops)
    assert_close(found.eigenvalues, torch.linalg.eigvalsh(L), rtol=0, atol=1e-10)
    v = found.vectors * found.stationary.sqrt()[:, None]
    assert_close(L @ v, v * found.eigenvalues, rtol=0, atol=1e-10)
    assert_close(v.mH @ v, torch.eye(n, dtype=v.dtype), rtol=0, atol=1e-10)
    assert_close(found.moduli * torch.exp(1j * found.phases), found.vectors)


def test_without_charge_the_magnetic_map_is_the_diffusion_map():
    W = scores(20)
    plain, magnetic = diffusion_map(W, 0.5, coordinates=4), magnetic_map(W, 0.5, 0.0, coordinates=5)
    assert_close(1 - magnetic.eigenvalues[1:], plain.eigenvalues)
    assert_close(magnetic.vectors[:, 1:].real, plain.functions)
    assert_close(magnetic.vectors[:, 0].real, torch.ones(20, dtype=D))


def test_signs_and_phases_follow_the_rule():
    W = scores(30)
    for found in (
        diffusion_map(W, 0.5, coordinates=8).functions,
        magnetic_map(W, 0.5, 0.05, coordinates=8).vectors,
    ):
        v = found * diffusion_map(W, 0.5).stationary.sqrt()[:, None]
        largest = v.gather(0, v.abs().argmax(0, keepdim=True))
        assert_close(largest, largest.abs().to(v.dtype), rtol=1e-9, atol=1e-12)


def test_heads_are_taken_one_by_one():
    W = torch.stack([scores(12, seed) for seed in range(3)])
    beta = torch.tensor([0.3, 0.5, 0.8], dtype=D)
    both = diffusion_map(W, beta, coordinates=3), magnetic_map(W, beta, 0.1, coordinates=3)
    for i in range(3):
        plain = diffusion_map(W[i], float(beta[i]), coordinates=3)
        assert_close(both[0].coordinates[i], plain.coordinates)
        assert_close(both[0].least[i], plain.least)
        assert_close(
            both[1].vectors[i], magnetic_map(W[i], float(beta[i]), 0.1, coordinates=3).vectors
        )


# The tiled route


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_tiled_and_dense_diffusion_maps_agree(alpha):
    options = {"alpha": alpha, "coordinates": 12, "time": 2.0}
    whole = head(900)
    tiled, dense = (diffusion_map(whole, 0.4, **options, **route) for route in (TILED, DENSE))
    assert tiled.residual < 1e-9
    assert_close(tiled.eigenvalues, dense.eigenvalues, rtol=1e-9, atol=0)
    assert_close(tiled.stationary, dense.stationary)
    # Of single vectors only what the gaps allow; here they are wide.
    assert_close(tiled.coordinates, dense.coordinates, rtol=0, atol=1e-6)
    assert_close(tiled.least, dense.least, rtol=0.02, atol=0)


@pytest.mark.parametrize("charge", [0.0, 0.02])
def test_tiled_and_dense_magnetic_maps_agree(charge):
    whole = head(700)
    tiled, dense = (
        magnetic_map(whole, 0.4, charge, coordinates=10, loops=False, **route)
        for route in (TILED, DENSE)
    )
    assert tiled.residual < 1e-9
    assert_close(tiled.eigenvalues, dense.eigenvalues, rtol=0, atol=1e-10)
    assert_close(tiled.vectors, dense.vectors, rtol=0, atol=1e-6)


def test_scores_as_a_matrix_with_missing_pairs_go_the_tiled_way_too():
    W = torch.stack([scores(600, seed) for seed in (1, 2)])
    far = (torch.arange(600)[:, None] - torch.arange(600)).abs() > 400
    W = W.masked_fill(far, -torch.inf)
    tiled = diffusion_map(W, torch.tensor([0.4, 0.6], dtype=D), coordinates=4)
    dense = diffusion_map(W, torch.tensor([0.4, 0.6], dtype=D), coordinates=4, **DENSE)
    assert_close(tiled.eigenvalues, dense.eigenvalues, rtol=1e-9, atol=0)
    assert_close(tiled.coordinates, dense.coordinates, rtol=0, atol=1e-6)


def test_single_precision_stays_single():
    x = circle(600, torch.float32)
    for route in (DENSE, TILED):
        found = diffusion_map(FactoredScores(q=x, k=x), 2.0, coordinates=2, **route)
        assert found.coordinates.dtype == torch.float32
        wanted = torch.from_numpy(circle_diffusion_spectrum(2.0, [1, 1])).float()
        assert_close(found.eigenvalues, wanted, rtol=0, atol=1e-5)


def test_the_tiled_route_repeats_itself():
    one, two = (magnetic_map(head(560), 0.4, 0.02, coordinates=3) for _ in range(2))
    assert_close(one.vectors, two.vectors, rtol=0, atol=0)


# The solver


def test_eigenpairs_of_a_matrix_with_a_multiple_eigenvalue():
    g = torch.Generator().manual_seed(1)
    Q = torch.linalg.qr(torch.randn(300, 300, generator=g, dtype=D))[0]
    values = torch.cat([torch.tensor([0.9] * 4 + [0.7]), torch.linspace(-0.95, 0.5, 295)]).to(D)
    A = (Q * values) @ Q.mT
    found = leading_eigenpairs(lambda x: A.to(x.dtype) @ x, 300, 5, tolerance=1e-10)
    assert_close(found.values, values[:5], rtol=0, atol=1e-12)
    space = Q[:, :4] @ Q[:, :4].mT
    assert_close(found.vectors[:, :4] @ found.vectors[:, :4].mT, space, rtol=0, atol=1e-9)
    assert_close(found.least, -0.95, rtol=0, atol=1e-3)
    single, double = found.products
    assert single > double > 0
    left = A @ found.vectors - found.vectors * found.values
    assert_close(found.residuals, left.norm(dim=0), rtol=0, atol=1e-14)


def test_a_known_eigenvector_is_left_out():
    values = torch.linspace(-1, 1, 200, dtype=D)
    known = torch.zeros(200, dtype=D)
    known[-2] = 1.0
    found = leading_eigenpairs(lambda x: values.to(x.dtype)[:, None] * x, 200, 3, without=known)
    assert_close(found.values, values[[-1, -3, -4]])
    assert found.vectors[-2].abs().max() < 1e-9


def test_a_small_matrix_is_exhausted_without_harm():
    """The block is as large as the space: nothing new can be added to the basis."""
    A = torch.diag(torch.arange(12, dtype=D) / 12)
    found = leading_eigenpairs(lambda x: A.to(x.dtype) @ x, 12, 6)
    assert_close(found.values, torch.arange(11, 5, -1, dtype=D) / 12)


def test_a_solver_that_falls_short_says_how_far_it_came():
    g = torch.Generator().manual_seed(0)
    A = torch.randn(400, 400, generator=g, dtype=D) / 40
    A = A + A.mT
    with pytest.raises(ConvergenceError, match=r"of 9 eigenpairs have residuals above") as caught:
        leading_eigenpairs(lambda x: A.to(x.dtype) @ x, 400, 9, limit=4)
    assert caught.value.partial.residuals.max() > 1e-9
    assert caught.value.partial.products == (4, 4)


# What is refused


@pytest.mark.parametrize("coordinates", [0, 5, 2.0, True])
def test_coordinates_are_fewer_than_tokens(coordinates):
    with pytest.raises(InvalidInputError, match="from 1 to 4 for 5 tokens"):
        diffusion_map(scores(5), coordinates=coordinates)


def test_a_fraction_of_a_step_needs_eigenvalues_that_are_not_negative():
    W = torch.tensor([[0.0, 3.0], [3.0, 0.0]], dtype=D)
    assert diffusion_map(W, coordinates=1, time=2.0).eigenvalues < 0
    with pytest.raises(InvalidInputError, match="Take a whole time"):
        diffusion_map(W, coordinates=1, time=0.5)
    with pytest.raises(InvalidInputError, match="time must be finite"):
        diffusion_map(W, coordinates=1, time=-1.0)


def test_alpha_is_a_share_and_charge_a_number():
    with pytest.raises(InvalidInputError, match="alpha"):
        diffusion_map(scores(5), alpha=1.5)
    with pytest.raises(InvalidInputError, match="charge must be a finite number"):
        magnetic_map(scores(5), 1.0, math.nan)
    with pytest.raises(InvalidInputError, match="beta must be positive"):
        diffusion_map(head(600), -1.0)
