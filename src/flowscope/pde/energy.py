r"""What each write does to the length of a state, and how far it turns it.

The state of a token, $h$, has the energy $E = \frac12\lVert h\rVert^2$. A write $w$ changes it by

$$
\Delta E = \langle h, w\rangle + \tfrac12\lVert w\rVert^2 ,
$$

exactly, so that the work of the writes of a block sums to the block's change of energy. The part of
a write along the state is what the next norm removes; the part across it turns the state by
$\lVert w_\perp\rVert/\lVert h\rVert$, the step that the network really takes. Source 001 has no
such balance; its exponential bounds do not hold (E61, E63).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.pde.states import as_states, as_writes, directions, scale_of
from flowscope.simplex.probability import ArrayLike, within_range

__all__ = ["EnergyBalance", "energy_balance"]


@dataclass(frozen=True, kw_only=True, eq=False)
class EnergyBalance:
    """Energy of every token, and what each write does to it.

    Attributes
    ----------
    energy
        E = ½‖h‖² before the first write.
    work
        Change of E by each write; sums over the writes to the change in all.
    radial
        |⟨ĥ, w⟩|/‖w‖: the share of a write's length that lies along the state before it; 0 for no
        write at all.
    angular
        ‖w_⊥‖/‖h‖: how far a write turns the state before it, the effective step.
    """

    energy: Float[Tensor, "*batch N"]
    work: Float[Tensor, "K *batch N"]
    radial: Float[Tensor, "K *batch N"]
    angular: Float[Tensor, "K *batch N"]


def energy_balance(
    h: Float[Tensor, "*batch N d"] | ArrayLike,
    writes: Sequence[Float[Tensor, "*batch N d"] | ArrayLike],
) -> EnergyBalance:
    """Work, radial share and angular step of writes in their order.

    Parameters
    ----------
    h
        State of every token before the first write.
    writes
        What is added to it, in order: each is measured at the state that it finds.

    Raises
    ------
    InvalidInputError
        If shapes differ, an entry is not finite, there is no write, or a state is zero.

    Examples
    --------
    >>> balance = energy_balance([[3.0, 4.0]], [[[-4.0, 3.0]]])
    >>> balance.work.item(), balance.angular.item()
    (12.5, 1.0)
    """
    state = as_states(h, "h")
    added = as_writes(writes, state)
    before = torch.cat([state[None], added[:-1]]).cumsum(0)  # a later write leaves no rounding
    unit = directions(before, "a state")
    scale, radii_scale = scale_of(added, -1), scale_of(before, -1)
    written = added * scale  # its squares do not vanish
    along = (unit * written).sum(-1)
    lengths = written.norm(dim=-1)
    across = (written - along[..., None] * unit).norm(dim=-1) / scale[..., 0]
    radii = (before * radii_scale).norm(dim=-1) / radii_scale[..., 0]
    return EnergyBalance(
        energy=within_range(0.5 * state.square().sum(-1), "the energy", infinite=True),
        work=within_range(
            ((before + 0.5 * added) * added).sum(-1), "the work of a write", infinite=True
        ),
        radial=torch.where(lengths > 0, along.abs() / lengths.clamp_min(_tiny(lengths)), 0.0),
        angular=across / radii,
    )


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
