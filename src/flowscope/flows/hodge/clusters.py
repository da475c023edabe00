r"""Centres of clustered points, and how much each point belongs to each of them.

.. math:: \pi_k(z) = \frac{e^{\beta(\langle c_k, z\rangle - |c_k|^2/2)/\tau^2}}
                         {\sum_l e^{\beta(\langle c_l, z\rangle - |c_l|^2/2)/\tau^2}},
          \qquad \nabla\pi_k = \frac{\beta}{\tau^2}\,\pi_k\Big(c_k - \sum_l \pi_l c_l\Big) .

Soft memberships are the posterior of a mixture of Gaussians with one width τ, and the weights of
an attention layer with keys c_k: the potential :math:`(\tau^2/\beta)\log\sum_k e^{\dots}` has the
gradient :math:`\sum_k \pi_k c_k`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

__all__ = ["Clusterings", "Clusters", "clusterings", "clusters", "drawn_chances"]

_ROUNDS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Centres c_k and their common width τ."""

    centres: Float64[Tensor, "k d"]
    width: Float64[Tensor, ""]

    def memberships(
        self, z: Float64[Tensor, "N d"], sharpness: float = 1.0
    ) -> Float64[Tensor, "N k"]:
        """π_k at each point; the sharpness is β."""
        inner = z @ self.centres.mT - 0.5 * self.centres.square().sum(1)
        return (sharpness / self.width**2 * inner).softmax(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusterings:
    """Several clusterings of the same points, and which of their centres there are."""

    centres: Float64[Tensor, "m k d"]
    width: Float64[Tensor, "m"]
    there: Bool[Tensor, "m k"]


def clusters(points: Float64[Tensor, "N d"], count: int, *, generator: torch.Generator) -> Clusters:
    r"""Centres by k-means, spread out at the start; the width is that around the nearest centre.

    .. math:: \tau^2 = \frac1{Nd}\sum_i \min_k |z_i - c_k|^2

    Parameters
    ----------
    points : z, whitened.
    count : number of centres; fewer where there are fewer distinct points.
    generator : draws the first centres, each with a chance that grows with the squared distance
        to those before.

    Notes
    -----
    O(12·N·k·d). A rotation of the coordinates rotates the centres and changes nothing else, up to
    rounding. Arthur and Vassilvitskii (2007) for the start.

    Examples
    --------
    >>> z = torch.tensor([[-3.0], [-3.2], [3.0], [3.2]], dtype=torch.float64)
    >>> centres = clusters(z, 2, generator=torch.Generator().manual_seed(0)).centres
    >>> sorted(round(float(c), 6) for c in centres)
    [-3.1, 3.1]
    """
    chances = drawn_chances(count, generator)
    found = clusterings(points, [chances])
    kept = int(found.there.sum())
    return Clusters(centres=found.centres[0, :kept], width=found.width[0])


def drawn_chances(count: int, generator: torch.Generator) -> Float64[Tensor, "k"]:
    """What chooses the first centres of a clustering: a number below 1 for each."""
    return torch.rand(count, generator=generator, device=generator.device).double()


def clusterings(
    points: Float64[Tensor, "N d"], chances: Sequence[Float64[Tensor, "_"]]
) -> Clusterings:
    """Clusterings as by :func:`clusters`, of as many centres each as there are chances.

    They share their steps: one product serves all of them.
    """
    d = points.shape[1]
    padded = torch.nn.utils.rnn.pad_sequence(list(chances), batch_first=True, padding_value=-1.0)
    centres, there = _starts(points, padded.to(points.device))
    extended = torch.cat([points, torch.ones_like(points[:, :1])], 1)
    each = torch.arange(centres.shape[1], device=points.device)
    for _ in range(_ROUNDS):
        member = (_nearest(extended, centres, there)[..., None] == each).to(points)
        sums = member.mT @ extended
        size = sums[..., d:]
        centres = torch.where(size > 0, sums[..., :d] / size.clamp_min(1), centres)
    label = _nearest(extended, centres, there)
    own = centres.gather(1, label[..., None].expand(-1, -1, d))
    rest = (points - own).square().sum(2).mean(1) / d
    return Clusterings(centres=centres, width=rest.clamp_min(1e-6).sqrt(), there=there)


def _starts(points: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
    """First centres for each row of chances, and which of them there are."""
    rows = [(chances[:, 0] * len(points)).long().clamp_max(len(points) - 1)]
    nearest = _squares(points, rows[0])
    left = [torch.ones_like(chances[:, 0])]
    for chance in chances.mT[1:]:
        mass = nearest.cumsum(1)
        left.append(mass[:, -1])
        rows.append(torch.searchsorted(mass, (chance * left[-1])[:, None])[:, 0])
        nearest = torch.minimum(nearest, _squares(points, rows[-1]))
    there = (torch.stack(left, 1) > 0) & (chances >= 0)
    return points[torch.stack(rows, 1)], there


def _squares(points: Tensor, rows: Tensor) -> Tensor:
    """Squared distances to points: one row for each of them."""
    return (points - points[rows][:, None]).square().sum(2)


def _nearest(extended: Tensor, centres: Tensor, there: Tensor) -> Tensor:
    """Number of the nearest centre, where ⟨c, z⟩ − |c|²/2 is largest, from the points (z, 1)."""
    level = (-0.5 * centres.square().sum(2)).masked_fill_(~there, -torch.inf)
    return (extended @ torch.cat([centres, level[..., None]], 2).mT).argmax(2)
