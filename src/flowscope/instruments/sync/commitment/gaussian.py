r"""A Gaussian with the covariance of a model's images, sampled with its exact score.

Among images whose large scales vary more than their small ones, large scales are decided first,
whatever made the images: at a noise level where the signal of a small scale is still below the
noise, that of a large one is above it. The Gaussian with the same covariance shows how much of an
order that alone gives. Its score is linear,

$$
\nabla\log p_t(x) = -\bigl(\bar\alpha\Sigma + (1-\bar\alpha) I\bigr)^{-1}
                    \bigl(x - \sqrt{\bar\alpha}\,\mu\bigr),
$$

so no network is needed. $\Sigma$ is estimated from the images as the leading principal directions
plus a spectrum of the rest: the variance of each band of frequencies of the cosine transform, by
channel. The leading directions hold where the variance lies in the image, the spectrum the fine
detail, for which there are too few images to find directions.

Two replicas are tied as attention ties them, in what they take the image to be: with
$w = g/(1+g)$ the denoised image of A is moved by $w$ towards that of B, and the other way round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.diffusion.denoiser import Clock, Denoiser

__all__ = [
    "ExactDenoiser",
    "GaussianDenoiser",
    "GaussianImages",
    "gaussian_images",
]

_FEWEST = 8  # images that have a covariance at all
_NOISE_ALONE = 1e-12  # share of the signal below which x says nothing of the image


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianImages:
    """Mean and covariance of images, in the coordinates of the orthonormal cosine transform.

    Attributes
    ----------
    mean
        Of the coefficients, ``[C, H, W]``.
    spectrum
        Variance of each coefficient beside the leading directions, ``[C, H, W]``.
    directions, strengths
        Leading directions, orthonormal, a row each, ``[k, C·H·W]``; variance along each beyond
        that of the spectrum.
    """

    mean: Float[Tensor, "c h w"]
    spectrum: Float[Tensor, "c h w"]
    directions: Float[Tensor, "k d"]
    strengths: Float[Tensor, "k"]


def gaussian_images(images: Float[Tensor, "n c h w"], rank: int) -> GaussianImages:
    """The Gaussian with the mean and the covariance of some images.

    Parameters
    ----------
    images
        Independent images, any device.
    rank
        Leading directions; at most an eighth of the images.

    Raises
    ------
    InvalidInputError
        With fewer than 8 images, with images that are not finite, or with images that do not
        differ.

    Examples
    --------
    >>> white = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> abs(float(gaussian_images(white, 0).spectrum.mean()) - 1) < 0.1
    True
    """
    n = len(images)
    if n < _FEWEST or not bool(images.isfinite().all()):
        raise InvalidInputError(
            f"a covariance needs {_FEWEST} finite images or more; got {n} images. Take more pairs."
        )
    coefficients = cosine_transform(images.double().cpu())
    mean = coefficients.mean(0)
    rows = (coefficients - mean).flatten(1)
    if not float(rows.square().sum()) > 1e-12 * max(float(coefficients.square().sum()), 1e-30):
        raise InvalidInputError("the images do not differ, so that they have no covariance.")
    most = min(rank, n // 8)
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    directions = directions[:most]
    left = rows - rows @ directions.mT @ directions
    power = left.square().sum(0).reshape(images.shape[1:]) / (n - 1 - most)
    spectrum = _by_band(power)
    beside = (directions.square() * spectrum.flatten()).sum(1)
    strengths = (sizes[:most].square() / (n - 1) - beside).clamp_min(0.0)
    return GaussianImages(mean=mean, spectrum=spectrum, directions=directions, strengths=strengths)


def cosine_transform(
    images: Float[Tensor, "n c h w"], *, inverse: bool = False
) -> Float[Tensor, "n c h w"]:
    """Orthonormal cosine transform of each channel, or its inverse."""
    rows, columns = (_cosines(size).to(images) for size in images.shape[-2:])
    if inverse:
        rows, columns = rows.mT, columns.mT
    return rows @ images @ columns.mT


def _cosines(size: int) -> Float[Tensor, "size size"]:
    """Orthonormal cosines, a row per frequency."""
    place = torch.arange(size, dtype=torch.float64)
    waves = torch.cos(math.pi / size * (place + 0.5) * place[:, None]) * math.sqrt(2 / size)
    waves[0] /= math.sqrt(2)
    return waves


def _by_band(power: Float[Tensor, "c h w"]) -> Float[Tensor, "c h w"]:
    """Each coefficient replaced by the mean of its channel over coefficients of its frequency."""
    height, width = power.shape[-2:]
    longest = max(height, width)
    vertical = torch.arange(height)[:, None] * longest / height
    horizontal = torch.arange(width)[None] * longest / width
    band = torch.hypot(vertical, horizontal).round().long().flatten()
    count = torch.bincount(band).to(power)
    sums = torch.zeros(len(power), len(count)).to(power)
    sums.index_add_(1, band, power.flatten(1))
    return (sums / count.clamp_min(1))[:, band].reshape(power.shape)


class ExactDenoiser(ABC):
    """What a sampler of pairs needs of a model whose denoised images are known exactly.

    Parameters
    ----------
    denoiser
        The model it stands in for: its schedule, its decoder, its device.
    """

    classes: tuple[str, ...] = ()

    def __init__(self, denoiser: Denoiser | ExactDenoiser) -> None:
        self._denoiser = denoiser
        self.schedule: dict[str, Any] = {**denoiser.schedule, "prediction_type": "sample"}
        self.schedule.pop("_use_default_values", None)  # names settings that would be ignored
        self.shape: tuple[int, int, int] = denoiser.shape
        self._weight = 0.0

    @property
    def device(self) -> torch.device:
        """Where it samples."""
        return self._denoiser.device

    def clock(self, steps: int) -> Clock:
        """The reverse steps of the model it stands in for."""
        return Clock(schedule=self.schedule, steps=steps, device=self.device)

    def decoded(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n channels height width"]:
        """Latents as images, as the model makes them."""
        return self._denoiser.decoded(x)

    @contextmanager
    def tied(self, g: float) -> Iterator[None]:
        """Tie the halves of each batch with strength g while the block lasts."""
        self._weight = g / (1 + g)
        try:
            yield
        finally:
            self._weight = 0.0

    def noise(
        self,
        x: Float[Tensor, "n c h w"],
        time: int,
        labels: Int[Tensor, "n"] | None = None,
        guidance: float = 1.0,
    ) -> Float[Tensor, "n c h w"]:
        """Prediction for the schedule: the denoised images; labels and guidance do not matter.

        The image and not the noise is predicted, because a schedule that ends in pure noise has no
        image that would follow from the noise there.
        """
        clean = self.denoised(x, self.level(time))
        if not self._weight:
            return clean
        first, second = clean.chunk(2)
        apart = self._weight * (second - first)
        return torch.cat([first + apart, second - apart])

    def level(self, time: int) -> float:
        r"""$\bar\alpha$ at a time of the schedule."""
        from diffusers import DDIMScheduler

        if not hasattr(self, "_levels"):
            self._levels = DDIMScheduler.from_config(self.schedule).alphas_cumprod.tolist()
        return float(self._levels[time])

    @abstractmethod
    def denoised(self, x: Float[Tensor, "n c h w"], level: float) -> Float[Tensor, "n c h w"]:
        r"""Mean of the image given x at the noise level $\bar\alpha$."""


class GaussianDenoiser(ExactDenoiser):
    """Exact denoiser of a Gaussian.

    Parameters
    ----------
    law
        Mean and covariance.
    denoiser
        The model it stands in for.
    """

    def __init__(self, law: GaussianImages, denoiser: Denoiser | ExactDenoiser) -> None:
        super().__init__(denoiser)
        self._law = law
        self._solved: dict[float, tuple[Tensor, Tensor, Tensor]] = {}

    def denoised(self, x: Float[Tensor, "n c h w"], level: float) -> Float[Tensor, "n c h w"]:
        r"""Mean of the image given x, linear in x; solved by the identity of Woodbury.

        $$ \mu + \sqrt{\bar\alpha}\,\Sigma\,\bigl(\bar\alpha\Sigma + (1-\bar\alpha)I\bigr)^{-1}
           \bigl(x - \sqrt{\bar\alpha}\mu\bigr) $$
        """
        mean, inverse, correction = self._solution(level, x)
        if level < _NOISE_ALONE:
            return cosine_transform(mean.expand(len(x), -1, -1, -1), inverse=True)
        off = cosine_transform(x) - math.sqrt(level) * mean
        flat = off.flatten(1)
        solved = flat * inverse - (flat @ correction.mT) @ correction
        # Σ A⁻¹ = (I − (1 − ᾱ) A⁻¹) / ᾱ, so that the covariance itself is not needed.
        moved = (flat - (1 - level) * solved) / math.sqrt(level)
        clean = mean + moved.reshape(off.shape)
        return cosine_transform(clean, inverse=True)

    def _solution(self, level: float, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, inverse of the spectrum with noise, and what the directions take from it."""
        if level not in self._solved:
            law = self._law
            inverse = 1 / (level * law.spectrum.flatten() + 1 - level)
            seen = law.strengths > 0
            rows, strengths = law.directions[seen], law.strengths[seen]
            scaled = rows * inverse
            inner = torch.diag(1 / (level * strengths)) + scaled @ rows.mT
            # With inner = L Lᵀ the correction is a product of the same rows on both sides.
            correction = torch.linalg.solve_triangular(
                torch.linalg.cholesky(inner), scaled, upper=False
            )
            parts = (law.mean, inverse, correction)
            self._solved[level] = tuple(part.to(like) for part in parts)  # type: ignore[assignment]
        return self._solved[level]
