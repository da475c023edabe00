r"""Gradients of log-sum-exp potentials on the clusters of the data: fields that do not turn.

.. math:: \theta(z) = \log\sum_{l \le K} e^{\beta\langle c_l, z\rangle/\tau^2},
          \qquad \nabla\theta \propto \sum_l \pi_l(z)\, c_l

It is the field that attention with keys and values c_l would write. Its potential is outside every
dictionary of :mod:`flowscope.flows.hodge.potentials`, so what is read as rotation in it is the leak
of the dictionary on these points, at this energy and with this noise.
"""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.flows.hodge.clusters import clusters

__all__ = ["CONTROLS", "log_sum_exp_controls"]

CONTROLS = 9
# Numbers of centres, and sharpness β of the memberships: three of each make nine controls.
_COUNTS, _SHARPNESS = (6, 10, 16), (0.5, 1.0, 2.0)


def log_sum_exp_controls(
    z: Float64[Tensor, "N d"],
    chart: Float64[Tensor, "d d"],
    *,
    energy: float,
    residual: Float64[Tensor, "N d"],
    labels: Int64[Tensor, "N"],
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
    labels : group of each point; signs s_g are drawn by group.
    generator : draws centres and signs.

    Notes
    -----
    O(N·K·d) each.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> z = torch.randn(500, 2, generator=g).double()
    >>> quiet, one = torch.zeros_like(z), torch.arange(500)
    >>> u = log_sum_exp_controls(
    ...     z, torch.eye(2).double(), energy=3.0, residual=quiet, labels=one, generator=g
    ... )
    >>> u.shape, [round(float(x), 6) for x in u.square().sum((0, 1))[:2] / 500]
    (torch.Size([500, 2, 9]), [3.0, 3.0])
    """
    fields = []
    for count in _COUNTS:
        found = clusters(z, count, generator=generator)
        for sharpness in _SHARPNESS:
            # Plain products, as attention takes them: unlike memberships they favour far centres,
            # and their borders lie across the clusters.
            logits = sharpness / found.width**2 * z @ found.centres.mT
            slope = (logits.softmax(1) @ found.centres) @ chart.mT
            size = float(slope.square().sum(1).mean())
            scale = (max(energy, 0.0) / size) ** 0.5 if size > 0 else 0.0
            coins = torch.rand(int(labels.max()) + 1, generator=generator, device=generator.device)
            signs = ((coins < 0.5).double() * 2 - 1).to(z.device)[labels]
            fields.append(scale * slope + signs[:, None] * residual)
    return torch.stack(fields, 2)
