r"""Local drift: a robust mean of the velocities of nearby pairs of other prompts.

.. math:: \hat b(t, y) = \arg\min_m \sum_{i \in \mathrm{NN}_k(t, y)} \rho_\delta(v_i - m)
          \quad\text{per coordinate}, \qquad
          d^2 = \frac1r \|A(y - y_i)\|^2 + \omega \frac{(t - t_i)^2}{\operatorname{var} t} ,

ρ_δ Huber's loss and A the whitening of the training states: time counts ω times as much as all
coordinates together. The field is constant between changes of the neighbours and jumps there; an
adaptive integrator sees a stiff equation, so step it from layer to layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.samples import DriftSample, check_moving
from flowscope.simplex.probability import as_reals, refuse, within_range

__all__ = ["Neighbours", "huber_location", "neighbour_drift"]

# At most so many distances, and so many velocities of neighbours, are held at a time.
_DISTANCES, _GATHERED = 2**24, 2**22
# Directions with less than this share of the largest variance are rounding, not geometry.
_NULL = 1e-10
# Of Huber's location: δ in units of the median absolute deviation, reweighted means.
_TUNING, _ITERATIONS = 1.345, 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbours:
    """A drift read from the nearest pairs; see :func:`neighbour_drift`.

    Attributes
    ----------
    neighbours : k chosen.
    errors : leave-one-prompt-out mean of ‖v − b‖² for each k tried.
    points, velocities : the reference pairs, the former in the metric of the search.
    centre, whitening, time_centre, time_scale : the map into that metric.
    dropped : how many directions of the states had no variance.
    """

    neighbours: int
    errors: dict[int, float]
    points: Float[Tensor, "M d"]
    velocities: Float[Tensor, "M r"]
    centre: Float[Tensor, "r"]
    whitening: Float[Tensor, "r d_minus_1"]
    time_centre: float
    time_scale: float
    dropped: int
    robust: bool = True
    name: str = "neighbours"

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t; a context is not looked at."""
        return within_range(self.unchecked(t, y), "The location of these values", infinite=True)

    def unchecked(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t, whatever it is: for an integrator."""
        states = as_reals(y, "y")
        when = torch.as_tensor(t, device=y.device).expand(y.shape[:-1]).reshape(-1)
        queries = self.placed(when, states.reshape(-1, states.shape[-1]))
        k = self.neighbours
        rows = max(1, _GATHERED // (k * self.velocities.shape[1]))
        found = [
            _location(self.velocities[part], self.robust)
            for part in torch.split(_nearest(queries, self.points, k), rows)
        ]
        return torch.cat(found).reshape(y.shape).to(y.dtype)

    def placed(self, t: Float[Tensor, "N"], y: Float[Tensor, "N r"]) -> Float[Tensor, "N d"]:
        """Points of the metric space in which the search is Euclidean."""
        if y.shape[-1] != len(self.centre):
            raise InvalidInputError(
                f"y must have {len(self.centre)} coordinates, as in training; found {y.shape[-1]}."
            )
        states = (y.double() - self.centre) @ self.whitening
        when = (t.double() - self.time_centre) * self.time_scale
        return torch.cat([states, when[:, None]], 1).float()


def neighbour_drift(
    sample: DriftSample,
    *,
    candidates: Sequence[int] = (8, 16, 32, 64),
    time_weight: float = 1.0,
    whitening: float = 1.0,
    robust: bool = True,
    probes: int = 2000,
    cap: int = 30_000,
    generator: torch.Generator | None = None,
) -> Neighbours:
    r"""Drift by nearest neighbours with Huber location, k by leaving prompts out.

    .. math:: k = \arg\min_k \sum_{i} \big\|v_i - \hat b_k^{(-g_i)}(t_i, y_i)\big\|^2

    Parameters
    ----------
    sample : pairs (y, v) with times t and prompts g.
    candidates : k to try.
    time_weight : ω; 1 lets time count as much as all coordinates of y together.
    whitening : exponent a of the whitening Σ^{−a/2}: 1 makes all directions count alike, 0 keeps
        their own sizes and only takes out the unit.
    robust : Huber's location with δ = 1.345·MAD; otherwise the mean.
    probes : at most so many pairs are predicted to choose k.
    cap : at most so many pairs are kept as reference, drawn without replacement.
    generator : draws probes and reference; without one they are spread evenly over the rows.

    Raises
    ------
    InvalidInputError
        If k is not between 1 and the number of pairs of other prompts, or nothing moves.

    Notes
    -----
    Brute force in float32 blocks, O(queries·M·r) time and 64 MiB of distances at a time. Pairs of
    the prompt of a probe are no neighbours of it: its own tokens are nearest and share its errors.
    Source 000 H.1 takes MAD unscaled, as here: δ is then 0.91 of a Gaussian standard deviation.
    In many dimensions all neighbours are far: compare with a ridge before use.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> start = torch.linspace(0, 1, 50)[:, None, None]
    >>> sample = drift_sample(
    ...     torch.cat([start, start + 2.0], 1), torch.tensor([0.0, 1.0]), torch.arange(50)
    ... )
    >>> neighbour_drift(sample, candidates=[4])(0.0, torch.tensor([[0.5]]))
    tensor([[2.]])
    """
    check_moving(sample)
    kept = _thinned(len(sample), cap, generator, sample.states.device)
    reference = sample.at(kept)
    _check_candidates(candidates, reference.groups)
    found = _metric(reference, time_weight=time_weight, whitening=whitening, robust=robust)
    asked = reference.at(_thinned(len(reference), probes, generator, kept.device))
    near = _nearest(
        found.placed(asked.times, asked.states),
        found.points,
        max(candidates),
        exclude=(asked.groups, reference.groups),
    )
    errors = {k: _missed(found, near[:, :k], asked.velocities) for k in candidates}
    best = min(errors, key=errors.__getitem__)
    return Neighbours(**{**vars(found), "neighbours": best, "errors": errors})


def huber_location(
    values: Float[Tensor, "n k r"], *, tuning: float = _TUNING, iterations: int = _ITERATIONS
) -> Float[Tensor, "n r"]:
    r"""Huber's location of k values, coordinate by coordinate.

    .. math:: \hat m = \arg\min_m \sum_{i=1}^k \rho_\delta(v_i - m), \qquad
              \delta = c \cdot \operatorname{med}_i |v_i - \operatorname{med} v|

    Parameters
    ----------
    values : v, the k values on the middle axis.
    tuning : c; large c gives the mean, 0 the median.
    iterations : reweighted means after the median.

    Notes
    -----
    O(n·k·r·(log k + iterations)). With δ = 0 (more than half the values equal) it is the median.
    Source 000 H.1.

    Examples
    --------
    >>> huber_location(torch.tensor([[[1.0], [2.0], [3.0], [1000.0]]])).round(decimals=2)
    tensor([[2.5000]])
    """
    refuse(~values.isfinite(), values, "values must be finite", "Leave out what is not.")
    found = _huber(values, tuning, iterations)
    return within_range(found, "The location of these values", infinite=True)


def _huber(values: Float[Tensor, "n k r"], tuning: float, iterations: int) -> Float[Tensor, "n r"]:
    m = _median(values)
    residual = (values - m[:, None]).abs_()
    # No spread must not be 0/0: then the weights are those of the median.
    tiny = torch.finfo(values.dtype).tiny
    least = (tiny**0.5 * values.abs().amax(1, keepdim=True)).clamp_min(tiny)
    delta = torch.maximum(tuning * _median(residual)[:, None], least)
    for _ in range(iterations):
        weight = delta / torch.maximum(residual, delta)
        m = torch.linalg.vecdot(weight, values, dim=1) / weight.sum(1)
        torch.sub(values, m[:, None], out=residual).abs_()
    return m


def _median(x: Float[Tensor, "n k r"]) -> Float[Tensor, "n r"]:
    """Midpoint of the two middle values, so that it changes sign with x."""
    k = x.shape[1]
    # numpy sorts short CPU columns ten times as fast as torch, to the same numbers.
    plain = x.device.type == "cpu" and not x.requires_grad
    ordered = torch.from_numpy(np.sort(x.numpy(), axis=1)) if plain else x.sort(1).values
    return (ordered[:, (k - 1) // 2] + ordered[:, k // 2]) / 2


def _location(values: Float[Tensor, "n k r"], robust: bool) -> Float[Tensor, "n r"]:
    return _huber(values, _TUNING, _ITERATIONS) if robust else values.mean(1)


def _nearest(
    queries: Float[Tensor, "n d"],
    points: Float[Tensor, "M d"],
    k: int,
    *,
    exclude: tuple[Int64[Tensor, "n"], Int64[Tensor, "M"]] | None = None,
) -> Int64[Tensor, "n k"]:
    """Rows of the k nearest points, nearest first, none of the same group."""
    half = points.square().sum(1) / 2
    found, most = [], max(1, _DISTANCES // len(points))
    for number, part in enumerate(torch.split(queries, most)):
        closeness = torch.addmm(half, part, points.mT, beta=-1)
        if exclude is not None:
            own = exclude[0][number * most : number * most + len(part), None]
            closeness.masked_fill_(own == exclude[1], -torch.inf)
        found.append(closeness.topk(k, 1).indices)
    return torch.cat(found)


def _metric(
    reference: DriftSample, *, time_weight: float, whitening: float, robust: bool
) -> Neighbours:
    """The reference pairs in the metric of the search, k still open."""
    y, t = reference.states.double(), reference.times.double()
    centre, r = y.mean(0), reference.width
    values, Q = torch.linalg.eigh((y - centre).mT @ (y - centre) / len(y))
    live = values > _NULL * values[-1]
    size = values[live].mean()
    A = Q[:, live] * ((values[live] / size) ** (-whitening / 2) / (size * r).sqrt())
    spread = t.std(correction=0).item()
    blank = Neighbours(
        neighbours=0,
        errors={},
        points=y.new_zeros(0, 0),
        velocities=reference.velocities,
        centre=centre,
        whitening=A,
        time_centre=t.mean().item(),
        time_scale=time_weight**0.5 / spread if spread > 0 else 0.0,
        dropped=int((~live).sum()),
        robust=robust,
    )
    return Neighbours(**{**vars(blank), "points": blank.placed(t, y)})


def _missed(found: Neighbours, near: Int64[Tensor, "n k"], true: Float[Tensor, "n r"]) -> float:
    rows = max(1, _GATHERED // (near.shape[1] * true.shape[1]))
    guess = [_location(found.velocities[part], found.robust) for part in torch.split(near, rows)]
    return (torch.cat(guess) - true).double().square().sum(1).mean().item()


def _thinned(n: int, cap: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """At most cap of n rows, in order."""
    if n <= cap:
        return torch.arange(n, device=device)
    if generator is None:
        return torch.linspace(0, n - 1, cap, dtype=torch.float64).round().long().to(device)
    return torch.randperm(n, generator=generator)[:cap].sort().values.to(device)


def _check_candidates(candidates: Sequence[int], groups: Int64[Tensor, "M"]) -> None:
    others = len(groups) - int(torch.unique(groups, return_counts=True)[1].max())
    if not candidates or min(candidates) < 1 or max(candidates) > others:
        raise InvalidInputError(
            f"candidates must lie between 1 and {others}, the pairs left without the largest "
            f"prompt; found {list(candidates)}. Try fewer neighbours or give more prompts."
        )
