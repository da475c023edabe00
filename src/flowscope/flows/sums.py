r"""Row sums of a state, and the statistics that follow from them.

With w_j = z_j − max z ≤ 0 and e_j = exp w_j, everything a state says about p = softmax(z) is in
five numbers of all outcomes but one peak (the tail), none of which knows one minus the peak:

.. math:: E_k = \sum_{\text{tail}} e_j^k \;(k = 1, 2, 3), \qquad E_w = \sum_{\text{tail}} e_j w_j,
          \qquad w_2 = \max_{\text{tail}} w_j, \qquad Z = 1 + E_1 .

Then δ = E₁/Z, H = log(1 + E₁) − E_w/Z, p₁ − p₂ = −expm1(w₂)/Z, and

.. math:: \operatorname{tr} J = \frac{2E_1 + E_1^2 - E_2}{Z^2}, \qquad
          \|J\|_F^2 = \frac{E_1^2 + E_2\,(2 + E_2) + Z\,(Z E_2 - 2 E_3)}{Z^4} .

Since e_j ≤ 1, E₁² ≥ E₂ and Z E₂ ≥ 2 E₃, and what is subtracted is at most a fixed share of the
rest: both keep the relative accuracy of the sums at any tail mass. The norm is that of
:func:`flowscope.simplex.mobility_frobenius`; its fourth powers cancel and need not be summed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.steps import RowNumbers, StateStatistics
from flowscope.simplex.probability import refuse

__all__ = ["Peak", "StateSums", "check_means", "lift", "peak_place", "refuse_infinite"]

_PIECE = 256


class Peak(NamedTuple):
    """What a step must know of the state it starts from: max z, its place, and E₁."""

    value: Float64[Tensor, " rows"]
    place: Int64[Tensor, " rows"]
    mass: Float64[Tensor, " rows"]


@dataclass(frozen=True, eq=False, kw_only=True)
class StateSums(RowNumbers):
    """Sums of one state, one number per row, in float64.

    Attributes
    ----------
    value, place : max z and where it is.
    mean : mean of z, finite where every logit is and their sum.
    state_sq : ‖z − mean z‖².
    runner_up : w₂.
    mass, square, cube : E₁, E₂, E₃.
    work : E_w.
    """

    value: Float64[Tensor, " rows"]
    place: Int64[Tensor, " rows"]
    mean: Float64[Tensor, " rows"]
    state_sq: Float64[Tensor, " rows"]
    runner_up: Float64[Tensor, " rows"]
    mass: Float64[Tensor, " rows"]
    square: Float64[Tensor, " rows"]
    cube: Float64[Tensor, " rows"]
    work: Float64[Tensor, " rows"]

    @property
    def peak(self) -> Peak:
        """What the next step must know of this state."""
        return Peak(self.value, self.place, self.mass)

    def statistics(self) -> StateStatistics:
        """Read the statistics off the sums."""
        mass, total = self.mass, 1 + self.mass
        # E₁ is taken out of the root: its square would underflow before the norm does.
        unit = mass.where(mass > 0, 1.0)
        square, cube = self.square / unit / unit, self.cube / unit / unit
        share = 1 + square * (2 + self.square) + total * (total * square - 2 * cube)
        return StateStatistics(
            state_sq=self.state_sq,
            entropy=torch.log1p(mass) - self.work / total,
            p_max=1 / total,
            tail_mass=mass / total,
            margin=-torch.expm1(self.runner_up) / total,
            mobility_frobenius=mass * share.sqrt() / total.square(),
            mobility_trace=(2 * mass + mass.square() - self.square) / total.square(),
            argmax=self.place,
        )


def peak_place(z: Float[Tensor, "rows V"]) -> Int64[Tensor, "rows 1"]:
    """Place of the largest entry of each row: the best of pieces first, then within the piece.

    The maxima of pieces cost a quarter of torch's argmax over the row.
    """
    whole = z.shape[-1] // _PIECE * _PIECE
    if whole == 0:
        return z.argmax(-1, keepdim=True)
    heads = z[:, :whole].reshape(len(z), -1, _PIECE).amax(-1)
    if whole < z.shape[-1]:
        heads = torch.cat([heads, z[:, whole:].amax(-1, keepdim=True)], -1)
    first = (_PIECE * heads.argmax(-1, keepdim=True)).clamp_max(z.shape[-1] - _PIECE)
    within = z.gather(-1, first + torch.arange(_PIECE, device=z.device)).argmax(-1, keepdim=True)
    return torch.add(first, within)


def lift(dtype: torch.dtype) -> float:
    """Factor s such that (s e)² neither overflows in a sum over outcomes nor soon underflows."""
    return 2.0**480 if dtype == torch.float64 else 2.0**50


def check_means(mean: Float[Tensor, " rows"]) -> None:
    """Raise unless the mean of every row is finite."""
    if not bool(mean.isfinite().all()):
        raise InvalidInputError(
            "logits must be small enough for their sum to be finite; found one that is not. "
            "Pass float64, or look for the overflow upstream."
        )


def refuse_infinite(logits: Float[Tensor, "rows V"]) -> None:
    """Raise on the first logit that is not finite, naming its place."""
    todo = "Look for the overflow upstream, or restrict to the outcomes that are not masked."
    refuse(~logits.isfinite(), logits, "logits must be finite", todo)
