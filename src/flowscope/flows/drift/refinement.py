r"""Does the drift settle when the layers are made finer? Source 000 Assumption 5.1(4), as a test.

A residual network x ← x + f_ℓ(x) is one step of an ODE per layer. The same network with branches
f_ℓ/n, each applied n times, takes n times as many steps of the same ODE. If there is a continuum
limit, paths and fitted drifts of successive n draw together,

.. math:: \|x_n - x_{\rho n}\| = C\,n^{-1}(1 - \rho^{-1}) + o(n^{-1}) ,

and the slope of its logarithm against log n is −1, as for explicit Euler. A slope near zero says
that the drift fitted at n = 1 belongs to the discrete network and to no ODE.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.baselines import Drift
from flowscope.flows.drift.samples import DriftSample, drift_sample
from flowscope.simplex.probability import as_reals

__all__ = ["Refinement", "Settling", "settling"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Refinement:
    """How one refinement compares with the finest.

    Attributes
    ----------
    substeps : n.
    drift : the drift fitted to its one-step pairs.
    drift_distance : relative L² distance to the drift of the finest, over the states of the finest.
    state_distance : root mean square of ‖y_n − y_finest‖ over tokens and the times of layers. Paths
        are paired, so it bounds the W₂ distance of the marginals, averaged over times.
    """

    substeps: int
    drift: Drift
    drift_distance: float
    state_distance: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Settling:
    """What :func:`settling` found.

    Attributes
    ----------
    refinements : one per n, coarsest first; the last is the finest and at distance zero.
    state_differences, drift_differences : distance of each n to the next.
    state_order, drift_order : slope of the logarithm of those against log n; −1 for Euler steps,
        NaN where a difference is zero.
    """

    refinements: tuple[Refinement, ...]
    state_differences: tuple[float, ...]
    drift_differences: tuple[float, ...]
    state_order: float
    drift_order: float


def settling(
    paths_by_refinement: Mapping[int, Float[Tensor, "tokens layers r"]],
    times: Float[Tensor, "steps_plus_1"],
    groups: Int64[Tensor, "tokens"],
    fit: Callable[[DriftSample], Drift],
) -> Settling:
    r"""Distances between refinements of a network, and the order at which they shrink.

    .. math:: \delta_n^2 = \frac{\sum_i \|\hat b_n - \hat b_{\max}\|^2(t_i, y_i)}
              {\sum_i \|\hat b_{\max}\|^2(t_i, y_i)}, \qquad
              \text{order} = \operatorname{slope}\big(\log \|x_n - x_{\rho n}\| \sim \log n\big)

    Parameters
    ----------
    paths_by_refinement : n → paths y with n·steps + 1 states; three or more n in constant ratio ρ.
    times : t of the layers, before refinement; substeps divide each layer evenly.
    groups : prompt of each token.
    fit : estimator b̂ of a drift, the same for every n.

    Raises
    ------
    InvalidInputError
        If there are fewer than three refinements, their ratio is not constant, shapes do not match,
        or the finest drift is zero.

    Notes
    -----
    One fit per n. Source 000 Assumption 5.1(4) and H.1 ask for ‖b̂_L − b‖ → 0 without saying how
    b could be known; the finest refinement stands for it. Distances to the finest flatten the
    slope, so orders come from successive differences.

    Examples
    --------
    >>> from flowscope.flows.drift import ridge_drift
    >>> start = torch.linspace(1, 2, 20).double()[:, None, None]
    >>> powers = {n: torch.arange(n + 1.0).double()[:, None] for n in (32, 64, 128)}
    >>> paths = {n: start * (1 + 1 / n) ** k for n, k in powers.items()}
    >>> found = settling(paths, torch.tensor([0.0, 1.0]), torch.arange(20), ridge_drift)
    >>> round(found.state_order, 1)
    -1.0
    """
    sizes = sorted(paths_by_refinement)
    _check(sizes, paths_by_refinement, times)
    layers = {n: as_reals(paths_by_refinement[n], "paths")[:, ::n].double() for n in sizes}
    samples = {n: drift_sample(paths_by_refinement[n], _refined(times, n), groups) for n in sizes}
    drifts = {n: fit(samples[n]) for n in sizes}
    at = samples[sizes[-1]]
    velocity = {n: drifts[n](at.times, at.states).double() for n in sizes}
    size = _rms(velocity[sizes[-1]])
    if size == 0:
        raise InvalidInputError(
            "The drift of the finest refinement must not be zero everywhere: nothing moves, and "
            "relative distances have no meaning."
        )
    rows = [
        Refinement(
            substeps=n,
            drift=drifts[n],
            drift_distance=_rms(velocity[n] - velocity[sizes[-1]]) / size,
            state_distance=_rms(layers[n] - layers[sizes[-1]]),
        )
        for n in sizes
    ]
    pairs = list(pairwise(sizes))
    states = tuple(_rms(layers[a] - layers[b]) for a, b in pairs)
    fields = tuple(_rms(velocity[a] - velocity[b]) / size for a, b in pairs)
    return Settling(
        refinements=tuple(rows),
        state_differences=states,
        drift_differences=fields,
        state_order=_slope(sizes[:-1], states),
        drift_order=_slope(sizes[:-1], fields),
    )


def _check(sizes: list[int], paths: Mapping[int, Tensor], times: Tensor) -> None:
    ratios = {b / a for a, b in pairwise(sizes)} if sizes else set()
    if len(sizes) < 3 or sizes[0] < 1 or max(ratios) - min(ratios) > 1e-12:
        raise InvalidInputError(
            "An order needs at least three refinements in constant ratio, such as 1, 2, 4, 8; "
            f"found {sizes}."
        )
    steps, shape = len(times) - 1, paths[sizes[0]].shape
    for n in sizes:
        if tuple(paths[n].shape) != (shape[0], n * steps + 1, shape[-1]):
            raise InvalidInputError(
                f"Paths of {n} substeps must have shape {(shape[0], n * steps + 1, shape[-1])} "
                f"for {steps} layers; found {tuple(paths[n].shape)}. Keep every substep and both "
                "ends."
            )


def _refined(times: Float[Tensor, "steps_plus_1"], n: int) -> Float[Tensor, "layers"]:
    t = as_reals(times, "times").double()
    inside = torch.arange(n, device=t.device) / n
    return torch.cat([(t[:-1, None] + t.diff()[:, None] * inside).flatten(), t[-1:]])


def _rms(x: Tensor) -> float:
    """Root mean square of the lengths of vectors."""
    return x.square().sum(-1).mean().sqrt().item()


def _slope(sizes: list[int], differences: tuple[float, ...]) -> float:
    if min(differences) == 0:
        return math.nan
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(differences, dtype=torch.float64).log()
    x = x - x.mean()
    return ((x @ y) / (x @ x)).item()
