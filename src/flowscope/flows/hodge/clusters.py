r"""Centres of clustered points, and how much each point belongs to each of them.

.. math:: \pi_k(z) = \frac{e^{\beta(\langle c_k, z\rangle - |c_k|^2/2)/\tau^2}}
                         {\sum_l e^{\beta(\langle c_l, z\rangle - |c_l|^2/2)/\tau^2}},
          \qquad \nabla\pi_k = \frac{\beta}{\tau^2}\,\pi_k\Big(c_k - \sum_l \pi_l c_l\Big) .

Soft memberships are the posterior of a mixture of Gaussians with one width τ, and the weights of
an attention layer with keys c_k: the potential :math:`(\tau^2/\beta)\log\sum_k e^{\dots}` has the
gradient :math:`\sum_k \pi_k c_k`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

__all__ = ["Clusters", "clusters"]

_ROUNDS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Centres c_k and their common width τ."""

    centres: Float64[Tensor, "k d"]
    width: float

    def memberships(
        self, z: Float64[Tensor, "N d"], sharpness: float = 1.0
    ) -> Float64[Tensor, "N k"]:
        """π_k at each point; the sharpness is β."""
        inner = z @ self.centres.mT - 0.5 * self.centres.square().sum(1)
        return (sharpness / self.width**2 * inner).softmax(1)


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
    N, d = points.shape
    chances = torch.rand(count, generator=generator, device=generator.device).double()
    chances = chances.to(points.device)
    rows = [min(int(chances[0] * N), N - 1)]
    nearest = (points - points[rows[0]]).square().sum(1)
    for chance in chances[1:]:
        mass = nearest.cumsum(0)
        if not float(mass[-1]) > 0:
            break
        rows.append(min(int(torch.searchsorted(mass, chance * mass[-1])), N - 1))
        nearest = torch.minimum(nearest, (points - points[rows[-1]]).square().sum(1))
    centres = points[torch.tensor(rows, device=points.device)]
    for _ in range(_ROUNDS):
        label = torch.cdist(points, centres).argmin(1)
        member = torch.nn.functional.one_hot(label, len(centres)).to(points)
        size = member.sum(0)
        means = member.mT @ points / size.clamp_min(1)[:, None]
        centres = torch.where(size[:, None] > 0, means, centres)
    rest = torch.cdist(points, centres).square().amin(1).mean() / d
    return Clusters(centres=centres, width=max(float(rest), 1e-6) ** 0.5)
