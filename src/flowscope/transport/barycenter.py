r"""Barycenters by entropic transport, and the drift of a family of laws towards theirs.

.. math:: \bar\mu = \arg\min_\mu \sum_k \lambda_k\, L(\mu, \nu_k)

The loss L decides what the entropy does. For equal Gaussians of variance a > ε and cost ½|x − y|²
the barycenter has variance a under ``debiased`` (L the Sinkhorn divergence S), a + ε under
``lebesgue`` (⟨C, Π⟩ − ε · Shannon entropy of Π) and a − ε under ``product`` (⟨C, Π⟩ + ε KL(Π‖μ⊗ν)):
only the first gives equal inputs back. All is computed and returned in float64, without gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_probabilities, as_reals, refuse
from flowscope.transport.cloud import PointCloud
from flowscope.transport.coupling import Coupling, Status
from flowscope.transport.entropic import sinkhorn
from flowscope.transport.geometry import Geometry, as_geometry
from flowscope.transport.masses import as_masses
from flowscope.transport.options import Options
from flowscope.transport.problem import strength

__all__ = [
    "BarycenterDrift",
    "FixedBarycenter",
    "FreeBarycenter",
    "barycenter_drift",
    "fixed_barycenter",
    "free_barycenter",
]

Array: TypeAlias = Tensor | ArrayLike
_Result = TypeVar("_Result")
_OPTIONS = ("epsilon", "relative_epsilon", "tolerance", "max_iterations", "on_failure")
_INNER = 0.01  # couplings are solved to this much of the residual asked for


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedBarycenter:
    """Masses on a given support; ``status`` is that of the whole batch.

    ``marginal_error`` is the largest ℓ₁ distance, over the total mass, between ``masses`` and what
    one of the couplings (the self-coupling of ``debiased`` too) brings to the support.
    """

    masses: Float[Tensor, "*batch n"]
    marginal_error: Float[Tensor, "*batch"]
    iterations: Int[Tensor, "*batch"]
    epsilon: Float[Tensor, "*batch"]
    status: Status


@dataclass(frozen=True, kw_only=True, eq=False)
class FreeBarycenter:
    """Points of equal mass; ``objective`` is Σ λ_k L(μ, ν_k) there, in units of ½|x−y|².

    ``residual`` is the root mean square of the displacement left, over that of the clouds' points
    about their common mean; ``marginal_error`` the worst of the couplings.
    """

    points: Float[Tensor, "m d"]
    masses: Float[Tensor, " m"]
    objective: float
    residual: float
    marginal_error: float
    iterations: int
    epsilon: float
    status: Status


@dataclass(frozen=True, kw_only=True, eq=False)
class BarycenterDrift:
    """Velocities of the points of each cloud, their goal, and the status of each cloud's couplings.

    The dispersion of the family, Σ λ_k S(μ_k, μ̄), is ``barycenter.objective``.
    """

    velocities: tuple[Float[Tensor, "_n d"], ...]
    barycenter: FreeBarycenter
    statuses: tuple[Status, ...]


def fixed_barycenter(
    masses: Float[Tensor, "*batch k n"] | ArrayLike,
    cost: Geometry | Array,
    weights: Float[Tensor, " k"] | ArrayLike | None = None,
    *,
    loss: Literal["debiased", "lebesgue"] = "debiased",
    **options: Unpack[Options],
) -> FixedBarycenter:
    r"""Barycenter of histograms on a common support.

    .. math:: \Pi_k = u_k \odot K \odot v_k, \quad \Pi_k 1 = \alpha_k, \quad \Pi_k^\top 1 = \alpha
              = d \odot Kd, \quad d = \textstyle\prod_k v_k^{\lambda_k},\; K = e^{-C/\varepsilon}

    Parameters
    ----------
    masses : α_k, shape (…, K, n) with K ≥ 2; one total within each problem, which α keeps.
    cost : C, symmetric and finite, shape (n, n), or a ``PointCloud`` of the support alone.
    weights : λ, a probability vector over the K histograms; uniform when missing.
    loss : ``"debiased"``, or ``"lebesgue"``, for which d = 1 and the answer is blurred by ε.
    **options : ε, ``tolerance`` (1e-5), ``max_iterations`` (10,000), ``on_failure``: as sinkhorn's.

    Raises
    ------
    InvalidInputError : on fewer than two histograms, totals that differ, negative masses, weights
        that are not probabilities, or a cost that is masked or not symmetric.
    ConvergenceError : if the tolerance was not reached; ``partial`` is the result.

    Notes
    -----
    Iterative Bregman projections in the log domain, 2K + 1 products of n² a sweep: Janati, Cuturi &
    Gramfort (2020), Alg. 1, but d moves before v, so that d = ∏v^λ when the error is read, which is
    then all that is missing from optimality; Benamou et al. (2015) for ``lebesgue``. Scales below
    √ε are ill-posed: a mode of eigenvalue p of the self-coupling converges as (1 − ½p − ½p²)^t, its
    error in α being (1 − p)/p times the one seen. Rough histograms come back smoothed.

    Examples
    --------
    >>> x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    >>> hump = torch.softmax(-((x + torch.tensor([[1.0], [-1.0]])) ** 2), -1)
    >>> found = fixed_barycenter(hump, PointCloud(x[:, None]), epsilon=0.1)
    >>> (found.masses * x**2).sum().round(decimals=3)  # both humps have variance ½
    tensor(0.5000, dtype=torch.float64)
    """
    tolerance, most = _limits(options, (1e-5, 10_000), loss, "lebesgue")
    geometry = _one_support(as_geometry(cost)).to(torch.float64)
    given = as_masses(masses, "masses", geometry.n, geometry).detach()
    lam = _weights(weights, given.shape[-2] if given.ndim > 1 else 1, given.device)
    factors = _factors(given.double().sum(-1), given.dtype, geometry.n)
    alpha = (given * factors[..., None]).movedim(-2, 0)[lam > 0]
    epsilon = strength(geometry, options.get("epsilon"), options.get("relative_epsilon"))
    epsilon = epsilon.expand(given.shape[:-2])
    w, e = lam[lam > 0].reshape(-1, *[1] * (alpha.ndim - 1)), epsilon.expand(alpha.shape[:-1])
    alone, every = (geometry.expand(tuple(t.shape)) for t in (epsilon, e))
    log_v, log_d, total = torch.zeros_like(alpha), torch.zeros_like(alpha[0]), alpha[0].sum(-1)
    bar, error, count = alpha[0], epsilon * torch.inf, torch.zeros_like(epsilon).long()
    while bool((going := error > tolerance).any()) and int(count.max()) < most:
        log_u = alpha.log() - every.soft_rows(log_v, e)
        reached = every.soft_rows(log_u, e)  # columns and rows alike: the cost is symmetric
        columns = (log_v + reached).exp()
        new, middle = (w * columns).sum(0), (w * reached).sum(0)
        off = (columns - new).abs().sum(-1).amax(0)
        if loss == "debiased":
            own = alone.soft_rows(log_d, epsilon)
            off = torch.maximum(off, ((log_d + own).exp() - new).abs().sum(-1))
            log_d = log_d + (middle - own) / 2
        log_v = log_d + middle - reached
        bar = torch.where(going[..., None], new, bar)  # a problem that is done stays as it is
        error, count = torch.where(going, off / total, error), count + going
    result = FixedBarycenter(
        masses=bar,
        marginal_error=error,
        iterations=count,
        epsilon=epsilon,
        status="not converged" if bool((error > tolerance).any()) else "converged",
    )
    return _judged(result, result.status, f"marginal error {float(error.max()):.3g}", options)


def free_barycenter(
    clouds: Sequence[Array],
    masses: Sequence[Array | None] | None = None,
    weights: Float[Tensor, " k"] | ArrayLike | None = None,
    *,
    support: int | Float[Tensor, "m d"] | ArrayLike | None = None,
    loss: Literal["debiased", "product"] = "debiased",
    **options: Unpack[Options],
) -> FreeBarycenter:
    r"""Barycenter of point clouds as m points of equal mass that are free to move.

    .. math:: x \leftarrow x + \textstyle\sum_k \lambda_k T_k(x) - T_\mu(x), \qquad
              T_k : \mu \to \nu_k,\; T_\mu : \mu \to \mu \text{ barycentric maps}

    Parameters
    ----------
    clouds : ν_k, K ≥ 2 clouds of shape (n_k, d).
    masses : masses of each cloud, with equal totals; uniform of total one where missing.
    weights : λ, a probability vector over the clouds; uniform when missing.
    support : m, or m points to start from; as many as the largest cloud has when missing.
    loss : ``"debiased"``, or ``"product"``: T_μ(x) is then x itself, and the cloud shrinks by ε.
    **options : as for :func:`fixed_barycenter`; ``tolerance`` (1e-3) bounds the residual and
        ``max_iterations`` (500) the moves; a relative ε reads the costs among all points.

    Raises
    ------
    InvalidInputError, ConvergenceError : as for :func:`fixed_barycenter`; also on clouds of
        different dimension, an empty support, or a coupling that missed its bound.

    Notes
    -----
    Descent of step 1 along the W₂ gradient T_μ − Σ λ_k T_k of Σ λ_k S(μ, ν_k), to a stationary
    point; for ε → 0 the fixed point of Álvarez-Esteban et al. (2016), for ``product`` Cuturi &
    Doucet (2014), Alg. 2. K + 1 warm couplings a move, solved to 1e-2 of the tolerance. The start
    is a scrambled Sobol sample (seed 0) of N(Σ λ_k m_k, Σ λ_k Σ_k). Below √ε the gradient vanishes:
    from this start, equal clouds are met in law (S ≈ 0) and not point by point.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> free_barycenter([x, 3 * x + 1], epsilon=0.01, support=x).points[-1].round(decimals=2)
    tensor([2.5000], dtype=torch.float64)
    """
    tolerance, most = _limits(options, (1e-3, 500), loss, "product")
    points, b, lam = _family(clouds, masses, weights)
    pool, debiased = PointCloud(torch.cat(points)), loss == "debiased"
    epsilon = float(strength(pool, options.get("epsilon"), options.get("relative_epsilon")))
    solve = partial(sinkhorn, epsilon=epsilon, tolerance=_INNER * tolerance, on_failure="return")
    x, scale = _start(support, points, b, lam)
    mu = torch.full_like(x[:, 0], float(b[0].sum()) / len(x))
    targets = [(y, v, w) for y, v, w in zip(points, b, lam.tolist(), strict=True) if w > 0]
    across, iterations = list[Coupling](), 0
    while True:
        sides = targets + [(x, mu, -1.0)] * debiased
        starts = [(c.f, c.g) for c in across] if across else [None] * len(sides)
        move, across = torch.zeros_like(x) if debiased else -x, []
        for (y, v, w), start in zip(sides, starts, strict=True):
            across.append(solve(PointCloud(x, y), mu, v, initial=start))
            move = move + w * across[-1].barycentric(y)
        length, solved = move.square().sum(-1).mean().sqrt(), all(bool(c.converged) for c in across)
        residual = float(length) / scale if length > 0 else 0.0
        if residual <= tolerance or iterations >= most or not solved:
            break
        x, iterations = x + move, iterations + 1
    objective = sum(w * float(c.value) for (_, _, w), c in zip(targets, across, strict=False))
    if debiased:
        own = [w * solve(PointCloud(y), v, v).value for y, v, w in targets]
        objective -= float(across[-1].value + sum(own)) / 2
    result = FreeBarycenter(
        points=x,
        masses=mu,
        objective=objective,
        residual=residual,
        marginal_error=max(float(c.marginal_error) for c in across),
        iterations=iterations,
        epsilon=epsilon,
        status="converged" if solved and residual <= tolerance else "not converged",
    )
    return _judged(result, result.status, _reached(result), options)


def barycenter_drift(
    clouds: Sequence[Array],
    strength: float,
    *,
    weights: Float[Tensor, " k"] | ArrayLike | None = None,
    support: int | Float[Tensor, "m d"] | ArrayLike | None = None,
    **options: Unpack[Options],
) -> BarycenterDrift:
    r"""Velocity that pulls every cloud of a family towards their common barycenter.

    .. math:: \dot x = \kappa(T_k(x) - T_{\mu_k}(x)) = -\kappa\,\nabla S_\varepsilon(\mu_k, \bar\mu)

    Parameters
    ----------
    clouds, weights, support, **options : as for :func:`free_barycenter`, which gives μ̄; points of
        a cloud have equal mass, and clouds of weight zero are pulled too.
    strength : κ ≥ 0, a rate: means approach the barycenter's as e^{−κt}.

    Raises
    ------
    InvalidInputError, ConvergenceError : as for :func:`free_barycenter`, and if κ is negative or
        not finite; ``partial`` is the drift.

    Notes
    -----
    T_k is the barycentric map from μ_k to μ̄, less that from μ_k to itself: at the barycenter a
    cloud rests, and for ε → 0 this is κ(T(x) − x). Two couplings a cloud besides μ̄. Source: 003
    §4.1, eq 17, but its ∇W₂ has length one up to μ̄ and is undefined there: this is ∇½W₂², debiased.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> barycenter_drift([x, x + 2], 0.5, epsilon=0.1).velocities[1].mean().round(decimals=3)
    tensor(-0.5000, dtype=torch.float64)
    """
    if not 0 <= strength < float("inf"):
        raise InvalidInputError(f"strength must be finite and >= 0; found {strength}: it's a rate.")
    points, masses, _ = _family(clouds, None, weights)
    quiet: Options = {**options, "on_failure": "return"}
    bar = free_barycenter(clouds, None, weights, support=support, **quiet)
    inner, velocities, statuses = _INNER * options.get("tolerance", 1e-3), [], list[Status]()
    solve = partial(sinkhorn, epsilon=bar.epsilon, tolerance=inner, on_failure="return")
    for x, a in zip(points, masses, strict=True):
        across, own = solve(PointCloud(x, bar.points), a, bar.masses), solve(PointCloud(x), a, a)
        velocities.append(strength * (across.barycentric(bar.points) - own.barycentric(x)))
        statuses.append(max(across.status, own.status))  # "not converged" sorts last
    result = BarycenterDrift(velocities=tuple(velocities), barycenter=bar, statuses=tuple(statuses))
    return _judged(result, max(bar.status, *statuses), f"{_reached(bar)}, {statuses}", options)


def _family(
    clouds: Sequence[Array], masses: Sequence[Array | None] | None, weights: Array | None
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Points, masses and weights, checked and in float64."""
    read = [as_reals(cloud, f"cloud {k}").detach() for k, cloud in enumerate(clouds)]
    lam = _weights(weights, len(read), read[0].device if read else None)
    sizes, given = [tuple(y.shape) for y in read], [None] * len(read) if masses is None else masses
    one = all(len(size) == 2 and 0 not in size and size[1] == sizes[0][1] for size in sizes)
    if not one or len(given) != len(read):
        expected = "clouds must be points (n, d) of one dimension, none empty, with masses for each"
        raise InvalidInputError(f"{expected}; found {sizes} and {len(given)} masses. Reshape them.")
    points = [cloud.double() for cloud in read]
    pairs = enumerate(zip(given, points, strict=True))
    b = [as_masses(w, f"masses {k}", len(y), PointCloud(y)).detach() for k, (w, y) in pairs]
    narrow = torch.float32 if any(w.dtype == torch.float32 for w in b) else torch.float64
    factors = _factors(torch.stack([w.double().sum() for w in b]), narrow, max(map(len, b)))
    return points, [w.double() * f for w, f in zip(b, factors, strict=True)], lam


def _start(
    support: int | Array | None, points: list[Tensor], b: list[Tensor], lam: Tensor
) -> tuple[Float[Tensor, "m d"], float]:
    """Points to start from, and the root mean square of the clouds about their common mean."""
    means = torch.stack([v @ y / v.sum() for v, y in zip(b, points, strict=True)])
    whole = zip(lam, b, points, means, strict=True)
    rows = torch.cat([(w * v / v.sum()).sqrt()[:, None] * (y - m) for w, v, y, m in whole])
    mean = lam @ means
    scale = float((rows.square().sum() + lam @ (means - mean).square().sum(-1)).sqrt())
    m = max(map(len, points)) if support is None else support
    if not isinstance(m, int) or m < 1:
        x = as_reals(m, "support", mean.device).detach().double()
        if x.ndim != 2 or len(x) == 0 or x.shape[1] != len(mean):
            found = m if isinstance(m, int) else f"shape {tuple(x.shape)}"
            expected = f"support must be a number m >= 1 or m >= 1 points (m, {len(mean)})"
            raise InvalidInputError(f"{expected}; found {found}. Ask for at least one point.")
        return x, scale
    sobol = torch.quasirandom.SobolEngine(len(mean), True, seed=0)  # type: ignore[no-untyped-call]
    z = torch.special.ndtri(sobol.draw(m, dtype=torch.float64) + 2.0**-31)  # never at 0
    z = (z - z.mean(0)).to(mean.device)
    z = z / z.square().mean(0).sqrt() if m > 1 else z
    _, s, Vh = torch.linalg.svd(rows, full_matrices=False)  # rowsᵀ rows = Σ λ_k Σ_k
    return mean + (z @ Vh.mT * s) @ Vh, scale


def _limits(options: Options, usual: tuple[float, int], loss: str, other: str) -> tuple[float, int]:
    """Tolerance and most iterations, after checking the options' names and values."""
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise InvalidInputError(f"unknown option {unknown[0]!r}; known are {', '.join(_OPTIONS)}.")
    if loss not in ("debiased", other):
        todo = "'lebesgue' is for a fixed support, 'product' for a free one"
        raise InvalidInputError(f"loss must be 'debiased' or {other!r}; found {loss!r}. {todo}.")
    bound, most = options.get("tolerance", usual[0]), options.get("max_iterations", usual[1])
    on_failure = options.get("on_failure", "raise")
    if not bound > 0 or most < 1 or on_failure not in ("raise", "return"):
        expected = "tolerance must be > 0, max_iterations >= 1 and on_failure 'raise' or 'return'"
        raise InvalidInputError(f"{expected}; found {bound}, {most} and {on_failure!r}.")
    return bound, most


def _weights(weights: Array | None, k: int, device: torch.device | None) -> Float[Tensor, " k"]:
    if k < 2:
        todo = "Histograms are (…, K, n), clouds a list of (n, d)"
        raise InvalidInputError(f"a barycenter needs at least two inputs; found {k}. {todo}.")
    lam = as_probabilities([1 / k] * k if weights is None else weights, "weights")
    if lam.shape != (k,):
        raise InvalidInputError(f"weights must be ({k},); found {tuple(lam.shape)}. One an input.")
    return lam.detach().to(device, torch.float64)


def _factors(totals: Tensor, dtype: torch.dtype, n: int) -> Float[Tensor, "*batch k"]:
    """What brings totals to the first of them; more than the rounding of a sum of n raises."""
    factors = totals[..., :1] / totals
    bad = (factors - 1).abs() > 64 * torch.finfo(dtype).eps * n**0.5
    expected = "all inputs must have equal totals, a ratio of 1 to the first"
    refuse(bad, 1 / factors, expected, "Divide each by its sum.")
    return factors


def _one_support(geometry: Geometry) -> Geometry:
    """Pass a geometry that is one, finite and symmetric."""
    same = geometry.n == geometry.m and not geometry.batch and geometry.mask() is None
    if same and isinstance(geometry, PointCloud):
        same = torch.equal(geometry.x, geometry.y)
    elif same:
        same = torch.allclose(C := geometry.dense().detach(), C.mT, rtol=1e-6, atol=0.0)
    if not same:
        shape = (*geometry.batch, geometry.n, geometry.m)
        found = f"another of shape {shape}; PointCloud(x) is one"
        raise InvalidInputError(f"cost must be one finite symmetric matrix (n, n); found {found}.")
    return geometry


def _reached(bar: FreeBarycenter) -> str:
    coupled = f"coupled to {bar.marginal_error:.3g}"
    return f"residual {bar.residual:.3g} ({bar.iterations} moves, {coupled})"


def _judged(result: _Result, status: Status, found: str, options: Options) -> _Result:
    if status == "not converged" and options.get("on_failure", "raise") == "raise":
        todo = "Raise epsilon, max_iterations or tolerance, or pass on_failure='return'."
        raise ConvergenceError(f"the tolerance must be reached; found {found}. {todo}", result)
    return result
