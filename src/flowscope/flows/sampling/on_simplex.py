r"""Flows on the simplex: the mobility times a drift, watched so that they stay there.

.. math:: \dot p = J(p)\,b(t, p) = p \odot (b - \langle p, b\rangle), \qquad
          p = \operatorname{softmax} z,\; \dot z = b - \langle p, b\rangle\mathbf 1

The exact flow keeps mass and sign. A numerical one in p keeps mass to rounding and may push a small
entry below zero; the one in z keeps both by construction, and cannot start on the boundary.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.fields import Field, check_choice, field_at
from flowscope.flows.sampling.ode import OdePath, ode_path
from flowscope.simplex import apply_mobility, project_to_simplex
from flowscope.simplex.probability import ArrayLike, as_probabilities, refuse

__all__ = ["SimplexPath", "simplex_flow"]

Status: TypeAlias = Literal["ok", "left the simplex", "stiff", "diverged"]
Coordinates: TypeAlias = Literal["probabilities", "logits"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SimplexPath:
    """Probability vectors at the asked times, and what it took to keep them such.

    ``status`` is that of the integration, or "left the simplex" if a state was further off than
    the tolerance before it was projected. ``projections`` counts the returned rows that were
    replaced by their projection, ``stage_projections`` the rows of inner stages at which the drift
    had to be read there. ``mass_error`` is the largest distance of Σp from 1 and ``most_negative``
    the smallest entry (0 if none is negative) of the returned rows before projection.
    """

    states: Float[Tensor, "T *batch V"]
    times: Float64[Tensor, " T"]
    status: Status
    because: str | None
    projections: int
    stage_projections: int
    mass_error: float
    most_negative: float
    evaluations: int
    steps: int


def simplex_flow(
    p0: Float[Tensor, "*batch V"] | ArrayLike,
    drift: Field,
    times: Float[Tensor, " T"] | ArrayLike,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    max_steps: int = 2000,
    tolerance: float = 1e-6,
    coordinates: Coordinates = "probabilities",
) -> SimplexPath:
    r"""Path of the replicator equation with any drift.

    .. math:: \dot p = J(p)\, b(t, p), \qquad p(t_0) = p_0

    Parameters
    ----------
    p0 : p₀, probability vectors.
    drift : b(t, p), of the shape of p and defined up to a constant; it is only read at probability
        vectors.
    times : t₀ and the times whose states are wanted; strictly increasing or decreasing.
    rtol, atol, max_steps : of the integrator; in "logits" they bound the error of log p.
    tolerance : how far off the simplex (in mass or below zero) a state may be before the status
        says so.
    coordinates : "probabilities" integrates p; "logits" integrates log p, p₀ > 0.

    Raises
    ------
    InvalidInputError
        If p₀ is not a family of probability vectors (positive, for "logits"), the times are not
        ordered, the drift has another shape, or an option does not exist.

    Notes
    -----
    Dormand–Prince 5(4), O(V) per evaluation. Off the simplex the field is continued by its value
    at the projection, so that mass is kept there too. Projection is Euclidean and touches only
    rows that are off by more than rounding. Source 000 Thm. 5.6.

    Examples
    --------
    >>> path = simplex_flow([0.5, 0.5], lambda t, p: torch.tensor([1.0, 0.0]), [0.0, 1.0])
    >>> path.states[-1], path.projections
    (tensor([0.7311, 0.2689], dtype=torch.float64), 0)
    """
    check_choice(coordinates, ("probabilities", "logits"), "coordinates")
    if not tolerance > 0:
        raise InvalidInputError(
            f"tolerance must be > 0; found {tolerance:.3g}. Rounding alone is about 1e-15."
        )
    p = as_probabilities(p0, "p0")
    repaired = _Repaired()
    logits = coordinates == "logits"
    if logits:
        todo = "It never gets any: drop that outcome, or integrate the probabilities."
        refuse(p <= 0, p, "p0 must be > 0 in 'logits'", todo)

    def velocity(t: Tensor, x: Tensor) -> Tensor:
        if not bool(x.isfinite().all()):
            return x * torch.nan  # the integrator says when
        q = x.softmax(-1) if logits else repaired(x)
        b = field_at(drift, t, q, "drift")
        if not bool(b.isfinite().all()):
            return b * torch.nan
        return b - (q * b).sum(-1, keepdim=True) if logits else apply_mobility(q, b)

    start = p.log() if logits else p
    path = ode_path(velocity, start, times, rtol=rtol, atol=atol, max_steps=max_steps)
    raw = path.states.softmax(-1) if logits else path.states
    return _judged(raw, path, repaired.rows, tolerance)


class _Repaired:
    """Probability vectors from what an integrator holds; counts the rows that were projected."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, x: Tensor) -> Tensor:
        off = _off(x)
        if bool(off.any()):
            self.rows += int(off.sum())
            x = torch.where(off[..., None], project_to_simplex(x), x)
        return x / x.sum(-1, keepdim=True)


def _off(x: Float[Tensor, "*batch V"]) -> Tensor:
    """Rows that are off the simplex by more than the rounding of a sum of their entries."""
    rounding = 16 * x.shape[-1] * torch.finfo(x.dtype).eps
    return (x.detach().amin(-1) < 0) | ((x.detach().sum(-1) - 1).abs() > rounding)


def _judged(raw: Tensor, path: OdePath, stages: int, tolerance: float) -> SimplexPath:
    known = raw.isfinite().all(-1)
    reached = raw.detach()[known]
    off = _off(raw) & known
    states = raw
    if bool(off.any()):
        states = torch.where(
            off[..., None], project_to_simplex(raw.where(known[..., None], 0.0)), raw
        )
    mass = float((reached.sum(-1) - 1).abs().max())
    negative = min(float(reached.min()), 0.0)
    status: Status = path.status
    because = path.because
    if status == "ok" and max(mass, -negative) > tolerance:
        status = "left the simplex"
        because = (
            f"A state was off by {mass:.3g} in mass and {negative:.3g} below zero, more than "
            f"{tolerance:.3g}, before it was projected. Tighten rtol and atol or use 'logits'."
        )
    return SimplexPath(
        states=states,
        times=path.times,
        status=status,
        because=because,
        projections=int(off.sum()),
        stage_projections=stages,
        mass_error=mass,
        most_negative=negative,
        evaluations=path.evaluations,
        steps=path.steps,
    )
