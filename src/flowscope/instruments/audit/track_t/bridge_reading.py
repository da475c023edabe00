r"""Is the motion that of a Schrödinger bridge? The HJB residual over the central layers.

Little rotation is necessary for a bridge and not sufficient (errata E47): the drift potential
$\varphi = \theta + \tfrac12\log\mu$ must also satisfy the Hamilton–Jacobi–Bellman equation of the
reference, here $\sqrt a\,dB$. The layers are read together, depth as time: a denoising score is
learned on the pooled states, checked by Stein's identities, and the residual is taken at states
blurred as the score is. Relative to the size of its own pieces it is near 0 for a bridge and near 1
where nothing cancels. What this data can show is told by a control: an exact Gaussian bridge
between laws with the moments of the first and the last layer, with as many points, the same times
and the noise of the data, read in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import Settings, rotation
from flowscope.flows.hodge.hjb import HjbResidual
from flowscope.flows.score import fit_denoising_score, stein_identities
from flowscope.instruments.audit.paths import Paths
from flowscope.records import Unavailable
from flowscope.transport import Gaussian, gaussian_bridge

__all__ = ["Layers", "bridge_control", "bridge_reading", "central"]

_SCALE = 0.1
_POINTS = 6000
_FEWEST = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """States and velocities of several layers in one set of coordinates."""

    points: Sequence[Tensor]
    velocities: Sequence[Tensor]
    times: Sequence[float]
    groups: Tensor
    diffusion: Tensor

    def pooled(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All layers in one sample of a bounded size: points, velocities, times, groups."""
        x, v = torch.cat(list(self.points)), torch.cat(list(self.velocities))
        t = torch.tensor(self.times, dtype=torch.float64).repeat_interleave(len(self.groups))
        g = self.groups.repeat(len(self.times))
        chosen = torch.randperm(len(x), generator=generator)[:_POINTS].sort().values
        return x[chosen], v[chosen], t[chosen], g[chosen]


def central(
    paths: Paths, first: int, last: int, count: int, rank: int, seed: int
) -> Layers | Unavailable:
    """The layers in the middle of a segment, in its leading principal coordinates.

    Parameters
    ----------
    paths
        Sampled tokens.
    first, last
        The segment.
    count, rank
        How many layers, how many coordinates.
    seed
        Of the estimate of the diffusion.
    """
    spare = max(last - first + 1 - count, 0) // 2
    kept = range(first + spare, min(first + spare + count, last + 1))
    if len(kept) < _FEWEST:
        return Unavailable(f"an equation in time needs {_FEWEST} layers; there are {len(kept)}")
    hidden = paths.hidden[:, first - 1 : last + 1]
    groups = torch.from_numpy(paths.prompt)
    try:
        with torch.no_grad():
            y = paths.readout.coordinates(hidden.flatten(0, 1), rank).reduced(hidden).cpu()
        steps = {layer: (y[:, layer - first], y[:, layer - first + 1]) for layer in kept}
        velocities = [(after - before) * paths.layers for before, after in steps.values()]
        middle = len(kept) // 2
        found = rotation(
            steps[kept[middle]][0], velocities[middle], diffusion="estimate", groups=groups,
            generator=torch.Generator().manual_seed(seed),
            settings=Settings(draws=20, step=1 / paths.layers),
        )  # fmt: skip
    except InvalidInputError as error:
        return Unavailable(str(error))
    return Layers(
        points=[before for before, _ in steps.values()],
        velocities=velocities,
        times=[(layer - 1) / paths.layers for layer in kept],
        groups=groups,
        diffusion=found.diffusion,
    )


def bridge_control(layers: Layers, step: float, seed: int) -> Layers:
    """A Gaussian bridge with the ends of these layers, as noisy as they are.

    Parameters
    ----------
    layers
        What is imitated.
    step
        Time of one layer: velocities carry noise of covariance a / step.
    seed
        Of the points and the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(layers.diffusion)
    root, inverse = (vectors * values**p @ vectors.mT for p in (0.5, -0.5))
    ends = [layers.points[k] @ inverse for k in (0, -1)]
    laws = [Gaussian(mean=x.mean(0), covariance=torch.cov(x.mT)) for x in ends]
    start, span = layers.times[0], layers.times[-1] - layers.times[0]
    n, d = layers.points[0].shape
    points, velocities = [], []
    for t in layers.times:
        found = gaussian_bridge(*laws, epsilon=span, time=min((t - start) / span, 1.0))
        mean, covariance = found.marginal.mean, found.marginal.covariance
        fresh = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
        off = fresh[0] @ torch.linalg.cholesky(covariance).mT
        velocity = found.drift(mean + off) + 0.5 * span * torch.linalg.solve(covariance, off.mT).mT
        points.append((mean + off) @ root)
        velocities.append((velocity / span + fresh[1] / step**0.5) @ root)
    return replace(layers, points=points, velocities=velocities)


def bridge_reading(
    layers: Layers, seed: int, advance: Callable[[], None] = lambda: None
) -> pd.DataFrame | Unavailable:
    """One row: the HJB residual, how it compares with its pieces, and whether the score holds.

    Parameters
    ----------
    layers
        The central layers.
    seed
        Of the sample, the score and the fit.
    advance
        Told when the score is there.
    """
    generator = torch.Generator().manual_seed(seed)
    x, v, t, groups = layers.pooled(generator)
    try:
        score = fit_denoising_score(
            x, scales=(_SCALE,), times=t, groups=groups, generator=generator
        )
        advance()
        sigma = score.sigmas[0]
        blurred = x + sigma * torch.randn(x.shape, generator=generator, dtype=x.dtype)
        with torch.no_grad():
            values = score(blurred, sigma, t).double()
        checked = stein_identities(values, blurred, groups=groups)
        found = rotation(
            blurred, v, diffusion=layers.diffusion, generator=generator, groups=groups,
            times=t, scores=values, settings=Settings(draws=20),
        ).hjb  # fmt: skip
    except InvalidInputError as error:
        return Unavailable(str(error))
    if not isinstance(found, HjbResidual):
        return Unavailable(found.reason)
    row = {
        "relative": found.relative,
        "rms": found.rms,
        "scale": found.scale,
        "centring": found.centring,
        "status": found.status,
        "because": found.because,
        "score_loss": score.losses[0],
        "score_status": checked.status,
        "score_because": checked.because,
        "layers": len(layers.times),
        "points": len(x),
        "prompts": int(np.unique(groups.numpy()).size),
    }
    return pd.DataFrame([row])
