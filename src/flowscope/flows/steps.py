r"""States and steps of a path of logits along depth: what is read from each.

A row z⁰, …, z^L of logits (one token, one readout per layer) is a path on the simplex through
p = softmax(z). Logits are defined up to z → z + c·1, so norms are those of the centred vector, and
a step z → z′ is read by

.. math:: \|\Delta z\|^2 := \|\Delta z - \overline{\Delta z}\|_2^2, \qquad
          \mathrm{TV}(p, p'), \qquad \mathrm{KL}(p' \,\|\, p), \qquad
          \tfrac12 \sum_j p_j \,|\Delta z_j - \langle p, \Delta z\rangle| ,

the last being ½‖JΔz‖₁, the total variation to first order in the step. This module is the
reference: float64 throughout, one line per statistic. :class:`flowscope.flows.DepthMeter` reads the
same numbers from whole vocabularies at little more than the cost of producing the logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex import (
    apply_mobility,
    entropy,
    kl_divergence,
    mobility_frobenius,
    mobility_trace,
    oscillation,
    total_variation,
)
from flowscope.simplex.probability import ArrayLike, as_vectors, split_peak

__all__ = [
    "RowNumbers",
    "StateStatistics",
    "StepStatistics",
    "joined",
    "mass_residual",
    "state_statistics",
    "step_statistics",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowNumbers:
    """Tensors with one entry per row; :func:`joined` puts chunks of rows together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StateStatistics(RowNumbers):
    """What one state of each row says.

    Attributes
    ----------
    state_sq : ‖z − mean z‖², the centred squared norm.
    entropy : H(p) in nats.
    p_max : p₁, the largest probability.
    tail_mass : δ = 1 − p₁, as the sum of the others.
    margin : p₁ − p₂.
    mobility_frobenius : ‖J‖_F of J = diag p − ppᵀ.
    mobility_trace : tr J = 1 − Σp².
    argmax : place of the largest logit; the first or any other of equal ones.
    """

    state_sq: Float64[Tensor, "*batch"]
    entropy: Float64[Tensor, "*batch"]
    p_max: Float64[Tensor, "*batch"]
    tail_mass: Float64[Tensor, "*batch"]
    margin: Float64[Tensor, "*batch"]
    mobility_frobenius: Float64[Tensor, "*batch"]
    mobility_trace: Float64[Tensor, "*batch"]
    argmax: Int64[Tensor, "*batch"]


@dataclass(frozen=True, eq=False, kw_only=True)
class StepStatistics(RowNumbers):
    """What one step z → z′ of each row says.

    Attributes
    ----------
    step_sq : ‖Δz − mean Δz‖².
    oscillation : max Δz − min Δz.
    total_variation : TV(p, p′).
    kl_divergence : KL(p′ ‖ p) in nats.
    first_order : ½ Σ p_j |Δz_j − ⟨p, Δz⟩|, the total variation to first order, p at the start.
    """

    step_sq: Float64[Tensor, "*batch"]
    oscillation: Float64[Tensor, "*batch"]
    total_variation: Float64[Tensor, "*batch"]
    kl_divergence: Float64[Tensor, "*batch"]
    first_order: Float64[Tensor, "*batch"]


Numbers = TypeVar("Numbers", bound=RowNumbers)


def state_statistics(logits: Float64[Tensor, "*batch V"] | ArrayLike) -> StateStatistics:
    r"""Statistics of each state.

    .. math:: p = \operatorname{softmax}(z), \qquad
              p_1 - p_2 = p_1 \left(1 - e^{z_2 - z_1}\right)

    Parameters
    ----------
    logits : z, the outcomes on the last axis; any floating-point dtype, read in float64.

    Raises
    ------
    InvalidInputError
        If a logit is not finite, or there are fewer than two.

    Notes
    -----
    O(V) per row, in float64: the reference. Source 000 §5; the tail mass is a sum and never 1 − p₁.

    Examples
    --------
    >>> found = state_statistics([[0.0, 0.0], [40.0, 0.0]])
    >>> found.tail_mass
    tensor([5.0000e-01, 4.2484e-18], dtype=torch.float64)
    """
    z = as_vectors(logits, "logits").double()
    p = torch.softmax(z, -1)
    peak, tail = split_peak(p)
    first, second = z.topk(2).values.unbind(-1)
    return StateStatistics(
        state_sq=_centred_square(z),
        entropy=entropy(p),
        p_max=peak,
        tail_mass=tail.sum(-1),
        margin=-peak * torch.expm1(second - first),
        mobility_frobenius=mobility_frobenius(p),
        mobility_trace=mobility_trace(p),
        argmax=z.argmax(-1),
    )


def step_statistics(
    before: Float64[Tensor, "*batch V"] | ArrayLike, after: Float64[Tensor, "*batch V"] | ArrayLike
) -> StepStatistics:
    r"""Statistics of the step from one state to the next.

    .. math:: \Delta z = z' - z, \qquad \tfrac12 \|J \Delta z\|_1
              = \tfrac12 \sum_j p_j \,|\Delta z_j - \langle p, \Delta z\rangle|

    Parameters
    ----------
    before : z, the logits at the start of the step, outcomes on the last axis.
    after : z′, those at its end, of the same shape.

    Raises
    ------
    InvalidInputError
        If a logit is not finite, there are fewer than two, or the shapes differ.

    Notes
    -----
    O(V) per row, in float64: the reference. Source 000 §5 takes norms of raw Δz, which are not
    gauge invariant. Logits are finite, so the divergence is too, also where p underflows.

    Examples
    --------
    >>> found = step_statistics([0.0, 0.0], [1.0, 0.0])
    >>> found.total_variation, found.first_order
    (tensor(0.2311, dtype=torch.float64), tensor(0.2500, dtype=torch.float64))
    """
    z, y = as_vectors(before, "before").double(), as_vectors(after, "after").double()
    if z.shape != y.shape:
        raise InvalidInputError(
            f"before and after must have the same shape; found {tuple(z.shape)} and "
            f"{tuple(y.shape)}. Read both states at the same rows and outcomes."
        )
    p, q, step = torch.softmax(z, -1), torch.softmax(y, -1), y - z
    divergence = kl_divergence(q, p)
    in_logs = (q * (torch.log_softmax(y, -1) - torch.log_softmax(z, -1))).sum(-1)
    return StepStatistics(
        step_sq=_centred_square(step),
        oscillation=oscillation(step),
        total_variation=total_variation(p, q),
        kl_divergence=torch.where(divergence.isinf(), in_logs, divergence),
        first_order=0.5 * apply_mobility(p, step).abs().sum(-1),
    )


def mass_residual(logits: Float64[Tensor, "*batch V"] | ArrayLike) -> Float64[Tensor, "*batch"]:
    r"""How far the probabilities of each row are from summing to one, in float64.

    .. math:: \Big|\sum_j p_j - 1\Big|, \qquad p = \operatorname{softmax}(z)

    Parameters
    ----------
    logits : z, the outcomes on the last axis.

    Raises
    ------
    InvalidInputError
        If a logit is not finite, or there are fewer than two.

    Notes
    -----
    O(V). Source 000 N.6 asks for 1e-14 in whatever dtype the model runs; float32 reaches 1e-6, so
    the sum is that of a float64 softmax, which a healthy row keeps within √V·eps(float64).

    Examples
    --------
    >>> bool(mass_residual([1.0, 2.0, 3.0]) < 1e-15)
    True
    """
    z = as_vectors(logits, "logits").double()
    return (torch.softmax(z, -1).sum(-1) - 1).abs()


def joined(parts: Sequence[Numbers]) -> Numbers:
    """Statistics of several chunks of rows as one, in the order given.

    Parameters
    ----------
    parts : results of one kind, of rows that follow each other along the first axis.

    Raises
    ------
    InvalidInputError
        If there are no parts.

    Examples
    --------
    >>> halves = [state_statistics(torch.zeros(2, 3)), state_statistics(torch.ones(1, 3))]
    >>> joined(halves).tail_mass
    tensor([0.6667, 0.6667, 0.6667], dtype=torch.float64)
    """
    if not parts:
        raise InvalidInputError("joined needs at least one part; found none. Read some rows first.")
    kind = type(parts[0])
    return kind(**{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(kind)})


def _centred_square(x: Float64[Tensor, "*batch V"]) -> Float64[Tensor, "*batch"]:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1)
