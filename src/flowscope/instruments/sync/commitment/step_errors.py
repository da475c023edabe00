r"""The Gaussian whose samples, in as few steps as the model's, have the covariance of its images.

A sampler of few steps does not return the law whose score it follows. Along a direction of variance
$v$ every step is linear, $x \mapsto a_k(v)\,x + b_k z$, so that it ends with the variance

$$ F(v) = A_0^2 + \sum_k A_{k+1}^2\, b_k^2, \qquad A_k = \prod_{j\ge k} a_j(v) . $$

In 16 steps of DDPM red images lose 30 to 70 % of their variance. Images of the model have been
through that sampler already. A control with their covariance as its law would go through it twice,
and the order of its scales would be .16 steps of 16 off, however many images it is made of. So the
control follows the score of the law with the variances $F^{-1}$ of those of the images.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.sync.commitment.gaussian import GaussianImages
from flowscope.models.diffusion.denoiser import Clock

__all__ = ["law_of_samples", "sampled_variances"]

_GRID = np.geomspace(1e-9, 1e6, 1501)
"""Variances between which the inverse is interpolated, 2.3 % apart."""


def sampled_variances(
    variances: Float[Tensor, "d"], clock: Clock, *, eta: float
) -> Float[Tensor, "d"]:
    """Variance of samples along directions whose law has these variances.

    Parameters
    ----------
    variances
        Of the law that is followed with its exact score.
    clock
        Reverse steps, of a schedule whose predictions are images.
    eta
        0 is DDIM, 1 has the noise of DDPM.
    """
    reached = torch.ones_like(variances)
    row = (1, 1, 1, -1)
    unit, nothing = (
        torch.ones_like(variances).reshape(row),
        torch.zeros_like(variances).reshape(row),
    )
    for step, level in enumerate(clock.levels):
        gain = math.sqrt(level) * variances / (level * variances + 1 - level)
        kept = clock.step(gain.reshape(row), step, unit, eta=eta, noise=nothing)
        added = clock.step(nothing, step, nothing, eta=eta, noise=unit)
        reached = kept.flatten().square() * reached + added.flatten().square()
    return reached


def law_of_samples(images: GaussianImages, clock: Clock, *, eta: float) -> GaussianImages:
    """The Gaussian whose samples have the covariance of some images.

    Exact where the leading directions are those of the spectrum too, or the spectrum is white;
    else directions and spectrum are corrected one by one.

    Parameters
    ----------
    images
        Mean and covariance of the images.
    clock, eta
        The sampler that made them, as for `sampled_variances`.
    """
    grid = torch.from_numpy(_GRID)
    ends = np.maximum.accumulate(sampled_variances(grid, clock, eta=eta).numpy())

    def before(variances: Tensor) -> Tensor:
        return torch.from_numpy(_interpolated(variances.numpy(), ends)).reshape(variances.shape)

    spectrum = before(images.spectrum)
    squares = images.directions.square()
    along = images.strengths + squares @ images.spectrum.flatten()
    strengths = (before(along) - squares @ spectrum.flatten()).clamp_min(0.0)
    strengths = torch.where(images.strengths > 0, strengths, images.strengths)
    return GaussianImages(
        mean=images.mean, spectrum=spectrum, directions=images.directions, strengths=strengths
    )


def _interpolated(variances: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of the law by that of its samples, in logarithms; none stays none."""
    with np.errstate(divide="ignore"):
        found = np.exp(np.interp(np.log(variances), np.log(ends), np.log(_GRID)))
    return np.asarray(np.where(variances > ends[0], found, variances))
