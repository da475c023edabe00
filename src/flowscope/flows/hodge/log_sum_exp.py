r"""Gradients of log-sum-exp potentials on the clusters of the data: fields that do not turn.

.. math:: \theta(z) = \log\sum_{l \le K} e^{\beta\langle c_l, z\rangle/\tau^2},
          \qquad \nabla\theta \propto \sum_l \pi_l(z)\, c_l

It is the field that attention with keys and values c_l would write. Its potential is outside every
dictionary of :mod:`flowscope.flows.hodge.potentials`, so what is read as rotation in it is the leak
of the dictionary on these points, at this energy and with this noise.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.flows.hodge.clusters import clusterings, drawn_chances
from flowscope.flows.hodge.problem import Blocks

__all__ = ["CONTROLS", "log_sum_exp_controls"]

CONTROLS = 9
# Numbers of centres, and sharpness β of the memberships: three of each make nine controls.
_COUNTS, _SHARPNESS = (6, 10, 16), (0.5, 1.0, 2.0)


def log_sum_exp_controls(
    z: Float64[Tensor, "N d"],
    chart: Float64[Tensor, "d d"],
    *,
    energy: float | Float64[Tensor, ""],
    residual: Float64[Tensor, "N d"],
    units: Blocks,
    generator: torch.Generator,
) -> Float64[Tensor, "N d c"]:
    r"""Nine gradient fields with the energy of the signal and the noise of the data.

    .. math:: u = \kappa\,J\nabla_z\theta + s_g\,\eta, \qquad
              \kappa^2\,\mathbb E|J\nabla_z\theta|^2 = \text{energy}

    Parameters
    ----------
    z : whitened points.
    chart : J, takes a gradient in z to the metric of the diffusion.
    energy : cross-fitted energy of the represented field; 0 or less gives noise alone.
    residual : η, what the fit leaves, scaled to the energy of the noise.
    units : group of each point; signs s_g are drawn by group.
    generator : draws centres and signs.

    Notes
    -----
    O(N·K·d) each.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> z = torch.randn(500, 2, generator=g).double()
    >>> quiet, each = torch.zeros_like(z), Blocks(labels=torch.arange(500), count=500, groups=500)
    >>> u = log_sum_exp_controls(
    ...     z, torch.eye(2).double(), energy=3.0, residual=quiet, units=each, generator=g
    ... )
    >>> u.shape, [round(float(x), 6) for x in u.square().sum((0, 1))[:2] / 500]
    (torch.Size([500, 2, 9]), [3.0, 3.0])
    """
    chances, coins = zip(*(_draws(count, units.count, generator) for count in _COUNTS), strict=True)
    found = clusterings(z, chances)
    # Plain products, as attention takes them: unlike memberships they favour far centres, and
    # their borders lie across the clusters.
    logits = (z @ found.centres.mT / found.width[:, None, None] ** 2)[:, None]
    sharpness = torch.tensor(_SHARPNESS, dtype=z.dtype, device=z.device)[:, None, None]
    there = found.there[:, None, None]
    weights = (sharpness * logits).masked_fill(~there, -torch.inf).softmax(3)
    slope = (weights @ found.centres[:, None] @ chart.mT).flatten(0, 1)  # [control, N, d]
    size = slope.square().sum(2).mean(1)
    wanted = torch.as_tensor(energy, dtype=z.dtype, device=z.device).clamp_min(0)
    scale = (wanted / size).sqrt().masked_fill(~(size > 0), 0)
    signs = ((torch.cat(coins) < 0.5).double() * 2 - 1).to(z.device)[:, units.labels]
    return (scale[:, None, None] * slope + signs[..., None] * residual).permute(1, 2, 0)


def _draws(centres: int, groups: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What chooses the centres of three controls, and the coin of each group in each of them."""
    chances, device = drawn_chances(centres, generator), generator.device
    coins = [torch.rand(groups, generator=generator, device=device) for _ in _SHARPNESS]
    return chances, torch.stack(coins)
