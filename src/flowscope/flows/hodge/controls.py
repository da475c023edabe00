r"""Controls of a measured rotation: one that must be zero, and one that must be found.

.. math:: u^{0} = b_R + \kappa\,a\nabla\hat\theta + s_g\,(u - \hat u), \qquad
          u^{+} = u + c\,(1 - P)\,w^0, \quad w^0 = \Sigma^{1/2} Q\, \Sigma^{-1/2}(x - \bar x)

The first is a gradient field on the same points, with the energy of the signal and the noise of the
data, signs turned by group. The second adds a rotation of known energy: for antisymmetric Q the
field w⁰ carries a Gaussian law of covariance Σ along itself, so it is orthogonal to every gradient
if the points are Gaussian; what of it is a gradient under their own law is fitted and taken out.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.decomposition import rotation
from flowscope.flows.hodge.outcome import Rotation, Settings
from flowscope.flows.hodge.problem import (
    Diffusion,
    Reference,
    blocks,
    diffusion_matrix,
    roots,
    sample,
)
from flowscope.flows.hodge.samples import weak
from flowscope.simplex.probability import ArrayLike

__all__ = ["Control", "gaussian_rotation", "gradient_null", "planted_rotation"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Control:
    """Velocities with a known answer, and what was measured on them.

    Attributes
    ----------
    velocities
        The data of the control, at the same points.
    planted
        Share of rotation that was put in: 0 for the null.
    measured
        What :func:`flowscope.flows.hodge.rotation` found.
    """

    velocities: Float64[Tensor, "N d"]
    planted: float
    measured: Rotation


def gradient_null(
    points: Float[Tensor, "N d"] | ArrayLike,
    velocities: Float[Tensor, "N d"] | ArrayLike,
    *,
    diffusion: Diffusion,
    generator: torch.Generator,
    reference: Reference = None,
    groups: Int[Tensor, "N"] | None = None,
    settings: Settings | None = None,
) -> Control:
    r"""Gradient field with the energy and the noise of the data, and the rotation found in it.

    .. math:: u^0 = b_R + \kappa\,a\nabla\hat\theta + s_g\,(u - \hat u)

    Parameters
    ----------
    points, velocities, diffusion, reference, groups, settings : as for the measurement.
    generator : draws signs, and everything that the measurement draws.

    Raises
    ------
    InvalidInputError
        As :func:`flowscope.flows.hodge.rotation`.

    Notes
    -----
    Two measurements. κ brings the fitted gradient to the cross-fitted energy of the signal; the
    gradient of potentials outside the dictionary is not in it.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(2000, 2, generator=g, dtype=torch.float64)
    >>> u = torch.stack([-x[:, 1], x[:, 0]], 1) - x + torch.randn(2000, 2, generator=g)
    >>> abs(gradient_null(x, u, diffusion=1.0, generator=g).measured.normalised) < 0.01
    True
    """
    chosen = settings or Settings()
    first = rotation(
        points, velocities, diffusion=diffusion, generator=generator, reference=reference,
        groups=groups, settings=chosen,
    )  # fmt: skip
    taken = sample(
        points, velocities, reference=reference, times=None,
        blocks=lambda N: blocks(groups, N, generator=generator, at_most=N, least=1),
    )  # fmt: skip
    coarse = sample(
        points, velocities, reference=reference, times=None,
        blocks=lambda N: blocks(
            groups, N, generator=generator, at_most=chosen.blocks, least=chosen.folds
        ),
    )  # fmt: skip
    a = diffusion_matrix(diffusion, taken.points.shape[1], taken.points)
    fitted = weak(coarse, a, chosen, generator)
    drift = fitted.gradient
    size = float((drift @ fitted.inverse).square().sum(1).mean())
    kappa = math.sqrt(max(first.total, 0.0) / size) if size > 0 else 0.0
    coins = torch.rand(taken.blocks.count, generator=generator, device=generator.device)
    signs = ((coins < 0.5).double() * 2 - 1).to(drift.device)[taken.blocks.labels]
    noise = signs[:, None] * (taken.velocities - fitted.velocity)
    made = taken.reference + kappa * drift + noise
    measured = rotation(
        taken.points, made, diffusion=a, generator=generator, reference=taken.reference,
        groups=groups, settings=chosen,
    )  # fmt: skip
    return Control(velocities=made, planted=0.0, measured=measured)


def planted_rotation(
    points: Float[Tensor, "N d"] | ArrayLike,
    velocities: Float[Tensor, "N d"] | ArrayLike,
    share: float,
    *,
    diffusion: Diffusion,
    generator: torch.Generator,
    reference: Reference = None,
    method: Literal["samples", "grid"] = "samples",
    groups: Int[Tensor, "N"] | None = None,
    settings: Settings | None = None,
) -> Control:
    r"""The data with a rotation of known share added, and the rotation found in it.

    .. math:: u^+ = u + c\,(1 - P)\,\Sigma^{1/2}Q\,\Sigma^{-1/2}(x - \bar x), \qquad
              \frac{c^2\,\mathbb E|\cdot|^2_{a^{-1}}}{E + c^2\,\mathbb E|\cdot|^2_{a^{-1}}}
              = \text{share}

    Parameters
    ----------
    points, velocities, diffusion, reference, method, groups, settings : as for the measurement.
    share : of the energy after planting, when the data itself has none; E is its signal energy.
    generator : draws Q, antisymmetric with unit rotations in random planes, and the rest.

    Raises
    ------
    InvalidInputError
        If the share is not in (0, 1), there is one coordinate only, or the data has no signal to
        compare with; else as :func:`flowscope.flows.hodge.rotation`.

    Notes
    -----
    Two measurements. With an odd number of coordinates one direction is left alone.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(4000, 2, generator=g, dtype=torch.float64)
    >>> u = -x + torch.randn(4000, 2, generator=g)
    >>> found = planted_rotation(x, u, 0.2, diffusion=1.0, generator=g).measured
    >>> round(found.normalised, 1), found.p_value < 0.01
    (0.2, True)
    """
    if not 0 < share < 1:
        raise InvalidInputError(f"share must lie between 0 and 1; found {share}. Pass 0.05, say.")
    options = {"generator": generator, "method": method, "groups": groups, "settings": settings}
    first = rotation(points, velocities, diffusion=diffusion, reference=reference, **options)  # type: ignore[arg-type]
    taken = sample(
        points, velocities, reference=reference, times=None,
        blocks=lambda N: blocks(groups, N, generator=generator, at_most=N, least=1),
    )  # fmt: skip
    if first.status == "abstained":
        raise InvalidInputError(
            f"A share of rotation needs a signal to be a share of; found none: {first.because}."
        )
    a = diffusion_matrix(diffusion, taken.points.shape[1], taken.points)
    field = _turning(taken.points, a, settings or Settings(), generator)
    size = float((field @ roots(a)[1]).square().sum(1).mean())
    made = taken.velocities + math.sqrt(share / (1 - share) * first.total / size) * field
    made = made + taken.reference
    measured = rotation(taken.points, made, diffusion=a, reference=taken.reference, **options)  # type: ignore[arg-type]
    return Control(velocities=made, planted=share, measured=measured)


def _turning(
    x: Tensor, a: Tensor, settings: Settings, generator: torch.Generator
) -> Float64[Tensor, "N d"]:
    """Rotation of a Gaussian law less what is a gradient of it under the law of the points."""
    field = gaussian_rotation(x, generator)
    alone = sample(
        x, field, reference=None, times=None,
        blocks=lambda N: blocks(
            None, N, generator=generator, at_most=settings.blocks, least=settings.folds
        ),
    )  # fmt: skip
    return field - weak(alone, a, settings, generator).gradient


def gaussian_rotation(
    x: Float64[Tensor, "N d"], generator: torch.Generator
) -> Float64[Tensor, "N d"]:
    """A linear field that carries the Gaussian law with the points' covariance along itself."""
    d = x.shape[1]
    if d < 2:
        raise InvalidInputError("Nothing turns in one coordinate; found d = 1. Pass two or more.")
    centred = x - x.mean(0)
    values, vectors = torch.linalg.eigh(centred.mT @ centred / len(x))
    frame = torch.linalg.qr(
        torch.randn(d, d, generator=generator, device=generator.device, dtype=torch.float64)
    )[0]
    planes = torch.zeros_like(frame)
    axis = torch.arange(0, d - 1, 2, device=frame.device)
    planes[axis, axis + 1], planes[axis + 1, axis] = -1.0, 1.0
    Q = (frame @ planes @ frame.mT).to(x)
    root, inverse = (vectors * values**p @ vectors.mT for p in (0.5, -0.5))
    found: Tensor = centred @ (root @ Q @ inverse).mT
    return found
