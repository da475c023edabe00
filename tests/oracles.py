"""Closed forms that the routines of the package are tested against.

Every function is plain float64 numpy, returns the exact value of the object it is named after and
states its convention. Each is checked in ``tests/laws/test_oracles.py`` by an independent route.

Conventions
-----------
Transport: cost ``½|x − y|² + ε KL(π ‖ μ⊗ν)``, the reference process of a bridge is ``√ε dB``.
Clocks: the *noise-schedule clock* is ``dX = −½β X dt + √β dW``; the *unit clock* is
``dX = −X dt + √2 dW`` with ``α = e^{−t}``. Each diffusion function names the one it uses.
Entropies are in nats. A variance is written ``s2`` and a standard deviation ``s``.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve
from scipy.optimize import brentq
from scipy.special import ive, log_ndtr

Array = NDArray[np.float64]


# --- the simplex -------------------------------------------------------------------------------


def replicator_path(p0: ArrayLike, b: ArrayLike, t: float) -> Array:
    """Solution of ``ṗ = J(p) b`` for a constant b.

    ``p(t) ∝ p₀ e^{bt}``, with ``J(p) = diag p − p pᵀ``. p0 is a probability vector, b a vector of
    growth rates (defined up to a constant).
    """
    p0, b = np.asarray(p0, float), np.asarray(b, float)
    p = p0 * np.exp(t * (b - b.max()))
    return p / p.sum()


def largest_total_variation(osc: float) -> float:
    """Largest TV between softmax(z) and softmax(z + Δz) over all z, for ``osc(Δz) = osc``.

    ``tanh(osc/4)``; reached with two outcomes of odds ``e^{∓osc/2}``.
    """
    return float(np.tanh(osc / 4))


def largest_locked_variation(delta: float, osc: float) -> float:
    """Largest TV over all p of tail mass ``δ = 1 − max p`` and all Δz with ``osc(Δz) = osc``.

    ``σ(logit δ + osc) − δ`` while ``δ ≤ 1/(1 + e^{osc/2})``, then ``tanh(osc/4)``; σ the logistic
    function. On the first branch every p of that tail mass reaches it (raise the whole tail); on
    the second, those whose tail has a subset of mass ``1/(1 + e^{osc/2})``.
    """
    if delta <= 1 / (1 + np.exp(osc / 2)):
        odds = delta / (1 - delta) * np.exp(osc)
        return float(odds / (1 + odds) - delta)
    return largest_total_variation(osc)


# --- entropic transport ------------------------------------------------------------------------


def _root(A: Array) -> Array:
    """Symmetric square root of a positive definite matrix."""
    w, V = np.linalg.eigh(A)
    return (V * np.sqrt(w)) @ V.T


def _entropic_discriminant(A: Array, B: Array, eps: float) -> Array:
    """``D = (4 A^{½} B A^{½} + ε² I)^{½}``."""
    r = _root(A)
    return _root(4 * r @ B @ r + eps**2 * np.eye(len(A)))


def entropic_gaussian_coupling(A: ArrayLike, B: ArrayLike, eps: float) -> Array:
    """Cross-covariance ``C = E[(x − a)(y − b)ᵀ]`` of the entropic coupling of N(a, A) and N(b, B).

    ``C = ½ A^{½} D A^{−½} − ½ ε I``, ``D = (4 A^{½} B A^{½} + ε² I)^{½}``, for the cost
    ``½|x − y|² + ε KL``. In one dimension ``c = √(s₀² s₁² + ε²/4) − ε/2``.
    """
    A, B = np.atleast_2d(np.asarray(A, float)), np.atleast_2d(np.asarray(B, float))
    r = _root(A)
    D = _entropic_discriminant(A, B, eps)
    return 0.5 * r @ D @ np.linalg.inv(r) - 0.5 * eps * np.eye(len(A))


def entropic_gaussian_cost(
    a: ArrayLike, A: ArrayLike, b: ArrayLike, B: ArrayLike, eps: float
) -> float:
    """``min_π E ½|x − y|² + ε KL(π ‖ μ⊗ν)`` for μ = N(a, A), ν = N(b, B).

    ``½ [ |a−b|² + tr A + tr B − tr D + dε(1 − log 2ε) + ε log det(D + εI) ]``, D as in
    :func:`entropic_gaussian_coupling`.
    """
    a, b = np.atleast_1d(np.asarray(a, float)), np.atleast_1d(np.asarray(b, float))
    A, B = np.atleast_2d(np.asarray(A, float)), np.atleast_2d(np.asarray(B, float))
    d, D = len(a), _entropic_discriminant(A, B, eps)
    moments = (a - b) @ (a - b) + np.trace(A) + np.trace(B) - np.trace(D)
    logdet = np.linalg.slogdet(D + eps * np.eye(d))[1]
    return float(0.5 * (moments + d * eps * (1 - np.log(2 * eps)) + eps * logdet))


def gaussian_bridge_mean(a: ArrayLike, b: ArrayLike, t: float) -> Array:
    """Mean of the Schrödinger bridge between N(a, ·) and N(b, ·): ``(1 − t)a + tb``, t ∈ [0, 1]."""
    return (1 - t) * np.asarray(a, float) + t * np.asarray(b, float)


def gaussian_bridge_covariance(A: ArrayLike, B: ArrayLike, eps: float, t: float) -> Array:
    """Covariance at t ∈ [0, 1] of the bridge between N(·, A) and N(·, B), reference ``√ε dB``.

    ``Σ_t = (1−t)² A + t² B + t(1−t)(C + Cᵀ + εI)``, C the entropic coupling.
    """
    A, B = np.atleast_2d(np.asarray(A, float)), np.atleast_2d(np.asarray(B, float))
    C = entropic_gaussian_coupling(A, B, eps)
    between = C + C.T + eps * np.eye(len(A))
    return (1 - t) ** 2 * A + t**2 * B + t * (1 - t) * between


def gaussian_bridge_drift_slope(s2_start: float, s2_end: float, eps: float, t: float) -> float:
    """Slope k of the drift ``k (x − m_t) + ṁ_t`` of the one-dimensional Gaussian bridge.

    ``k = (Σ̇_t − ε) / 2Σ_t``; it obeys ``k' + k² = 0``, so ``k(t) = k₀ / (1 + k₀ t)``.
    """
    c = float(entropic_gaussian_coupling(s2_start, s2_end, eps)[0, 0])
    var = (1 - t) ** 2 * s2_start + t**2 * s2_end + t * (1 - t) * (2 * c + eps)
    rate = -2 * (1 - t) * s2_start + 2 * t * s2_end + (1 - 2 * t) * (2 * c + eps)
    return (rate - eps) / (2 * var)


def two_point_coupling(c: float, eps: float) -> Array:
    """Entropic coupling of two uniform two-point laws with cost ``[[0, c], [c, 0]]``.

    ``½ [[s, 1−s], [1−s, s]]``, ``s = 1/(1 + e^{−c/ε})``.
    """
    s = 1 / (1 + np.exp(-c / eps))
    return 0.5 * np.array([[s, 1 - s], [1 - s, s]])


def two_point_sinkhorn_rate(c: float, eps: float) -> float:
    """Contraction per sweep of Sinkhorn at the fixed point of the same problem.

    ``tanh²(c/2ε)``, which is Birkhoff's bound ``tanh²(Δ/4)`` with Hilbert diameter ``Δ = 2c/ε``.
    """
    return float(np.tanh(c / (2 * eps)) ** 2)


def centred_gaussian_wasserstein1(s_first: float, s_second: float) -> float:
    """``W₁(N(0, s₀²), N(0, s₁²)) = ∫|F − G| = |s₀ − s₁| √(2/π)``."""
    return float(abs(s_first - s_second) * np.sqrt(2 / np.pi))


def bures_distance_squared(A: ArrayLike, B: ArrayLike) -> float:
    """``W₂²`` of two centred Gaussians: ``tr A + tr B − 2 tr (A^{½} B A^{½})^{½}``."""
    A, B = np.atleast_2d(np.asarray(A, float)), np.atleast_2d(np.asarray(B, float))
    r = _root(A)
    return float(np.trace(A) + np.trace(B) - 2 * np.trace(_root(r @ B @ r)))


def bures_barycenter(covariances: Sequence[ArrayLike], weights: ArrayLike) -> Array:
    """Covariance S of the W₂ barycenter of centred Gaussians.

    The fixed point of ``S = Σ_k λ_k (S^{½} Σ_k S^{½})^{½}``; in one dimension ``s̄ = Σ λ_k s_k``.
    Iterated as ``S ← S^{−½} (Σ_k λ_k (S^{½} Σ_k S^{½})^{½})² S^{−½}`` until it moves by 1e-14.
    """
    stack = [np.atleast_2d(np.asarray(c, float)) for c in covariances]
    w = np.asarray(weights, float)
    S = np.einsum("k,kij->ij", w, np.array(stack))
    for _ in range(500):
        r = _root(S)
        inner = sum(wk * _root(r @ c @ r) for wk, c in zip(w, stack, strict=True))
        inv = np.linalg.inv(r)
        new = inv @ inner @ inner @ inv
        if np.abs(new - S).max() <= 1e-14 * np.abs(S).max():
            return new
        S = new
    return S


def jko_entropy_step(s: float, nu: float, tau: float) -> float:
    """Standard deviation after one JKO step of ``−ν·S(ρ)`` from N(0, s²), step τ.

    ``argmin_ρ W₂²(ρ, ρ₀)/2τ − ν S(ρ)``: ``s' = ½(s + √(s² + 4ντ))``. S is Shannon's entropy.
    """
    return jko_confined_step(s, nu, tau, 0.0)


def jko_confined_step(s: float, nu: float, tau: float, k: float) -> float:
    """The same step for ``∫½kx² dρ − ν·S(ρ)``: the root s' > 0 of ``(1+τk)s'² − s s' − τν = 0``."""
    return float((s + np.sqrt(s**2 + 4 * (1 + tau * k) * tau * nu)) / (2 * (1 + tau * k)))


# --- diffusion ---------------------------------------------------------------------------------


def ou_marginal(m: float, s2: float, beta_integral: float) -> tuple[float, float]:
    """Mean and variance at time t of the noise-schedule clock started from N(m, s²).

    ``(αm, α²s² + 1 − α²)``, ``α = exp(−½∫₀ᵗβ)``; beta_integral is ``∫₀ᵗβ``.
    """
    alpha2 = np.exp(-beta_integral)
    return float(np.sqrt(alpha2) * m), float(alpha2 * s2 + 1 - alpha2)


def ou_probability_flow(x0: ArrayLike, m: float, s2: float, beta_integral: float) -> Array:
    """Probability-flow image of x₀ (noise-schedule clock): ``x_t = m_t + (σ_t/σ_0)(x₀ − m)``."""
    mean, var = ou_marginal(m, s2, beta_integral)
    return mean + np.sqrt(var / s2) * (np.asarray(x0, float) - m)


def unit_clock_variance(s2: float, t: ArrayLike) -> Array:
    """Variance ``s² e^{−2t} + 1 − e^{−2t}`` of the unit clock started at variance s²."""
    decay = np.exp(-2 * np.asarray(t, float))
    return s2 * decay + 1 - decay


def reverse_sde_variance(s2: float, horizon: float, steps: int) -> float:
    """Variance that K Euler steps of the reverse SDE give at t = 0 (unit clock, exact score).

    From the exact marginal at T: ``V ← (1 + h − 2h/v_t)² V + 2h``, h = T/K, t = T, T−h, …
    """
    h, var = horizon / steps, float(unit_clock_variance(s2, horizon))
    for k in range(steps):
        v = float(unit_clock_variance(s2, horizon - k * h))
        var = (1 + h - 2 * h / v) ** 2 * var + 2 * h
    return var


def reverse_ode_variance(s2: float, horizon: float, steps: int) -> float:
    """The same for the probability-flow ODE: ``V ← (1 + h − h/v_t)² V``."""
    h, var = horizon / steps, float(unit_clock_variance(s2, horizon))
    for k in range(steps):
        v = float(unit_clock_variance(s2, horizon - k * h))
        var = (1 + h - h / v) ** 2 * var
    return var


def mixture_score(x: ArrayLike, t: float, mu: float, s2: float) -> Array:
    """Score at time t of ``½N(μ, s²) + ½N(−μ, s²)`` (unit clock, one dimension).

    ``−x/v + (αμ/v) tanh(αμx/v)``, ``α = e^{−t}``, ``v = α²s² + 1 − α²``.
    """
    x, alpha = np.asarray(x, float), np.exp(-t)
    v = unit_clock_variance(s2, t)
    return -x / v + (alpha * mu / v) * np.tanh(alpha * mu * x / v)


def mixture_probability_flow(x_end: float, horizon: float, mu: float, s2: float) -> float:
    """Probability-flow preimage at t = 0 of the point x_end at T, same mixture (unit clock).

    In one dimension the flow preserves quantiles: ``F₀(x₀) = F_T(x_T)``, solved by bisection on
    whichever tail is the smaller one.
    """

    def log_tail(x: float, t: float, sign: float) -> float:
        alpha, sd = np.exp(-t), np.sqrt(unit_clock_variance(s2, t))
        arms = [log_ndtr(sign * (x - c * alpha * mu) / sd) for c in (1, -1)]
        return float(np.logaddexp(*arms))

    sign = -1.0 if x_end > 0 else 1.0
    target = log_tail(x_end, horizon, sign)
    reach = 2 * abs(mu) + 40 * np.sqrt(s2)
    return float(brentq(lambda x: log_tail(x, 0.0, sign) - target, -reach, reach, xtol=1e-14))


def speciation_time(m2: float, s2: float) -> float:
    """Time (unit clock) at which the potential at 0 of the mixture ±m, variance s², turns convex.

    ``t_S = ½ log(1 + |m|² − s²)``, for ``|m|² > s²``.
    """
    return 0.5 * float(np.log1p(m2 - s2))


def u_turn_probability(t: float, mu: float, s2: float) -> float:
    """Probability that noising to t and denoising again returns to the class of the start.

    ``φ(t) = ½ (1 + E tanh²(αμx/v))``, x from the noised mixture (unit clock). By symmetry x is
    drawn from one arm, ``N(αμ, v)``. Trapezoidal rule, spectrally accurate for ``αμ/√v`` ≤ 30.
    """
    alpha, v = np.exp(-t), float(unit_clock_variance(s2, t))
    z, step = np.linspace(-12, 12, 6001, retstep=True)
    mass = np.exp(-0.5 * z**2) * step / np.sqrt(2 * np.pi)
    mean = mass @ np.tanh(alpha * mu * (alpha * mu + np.sqrt(v) * z) / v) ** 2
    return float(0.5 * (1 + mean))


def coupled_mode_variance(t: float, rate: float, s2: float) -> float:
    """Variance of a mode ``dx = −λx dt + √2 dW``: ``s² e^{−2λt} + (1 − e^{−2λt})/λ``."""
    decay = np.exp(-2 * rate * t)
    return float(s2 * decay + (1 - decay) / rate)


def coupled_mode_speciation_time(rate: float, m2: float, s2: float) -> float:
    """Speciation time of that mode for data ±m of variance s²: ``log(1 + λ(m² − s²)) / 2λ``."""
    return float(np.log1p(rate * (m2 - s2)) / (2 * rate))


def additive_coupling_rates(g: float) -> tuple[float, float]:
    """Rates (common, difference) of two unit-clock OU replicas coupled by ``−g(x^A − x^B)``.

    ``(1, 1 + 2g)``.
    """
    return 1.0, 1.0 + 2.0 * g


# --- spectra -----------------------------------------------------------------------------------


def circle_diffusion_spectrum(beta: float, orders: ArrayLike) -> Array:
    """Eigenvalues of the row-normalised kernel ``exp(−β|x−y|²)`` on the unit circle.

    ``I_m(2β)/I_0(2β)``, double for m ≥ 1. Limit of N equally spaced points; for N points the
    difference is of the order of the m = N term.
    """
    return ive(np.asarray(orders), 2 * beta) / ive(0, 2 * beta)


def magnetic_cycle_spectrum(n: int, q: float) -> Array:
    """Spectrum, ascending, of ``I − g^{−½}Hg^{−½}`` on the directed n-cycle, phase 2πq per edge.

    ``1 − cos(2πk/n + 2πq)``, k = 0 … n−1.
    """
    return np.sort(1 - np.cos(2 * np.pi * np.arange(n) / n + 2 * np.pi * q))


# --- linear fields and Gaussian laws ------------------------------------------------------------


def gaussian_entropy(covariance: ArrayLike) -> float:
    """Entropy of a Gaussian in nats: ``½ log det(2πe Σ)``."""
    S = np.atleast_2d(np.asarray(covariance, float))
    return float(0.5 * np.linalg.slogdet(2 * np.pi * np.e * S)[1])


def gaussian_hodge_potential(A: ArrayLike, Sigma: ArrayLike, a: ArrayLike) -> Array:
    """Symmetric S such that ``∇θ = Sx`` is the gradient part of u = Ax under μ = N(0, Σ).

    The weighted Poisson problem ``∇·(μ a∇θ) = ∇·(μu)`` reduces to
    ``aSΣ + ΣSa = AΣ + ΣAᵀ``; a is the diffusion matrix.
    """
    A, Sigma, a = (np.asarray(M, float) for M in (A, Sigma, a))
    d = len(A)
    lhs = np.kron(a, Sigma) + np.kron(Sigma, a)
    S = solve(lhs, (A @ Sigma + Sigma @ A.T).ravel()).reshape(d, d)
    return 0.5 * (S + S.T)


def gaussian_rotational_energy(A: ArrayLike, Sigma: ArrayLike, a: ArrayLike) -> float:
    """``R = ∫⟨w, a⁻¹w⟩dμ`` of u = Ax under N(0, Σ): ``tr(a⁻¹ W Σ Wᵀ)``, ``W = A − aS``."""
    A, Sigma, a = (np.asarray(M, float) for M in (A, Sigma, a))
    W = A - a @ gaussian_hodge_potential(A, Sigma, a)
    return float(np.trace(np.linalg.inv(a) @ W @ Sigma @ W.T))


def gaussian_attention_output(m: ArrayLike, Sigma: ArrayLike, A: ArrayLike, x: ArrayLike) -> Array:
    """Softmax attention of the query x over keys = values ~ N(m, Σ), logit ``xᵀAy``.

    The tilted law is ``N(m + ΣAᵀx, Σ)``: the output is exactly ``m + ΣAᵀx``.
    """
    m, Sigma, A, x = (np.asarray(M, float) for M in (m, Sigma, A, x))
    return m + Sigma @ A.T @ x


def nonreversible_ou_covariance(U: ArrayLike) -> Array:
    """Stationary covariance ``U⁻¹`` of ``dX = −(I + Q)UX dt + √2 dW``, Q any antisymmetric matrix.

    Q does not enter: it moves probability along level sets only.
    """
    return np.linalg.inv(np.asarray(U, float))


def nonreversible_ou_entropy_production(Q: ArrayLike, U: ArrayLike) -> float:
    """Entropy production rate of that process, in nats per unit time: ``tr(Q U Qᵀ)``.

    The irreversible velocity is ``−QUx``; its energy under N(0, U⁻¹) with unit diffusivity is the
    rate. Zero iff Q = 0.
    """
    Q, U = np.asarray(Q, float), np.asarray(U, float)
    return float(np.trace(Q @ U @ Q.T))


def sphere_clustering_rate(gamma: float, n: int, beta: float) -> float:
    """Rate of the common inner product γ of n tokens on a sphere, Q = K = V = I.

    ``γ̇ = 2e^{βγ}(1−γ)((n−1)γ+1) / (e^β + (n−1)e^{βγ})``, for a start with all inner products
    equal (orthonormal tokens: γ(0) = 0) under projected softmax attention.
    """
    e = np.exp(beta * gamma)
    return float(2 * e * (1 - gamma) * ((n - 1) * gamma + 1) / (np.exp(beta) + (n - 1) * e))
