r"""A network for the score of noised data, scaled by the Gaussian that fits it.

.. math:: s(x, \sigma, t) = C_\sigma^{-1/2}\bigl(-y + G(y, \log\sigma, t)\bigr), \qquad
          y = C_\sigma^{-1/2}(x - m), \qquad C_\sigma = C + \sigma^2 I

m and C are the mean and covariance of the data, so y has unit covariance at every noise scale and
G ≡ 0 is the exact score of Gaussian data. Where the data are thin (C ≪ σ²) the prefactor is the
1/σ of the usual noise prediction; where they are wide it is one over their spread, and the network
need not cancel a 1/σ to say something of order one. G starts at zero.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ScoreNet", "Standard"]

# log σ enters this much smaller than y: the score changes little from one scale to the next, and
# what a large scale teaches then carries over to the small ones, which teach less.
_GENTLE = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Standard:
    """The Gaussian fit of the data, in its principal axes, and the range of its covariates.

    ``times`` is the mean and spread of t, or None when the law has no time.
    """

    centre: Float[Tensor, " d"]
    axes: Float[Tensor, "d d"]
    variances: Float[Tensor, " d"]
    log_sigma: tuple[float, float]
    times: tuple[float, float] | None

    @classmethod
    def fit(
        cls,
        points: Float[Tensor, "n d"],
        sigmas: Float[Tensor, " k"],
        times: Float[Tensor, " n"] | None,
    ) -> "Standard":
        """Moments of the points, in float64, and the ranges of log σ and t."""
        wide = points.double()
        centre = wide.mean(0)
        variances, axes = torch.linalg.eigh((wide - centre).mT @ (wide - centre) / len(wide))
        logs = sigmas.double().log()
        return cls(
            centre=centre.to(points),
            axes=axes.to(points),
            variances=variances.clamp_min(0).to(points),  # below zero by rounding only
            log_sigma=(float(logs.mean()), _GENTLE * _spread(logs)),
            times=None if times is None else (float(times.mean()), _spread(times)),
        )


class ScoreNet(nn.Module):
    """Score of noised data: a residual network around the Gaussian score.

    Parameters
    ----------
    standard : m, C and the ranges of log σ and t, from :meth:`Standard.fit`.
    width : of the hidden layers.
    blocks : how many residual layers h + W₂ silu(W₁ h).
    generator : every weight is drawn from it; the global random state is not touched.

    Notes
    -----
    Input [y; log σ; t], LayerNorm before the last projection: source 000 M.2, which has
    width max(512, 2d) and no scaling of input or output. O(d² + width²) per point.

    Examples
    --------
    A fresh network is the score of the Gaussian fit, here N(0, 1 + σ²).

    >>> x = torch.tensor([[-1.0], [1.0]])
    >>> standard = Standard.fit(x, torch.tensor([0.5]), None)
    >>> net = ScoreNet(standard, width=8, blocks=2, generator=torch.Generator())
    >>> net(torch.tensor([[2.5]]), torch.tensor([0.5]), None)
    tensor([[-2.]], grad_fn=<MmBackward0>)
    """

    centre: Tensor
    axes: Tensor
    variances: Tensor

    def __init__(
        self, standard: Standard, *, width: int, blocks: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.standard = standard
        for name in ("centre", "axes", "variances"):
            self.register_buffer(name, getattr(standard, name).clone())
        d = len(standard.centre)
        self.inlet = _linear(d + (1 if standard.times is None else 2), width, generator)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                _linear(width, width, generator), nn.SiLU(), _linear(width, width, generator)
            )
            for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.outlet = _linear(width, d, generator)
        nn.init.zeros_(self.outlet.weight)
        self.to(standard.centre)

    def forward(
        self,
        x: Float[Tensor, "n d"],
        sigma: Float[Tensor, " n"],
        t: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, "n d"]:
        """Score at x of the data noised by σ, at time t."""
        spread = (self.variances + sigma[:, None] ** 2).sqrt()
        y = (x - self.centre) @ self.axes / spread
        mean, scale = self.standard.log_sigma
        inputs = [y, (sigma.log() - mean)[:, None] / scale]
        if self.standard.times is not None and t is not None:
            inputs.append((t - self.standard.times[0])[:, None] / self.standard.times[1])
        h = nn.functional.silu(self.inlet(torch.cat(inputs, 1)))
        for block in self.blocks:
            h = h + block(h)
        found: Tensor = ((self.outlet(self.norm(h)) - y) / spread) @ self.axes.mT
        return found


def _spread(x: Tensor) -> float:
    """Standard deviation, or one where nothing varies."""
    return float(x.std(correction=0)) or 1.0


def _linear(fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Linear:
    """Linear layer with weights N(0, 1/fan_in) from the generator and no bias to begin with."""
    # Built without storage, so that the constructor draws nothing from the global state.
    layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        noise = torch.randn(fan_out, fan_in, generator=generator, device=generator.device)
        layer.weight.copy_(noise * fan_in**-0.5)
        layer.bias.zero_()
    return layer
