r"""JKO steps: implicit steps of the Wasserstein gradient flow of entropy plus potential.

.. math:: \rho^+ = \arg\min_\rho \frac{W_2^2(\rho, \rho_0)}{2\tau} + F(\rho), \qquad
          F(\rho) = \int U\,d\rho + \nu \int \rho\log\rho .

F is the free energy ∫U dρ − ν·S(ρ), S Shannon's entropy; small steps follow ∂ρ = ∇·(ρ∇U) + νΔρ and
many reach the Gibbs law e^{−U/ν}. (The entropic proximal step of source 000 is a mirror step, see
``flowscope.simplex``: not this one.)

Two members. On a grid of an interval the problem is convex in the cumulative mass and solved as
such. On particles the entropy is estimated, and the estimator is part of the statement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from scipy.linalg import solveh_banded
from scipy.optimize import minimize
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals, refuse
from flowscope.transport.line import EMPTY, ProximalLine

__all__ = ["JKOStep", "jko_step", "jko_step_grid", "jko_step_particles"]

Array = npt.NDArray[np.float64]
Potential = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class JKOStep:
    """One step: ``state`` is the new density on the cells, or the new particles.

    ``objective`` is W₂²/2τ + F at it and ``free_energy`` is F; ``residual`` says how well the
    equation of the minimiser holds (each function states in which norm).
    """

    state: Tensor
    objective: float
    free_energy: float
    iterations: int
    residual: float
    status: Literal["converged", "not converged"]


def jko_step_grid(
    density: Float[Tensor, " n"] | ArrayLike,
    potential: Float[Tensor, " n"] | ArrayLike,
    *,
    spacing: float,
    step: float,
    diffusivity: float,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
) -> JKOStep:
    r"""JKO step of a density on the cells of an interval with walls.

    .. math:: \nu \log\frac{\rho_{j+1}}{\rho_j} + U_{j+1} - U_j
              + \frac h\tau \bigl(x_j - Q_0(F_j)\bigr) = 0 \quad\text{at each inner edge } x_j

    Parameters
    ----------
    density : ρ₀ on n cells, of any positive mass; zeros are allowed before the first and after the
        last positive cell only.
    potential : U at the cell centres.
    spacing, step, diffusivity : the cell width h, τ and ν, each > 0.
    tolerance : bound on the residual, the largest error of the equation in units of ν + h²/τ: of
        log ratios of neighbouring densities and of transport in cells.

    Raises
    ------
    InvalidInputError
        If a number is out of range, shapes differ, or the density has an inner zero.
    ConvergenceError
        If the residual stays above the tolerance; ``partial`` is the step reached.

    Notes
    -----
    The equation is that of a strictly convex problem in F, of second order in h, whose fixed
    points are the Gibbs laws ρ_j ∝ e^{−U_j/ν} exactly; the mass is kept and the free energy cannot
    rise. Newton with a tridiagonal solve, O(n) an iteration, usually under ten; in log ρ, so that
    tails are right far below the rounding of the bulk. Less than 1e-30 of the mass in a cell counts
    as none. Inner valleys 1e-5 below their hills, or densities rough from cell to cell, can defeat
    it: then it raises, and a floor on the density helps. Jordan, Kinderlehrer & Otto (1998).

    Examples
    --------
    >>> x = (torch.arange(200, dtype=torch.float64) - 99.5) * 0.1
    >>> start = torch.exp(-(x**2) / 2)
    >>> new = jko_step_grid(start, 0 * x, spacing=0.1, step=0.5, diffusivity=1.0).state
    >>> ((new * x**2).sum() / new.sum()).sqrt()  # ½(1 + √3) = 1.366
    tensor(1.3659, dtype=torch.float64)
    """
    _check_positive(spacing=spacing, step=step, diffusivity=diffusivity)
    rho, U = (as_reals(v, name) for v, name in ((density, "density"), (potential, "potential")))
    _check_cells(rho, U)
    h, nu = spacing, diffusivity
    start = rho.double().numpy(force=True)
    mass = float(start.sum()) * h
    line = ProximalLine(start / start.sum(), U.double().numpy(force=True), h, step, nu)
    u, residual, iterations = line.solved(tolerance, max_iterations)
    m = np.exp(u)
    free = float(m @ (line.U + nu * (u - math.log(h))))
    # Mass M multiplies both the transport cost and the energies; ρ log ρ brings ν log M along.
    objective, free = (mass * (e + nu * math.log(mass)) for e in (line.objective(u), free))
    state = torch.from_numpy(m * (mass / h)).to(rho)
    return _finished(state, objective, free, iterations, residual, tolerance)


def jko_step_particles(
    particles: Float[Tensor, "n d"] | ArrayLike,
    potential: Potential,
    *,
    step: float,
    diffusivity: float,
    bandwidth: float | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
) -> JKOStep:
    r"""JKO step of equal particles; particle i moves from y_i to x_i.

    .. math:: \min_x \frac1n\sum_i \frac{|x_i-y_i|^2}{2\tau} + \frac1n\sum_i U(x_i)
              - \nu\,\hat S(x)

    Parameters
    ----------
    particles : y, shape (n, d).
    potential : U, from points (n, d) to values (n,), differentiable by torch.
    step, diffusivity : τ > 0 and ν > 0.
    bandwidth : η of the kernel estimate; given, it is also used for d = 1. Default for d ≥ 2:
        s(4/((d+2)n))^{1/(d+4)} (Silverman) of y, s its root mean square deviation.
    tolerance : bound on the residual, the root mean square of the gradient relative to that of its
        terms (the velocities of transport, potential and entropy).

    Raises
    ------
    InvalidInputError
        If a number or shape is out of range, or particles coincide and no bandwidth is given.
    ConvergenceError
        If the residual stays above the tolerance; ``partial`` is the step reached.

    Notes
    -----
    d = 1: particles are quantiles, Ŝ = Σ log((n−1)(x_{(i+1)} − x_{(i)}))/(n−1) over the gaps, of
    bias O(1/n), from the two ends. Strictly convex if U'' > −1/τ; Newton, O(n) an iteration. The
    virial ⟨x(x−y)⟩/τ + ⟨xU'⟩ = ν holds exactly. d ≥ 2: Ŝ = −mean log of the Gaussian kernel density
    at the particles, itself included, η fixed during the step: not convex, a stationary point below
    the start; L-BFGS, O(n²d) a gradient. For many particles of a Gaussian of deviation σ the push
    ν/σ is weak by the factor 1 − η⁴/(σ²+η²)². W₂ is read along the labels, an upper bound that is
    exact while the moves stay monotone. Source: Carrillo, Craig & Patacchini (2019).

    Examples
    --------
    >>> y = torch.special.ndtri((torch.arange(500, dtype=torch.float64) + 0.5) / 500)[:, None]
    >>> moved = jko_step_particles(y, lambda x: 0 * x[:, 0], step=0.5, diffusivity=1.0)
    >>> bool(abs(moved.state.std() - 1.366) < 0.01)
    True
    """
    _check_positive(step=step, diffusivity=diffusivity)
    y = as_reals(particles, "particles")
    if y.ndim != 2 or y.shape[0] < 2 or y.shape[1] < 1:
        raise InvalidInputError(
            "particles must have shape (n, d) with n >= 2 and d >= 1; found "
            f"{tuple(y.shape)}. Numbers on a line are (n, 1)."
        )
    refuse(~y.isfinite(), y, "particles must be finite", "Drop such particles first.")
    cloud = y.detach().double()
    tau, nu, stop = step, diffusivity, (tolerance, max_iterations)
    if y.shape[1] == 1 and bandwidth is None:
        x, entropy, velocities, iterations = _move_quantiles(cloud, potential, tau, nu, stop)
    else:
        eta = _silverman(cloud) if bandwidth is None else bandwidth
        _check_positive(bandwidth=eta)
        x, entropy, velocities, iterations = _move_cloud(cloud, potential, tau, nu, eta, stop)
    free = float(_values(potential, x).mean()) - nu * entropy
    objective = free + float((x - cloud).square().sum(-1).mean()) / (2 * tau)
    return _finished(x.to(y), objective, free, iterations, _relative(velocities), tolerance)


def jko_step(
    state: Tensor | ArrayLike,
    potential: Potential | Tensor | ArrayLike,
    *,
    step: float,
    diffusivity: float,
    spacing: float | None = None,
) -> JKOStep:
    r"""One proximal step of entropy plus potential, from a density or from particles.

    .. math:: \rho^+ = \arg\min_\rho \tfrac{1}{2\tau} W_2^2(\rho, \rho_0)
              + \int U\,d\rho + \nu \int \rho\log\rho

    Parameters
    ----------
    state
        A density (n,) on cells of width ``spacing``, or particles (n, d) when no spacing is given.
    potential
        U: its values on the cells, or a function of points.
    step, diffusivity
        τ and ν, both positive.
    spacing
        Width of a cell; its presence says that the state is a density.

    Raises
    ------
    InvalidInputError, ConvergenceError
        As :func:`jko_step_grid` and :func:`jko_step_particles`, which it calls, and when a density
        comes with a function or particles with values.

    Examples
    --------
    >>> density, flat = [0.25, 0.75, 0.75, 0.25], [0.0, 0.0, 0.0, 0.0]
    >>> moved = jko_step(density, flat, spacing=0.5, step=0.01, diffusivity=1.0)
    >>> round(float(moved.state.sum() * 0.5), 9), bool(moved.state[1] < 0.75)
    (1.0, True)
    """
    if callable(potential) != (spacing is None):
        raise InvalidInputError(
            "a density comes with spacing and the potential's values on its cells, particles with "
            f"a function and no spacing; found spacing={spacing} and a potential that is "
            f"{'a function' if callable(potential) else 'an array'}. Pass a matching pair."
        )
    if spacing is None:
        move = cast(Potential, potential)
        return jko_step_particles(state, move, step=step, diffusivity=diffusivity)
    values = cast("Tensor | ArrayLike", potential)
    return jko_step_grid(state, values, spacing=spacing, step=step, diffusivity=diffusivity)


def _move_quantiles(
    cloud: Tensor, potential: Potential, tau: float, nu: float, stop: tuple[float, int]
) -> tuple[Tensor, float, list[Array], int]:
    n, order = len(cloud), cloud[:, 0].argsort(stable=True)
    y = cloud[order, 0].numpy(force=True)
    x = y + math.sqrt(nu * tau) * np.linspace(-0.5, 0.5, n)

    def value(z: Array) -> float:
        if np.diff(z).min() <= 0:
            return math.inf
        energy = float(_values(potential, torch.from_numpy(z).to(cloud)[:, None]).mean())
        return float(((z - y) ** 2).mean() / (2 * tau) + energy - nu * np.log(np.diff(z)).mean())

    velocities, iterations = _line_velocities(x, y, potential, tau, nu), 0
    while _relative(velocities[:3]) > stop[0] and iterations < stop[1]:
        stiff = n * nu / (n - 1) / np.diff(x) ** 2
        diagonal = np.maximum(1 / tau + velocities[3], 0.01 / tau)
        diagonal += np.append(0.0, stiff) + np.append(stiff, 0.0)
        banded = np.stack([np.append(0.0, -stiff), diagonal])
        direction, before, length = solveh_banded(banded, -sum(velocities[:3])), value(x), 1.0
        while length > 1e-12 and value(x + length * direction) > before + 1e-13 * (1 + abs(before)):
            length /= 2
        x, iterations = x + length * direction, iterations + 1
        velocities = _line_velocities(x, y, potential, tau, nu)
    moved = torch.empty_like(cloud)
    moved[order, 0] = torch.from_numpy(x).to(cloud)
    return moved, float(np.log((n - 1) * np.diff(x)).mean()), velocities[:3], iterations


def _line_velocities(
    x: Array, y: Array, potential: Potential, tau: float, nu: float
) -> list[Array]:
    """Pulls of transport, potential and entropy on each particle, and the curvature of U."""
    points = torch.from_numpy(x)[:, None].requires_grad_()
    current, found = _values(potential, points).sum(), []
    for _ in range(2):  # a value without graph is a constant
        slope = torch.zeros_like(points)
        if current.requires_grad:
            (slope,) = torch.autograd.grad(current, points, create_graph=True)
        found.append(slope.numpy(force=True)[:, 0])
        current = slope.sum()
    push = len(x) * nu / (len(x) - 1) / np.diff(x)
    return [(x - y) / tau, found[0], np.append(push, 0.0) - np.append(0.0, push), found[1]]


def _move_cloud(
    cloud: Tensor, potential: Potential, tau: float, nu: float, eta: float, stop: tuple[float, int]
) -> tuple[Tensor, float, list[Array], int]:
    n, d = cloud.shape
    root = math.sqrt(n)  # in x/√n the transport part has the curvature 1/τ

    def terms(x: Tensor) -> list[Tensor]:
        apart = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
        log_density = torch.logsumexp(-apart / (2 * eta**2), -1) - math.log(n)
        log_density = log_density - d / 2 * math.log(2 * math.pi * eta**2)
        transport = (x - cloud).square().sum(-1).mean() / (2 * tau)
        return [transport, _values(potential, x).mean(), nu * log_density.mean()]

    def velocities(z: Array) -> tuple[float, list[Array]]:
        x = torch.from_numpy(root * z).to(cloud).reshape(n, d).requires_grad_()
        parts = terms(x)
        graded = [(p, x) for p in parts if p.requires_grad]
        slopes = [torch.autograd.grad(p, x, retain_graph=True)[0] for p, x in graded]
        return sum(float(p.detach()) for p in parts), [
            n * s.numpy(force=True).ravel() for s in slopes
        ]

    def objective(z: Array) -> tuple[float, Array]:
        value, slopes = velocities(z)
        return value, np.sum(slopes, axis=0) / root

    start = cloud.numpy(force=True).ravel() / root
    size = float(np.abs(velocities(start)[1]).max()) / root
    options = {"maxiter": stop[1], "maxcor": 20, "ftol": 0.0, "gtol": 0.01 * stop[0] * size}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    x = torch.from_numpy(root * found.x).to(cloud).reshape(n, d)
    return x, -float(terms(x)[2]) / nu, velocities(found.x)[1], int(found.nit)


def _relative(velocities: list[Array]) -> float:
    """Root mean square of a sum of velocities relative to that of the sum of their sizes."""
    whole = np.linalg.norm(np.sum(velocities, axis=0))
    return float(whole / np.linalg.norm(np.sum(np.abs(velocities), axis=0)))


def _values(potential: Potential, x: Tensor) -> Tensor:
    values = potential(x)
    if not isinstance(values, Tensor) or values.shape != x.shape[:1]:
        raise InvalidInputError(
            f"potential must map points {tuple(x.shape)} to a tensor of shape ({len(x)},); found "
            f"{tuple(getattr(values, 'shape', ()))}. Sum over the last axis."
        )
    refuse(~values.isfinite(), values, "potential must be finite", "Restrict it to its domain.")
    return values


def _silverman(cloud: Tensor) -> float:
    n, d = cloud.shape
    spread = float((cloud - cloud.mean(0)).square().mean().sqrt())
    return float(spread * (4 / ((d + 2) * n)) ** (1 / (d + 4)))


def _finished(
    state: Tensor, objective: float, free: float, iterations: int, residual: float, bound: float
) -> JKOStep:
    result = JKOStep(
        state=state,
        objective=objective,
        free_energy=free,
        iterations=iterations,
        residual=residual,
        status="converged" if residual <= bound else "not converged",
    )
    if result.status == "not converged":
        message = (
            f"the residual must be at most {bound:.3g}; found {residual:.3g} after {iterations}"
        )
        todo = "iterations. Shorten the step, or raise max_iterations or the tolerance."
        raise ConvergenceError(f"{message} {todo}", result)
    return result


def _check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise InvalidInputError(f"{name} must be finite and > 0; found {value:.6g}. Pass one.")


def _check_cells(rho: Tensor, U: Tensor) -> None:
    if rho.ndim != 1 or len(rho) < 3 or U.shape != rho.shape:
        raise InvalidInputError(
            "density and potential must be vectors over the same cells, 3 at least; found shapes "
            f"{tuple(rho.shape)} and {tuple(U.shape)}. One density a call."
        )
    bad = ~rho.isfinite() | (rho < 0)
    refuse(bad, rho, "density must be finite and >= 0", "Clip on purpose first.")
    refuse(~U.isfinite(), U, "potential must be finite", "Cut the interval where it is not.")
    live = (rho > EMPTY * rho.sum()).nonzero()[:, 0]
    if len(live) == 0:
        raise InvalidInputError("density must have a positive cell; found none. Pass a density.")
    inner = rho[int(live[0]) : int(live[-1]) + 1]
    expected = "density must be positive between its first and last positive cell"
    refuse(inner <= EMPTY * rho.sum(), inner, expected, "Add a small floor on purpose.")
