r"""What an image track reads: a diffusion model, or a mixture whose score is known exactly.

Both say, of a noisy state at one of their times, what is clean in it and what is noise. Times are
whole numbers from 0, nearly clean, to the last, nearly noise; ``levels`` holds their $\bar\alpha$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.variance_preserving import Prediction
from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.records import Unavailable

__all__ = ["ImageModel", "LearnedModel", "MixtureModel", "refuse_other_prediction"]

_LEAST_LEVEL = 1e-6  # below it a prediction of noise says nothing of the image
_NOISE_LIKE = 0.9
# Rows that go through a model at a time: a processor is fastest while they stay in its cache, and a
# device would hold the activations of every track at once.
_ROWS, _DEVICE_ROWS = 32, 1024


class ImageModel(Protocol):
    """A variance-preserving diffusion: where it starts, and what it predicts."""

    @property
    def levels(self) -> Sequence[float]:
        """The signal's share of the variance at each time, falling."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a state."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes it can be asked for; empty when there are none."""

    @property
    def amplitude(self) -> float:
        """Size that the clean values stay within, for the bins of a histogram."""

    @property
    def space(self) -> str:
        """What a state is, in a word."""

    @property
    def free(self) -> bool | Unavailable:
        """Whether it predicts without a class, or why not."""

    @property
    def device(self) -> torch.device:
        """Where states live."""

    def start(self, n: int, generator: torch.Generator) -> Float[Tensor, "n c h w"]:
        """Draws of the law at the last time."""

    def predicted(
        self, x: Float[Tensor, "n c h w"], time: int, labels: Int[Tensor, "n"] | None
    ) -> Prediction:
        """Clean part and noise of states at one time; without a class when labels are None."""

    def decoded(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n channels height width"]:
        """States at time 0 as images."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedModel:
    """A denoiser of diffusers as an `ImageModel`, guided when guidance is not 1."""

    denoiser: Denoiser
    guidance: float = 1.0
    levels: Sequence[float] = field(init=False)
    shape: tuple[int, int, int] = field(init=False)
    classes: tuple[str, ...] = field(init=False)
    amplitude: float = field(init=False)
    space: str = field(init=False)
    free: bool | Unavailable = field(init=False)

    def __post_init__(self) -> None:
        one = self.denoiser
        if not 0 <= self.guidance < math.inf:
            raise InvalidInputError(f"guidance must be 0 or more and finite; got {self.guidance}.")
        levels = [level for level in _levels(one) if level >= _LEAST_LEVEL]
        pixels = isinstance(one.decoder, Unavailable)
        told: dict[str, object] = {"levels": levels, "shape": one.shape, "classes": one.classes}
        told["amplitude"] = 1.0 if pixels else 4.0  # latents are scaled to unit variance
        told["space"] = "pixels" if pixels else "latents"
        told["free"] = _free(one)
        for name, value in told.items():
            object.__setattr__(self, name, value)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.denoiser.device

    def start(self, n: int, generator: torch.Generator) -> Tensor:
        """Unit noise, drawn on the CPU so that a device does not change the numbers."""
        return torch.randn(n, *self.shape, generator=generator).to(self.device)

    @torch.no_grad()
    def predicted(self, x: Tensor, time: int, labels: Tensor | None) -> Prediction:
        """The model's prediction, whatever it predicts, as clean part and noise."""
        guidance = 1.0
        if labels is None and self.classes:
            labels = torch.full((len(x),), len(self.classes), device=x.device)
        else:
            guidance = self.guidance
        most = _ROWS if x.device.type == "cpu" else _DEVICE_ROWS
        asked = [None] * -(-len(x) // most) if labels is None else list(torch.split(labels, most))
        told = torch.cat(
            [
                self.denoiser.noise(part, time, of, guidance)
                for part, of in zip(torch.split(x, most), asked, strict=True)
            ]
        )
        return _parted(x, told, self.levels[time], self.denoiser.schedule["prediction_type"])

    def decoded(self, x: Tensor) -> Tensor:
        """Images in [−1, 1]."""
        return self.denoiser.decoded(x)


def _levels(denoiser: Denoiser) -> list[float]:
    from diffusers import DDIMScheduler

    levels = DDIMScheduler.from_config(denoiser.schedule).alphas_cumprod.double()
    return [float(level) for level in levels]


def _free(denoiser: Denoiser) -> bool | Unavailable:
    if not denoiser.classes or getattr(denoiser.loaded.model.config, "num_embeds_ada_norm", None):
        return True
    return Unavailable("the model was not made with a label for no class")


def _parted(x: Tensor, told: Tensor, level: float, kind: str) -> Prediction:
    signal, size = math.sqrt(level), math.sqrt(1 - level)
    if kind == "epsilon":
        return Prediction(clean=(x - size * told) / signal, noise=told)
    if kind == "sample":
        return Prediction(clean=told, noise=(x - signal * told) / size)
    return Prediction(clean=signal * x - size * told, noise=signal * told + size * x)


@torch.no_grad()
def refuse_other_prediction(model: LearnedModel, generator: torch.Generator) -> float:
    """Correlation of the output with the noise it was given at the last time.

    A model that predicts noise returns it there, nearly; one that predicts the image or the
    velocity does not. So a schedule that does not say "epsilon" of such a model is wrong. A low
    correlation under "epsilon" is no proof, because an untrained model has one too: it is returned
    for the reader to see.

    Raises
    ------
    InvalidInputError
        When the schedule names another prediction than the model makes.
    """
    x = model.start(8, generator)
    time = len(model.levels) - 1
    labels = torch.zeros(len(x), dtype=torch.long, device=x.device) if model.classes else None
    told = model.denoiser.noise(x, time, labels).float().flatten()
    alike = float(torch.corrcoef(torch.stack([told, x.flatten()]))[0, 1])
    kind = model.denoiser.schedule["prediction_type"]
    if kind != "epsilon" and alike > _NOISE_LIKE:
        raise InvalidInputError(
            f"The schedule says that the model predicts {kind!r}, but at its last time it returns "
            f"the noise it was given (correlation {alike:.2f}): it predicts 'epsilon'. Give the "
            "schedule that the model was trained with (--scheduler)."
        )
    return alike


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureModel:
    r"""Two Gaussians at $\pm m$, variance $s^2$, with their exact scores: an anchor for the track.

    $$
    p_0 = \tfrac12 N(m, s^2 I) + \tfrac12 N(-m, s^2 I), \qquad
    \hat x_0 = \tfrac{\alpha s^2}{v}\,x + \tfrac{1-\alpha^2}{v}\,m\tanh(\alpha\, m\cdot x/v),
    \qquad v = \alpha^2s^2 + 1 - \alpha^2
    $$

    "Images" are squares of ``side`` whose brightness says the class: every component of $m$ is
    $\mu/\mathrm{side}$, so that $|m| = \mu$. The noise is that of the linear schedule, β from .1 to
    20 over unit time, read at ``times`` places from .001 on, as diffusers reads it at 1,000.

    Attributes
    ----------
    mu, s2
        |m| and s².
    side
        Of the square.
    times
        How many times there are.
    """

    mu: float = 2.0
    s2: float = 0.25
    side: int = 2
    times: int = 3201
    classes: tuple[str, ...] = ("dark", "bright")
    space: str = "closed form"
    free: bool | Unavailable = True
    levels: Sequence[float] = field(init=False)
    shape: tuple[int, int, int] = field(init=False)
    amplitude: float = field(init=False)

    def __post_init__(self) -> None:
        if not (self.mu > 0 and self.s2 > 0 and self.side >= 1 and self.times >= 2):
            raise InvalidInputError(
                "mu and s2 must be positive, side at least 1 and times at least 2; got "
                f"{self.mu}, {self.s2}, {self.side} and {self.times}."
            )
        u = torch.linspace(1e-3, 1, self.times, dtype=torch.float64)
        levels = (-(0.1 * u + 9.95 * u.square())).exp().tolist()
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "shape", (1, self.side, self.side))
        object.__setattr__(self, "amplitude", self.mu / self.side + 4 * math.sqrt(self.s2))

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def start(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws of the exact law at the last time."""
        return self.noised(self.drawn(n, generator), len(self.levels) - 1, generator)

    def drawn(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws of the mixture itself."""
        signs = 2.0 * torch.randint(2, (n, 1, 1, 1), generator=generator).double() - 1
        noise = torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)
        return signs * self.mu / self.side + math.sqrt(self.s2) * noise

    def noised(self, x: Tensor, time: int, generator: torch.Generator) -> Tensor:
        """States of some images at a time."""
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        return math.sqrt(self.levels[time]) * x + math.sqrt(1 - self.levels[time]) * noise

    def predicted(self, x: Tensor, time: int, labels: Tensor | None) -> Prediction:
        """The exact posterior means, of the class asked for or of both."""
        level = self.levels[time]
        signal, v = math.sqrt(level), level * self.s2 + 1 - level
        if labels is None:
            along = x.sum((1, 2, 3), keepdim=True) * self.mu / self.side
            leaning = torch.tanh(signal * along / v)
        else:
            leaning = (2.0 * labels.to(x) - 1)[:, None, None, None]
        clean = signal * self.s2 / v * x + (1 - level) / v * leaning * self.mu / self.side
        return Prediction(clean=clean, noise=(x - signal * clean) / math.sqrt(1 - level))

    def decoded(self, x: Tensor) -> Tensor:
        """The values themselves."""
        return x

    def read(self, x: Tensor) -> Tensor:
        """Which side of the middle each image lies on."""
        return (x.sum((1, 2, 3)) > 0).long()
