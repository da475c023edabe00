"""Models of images whose answers are known: exact scores, wrong scores, rotating ones, random nets.

All but the networks are mixtures or Gaussians with a closed form, read by ``flowscope.image`` as a
user would.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.flows.sampling.variance_preserving import Prediction
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import MixtureModel

__all__ = ["EXPECTED", "SUBJECTS", "Subject", "random_network"]

SETTINGS: dict[str, Any] = {
    "images": 8000, "steps": 50, "family_images": 256, "doubling": (8, 16), "lams": (0.0, 1.0),
    "rotation_times": 4, "rotation_images": 500, "uturn_images": 0, "information_images": 0,
    "batch": 4000, "draws": 199, "resamples": 199, "integrator": "ddim",
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    # Those of a model; the mixture has larger ones. 16 squares of four values fill six bins.
    **{name: getattr(ImageConfig(), name) for name in SETTINGS if "uturn" not in name},
    "information_images": 0, "bins": 6,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled(MixtureModel):
    """The exact score times a factor: the score of no law at these times."""

    factor: float = 1.2

    def predicted(self, x: Tensor, time: int, labels: Tensor | None) -> Prediction:
        exact = super().predicted(x, time, labels)
        return parted(x, self.factor * exact.noise, self.levels[time])


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotating(MixtureModel):
    """The exact score and a rotation that leaves every marginal as it is.

    In the plane across the line of the two means the law is an isotropic Gaussian; turning it
    there moves nothing. ``share`` is that of the energy beyond the constant and isotropic part.
    """

    share: float = 0.1

    def predicted(self, x: Tensor, time: int, labels: Tensor | None) -> Prediction:
        exact = super().predicted(x, time, labels)
        first, second = (torch.tensor(axis).to(x) / 2 for axis in _PLANE)
        flat = x.flatten(1)
        along, across = flat @ first, flat @ second
        turned = along[:, None] * second - across[:, None] * first
        noise = exact.noise - self._size(time) * turned.reshape(x.shape)
        return parted(x, noise, self.levels[time])

    def _size(self, time: int) -> float:
        level = self.levels[time]
        spread = level * self.s2 + 1 - level
        energy = _beyond(self.mu, self.s2, level)
        return math.sqrt(1 - level) * math.sqrt(
            energy * self.share / (1 - self.share) / (2 * spread)
        )


_PLANE = ([1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0])


@cache
def _beyond(mu: float, s2: float, level: float) -> float:
    """Energy of the exact score of 2 × 2 squares beyond its isotropic part, by a million draws."""
    g = torch.Generator().manual_seed(0)
    v, shift = level * s2 + 1 - level, math.sqrt(level) * mu
    along = math.sqrt(v) * torch.randn(1_000_000, generator=g).double()
    along = along + shift * (2 * torch.randint(2, (1_000_000,), generator=g) - 1)
    score = -(along - shift * torch.tanh(shift * along / v)) / v
    # Three directions are Gaussian of variance v with score −x/v, one is the line of the means.
    slope = (float((score * along).mean()) - 3) / (float(along.square().mean()) + 3 * v)
    line = float((score - slope * along).square().mean())
    return line + 3 * v * (slope + 1 / v) ** 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum(MixtureModel):
    """Gaussian images whose waves have variances k^−power: red, white or blue."""

    power: float = 2.0
    side: int = 8
    variances: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        k = torch.arange(1, self.side + 1).double()
        radius = (k[:, None].square() + k.square()).sqrt()
        variances = radius**-self.power
        object.__setattr__(self, "variances", variances / variances.mean() * self.s2)
        object.__setattr__(self, "amplitude", 4 * math.sqrt(self.s2))

    def _waves(self) -> Tensor:
        n, k = torch.arange(self.side).double(), torch.arange(self.side).double()
        waves = torch.cos(math.pi * (n + 0.5) * k[:, None] / self.side)
        return waves / waves.norm(dim=1, keepdim=True)

    def drawn(self, n: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)
        waves = self._waves()
        return waves.mT @ (self.variances.sqrt() * noise) @ waves

    def predicted(self, x: Tensor, time: int, labels: Tensor | None) -> Prediction:
        level = self.levels[time]
        waves = self._waves()
        held = waves @ x @ waves.mT
        noise = math.sqrt(1 - level) * held / (level * self.variances + 1 - level)
        return parted(x, waves.mT @ noise @ waves, level)


def parted(x: Tensor, noise: Tensor, level: float) -> Prediction:
    """Clean part that goes with a prediction of the noise."""
    return Prediction(clean=(x - math.sqrt(1 - level) * noise) / math.sqrt(level), noise=noise)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, the settings it is read with beside `SETTINGS`, and its share of the seeds."""

    made: Callable[[], MixtureModel]
    settings: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0


SUBJECTS = {
    "exact score, DDIM, 50 steps": Subject(made=MixtureModel),
    "exact score, DDIM, 16 steps": Subject(
        made=MixtureModel, settings={"steps": 16}
    ),
    "exact score, Euler, 50 steps": Subject(
        made=MixtureModel, settings={"integrator": "euler"}
    ),
    "exact score, Euler, 16 steps": Subject(
        made=MixtureModel, settings={"integrator": "euler", "steps": 16}
    ),
    "exact score, narrow mixture": Subject(made=lambda: MixtureModel(mu=1.0, s2=0.04)),
    "exact score, 8 × 8 values": Subject(
        made=lambda: MixtureModel(mu=4.0, s2=0.25, side=8), settings={"batch": 2000}
    ),
    "score times 1.2": Subject(made=Scaled),
    "score times 1.05": Subject(made=lambda: Scaled(factor=1.05)),
    "rotation of .1": Subject(made=Rotating),
    "rotation of .1, 200 images": Subject(
        made=Rotating, settings={"images": 200, "rotation_images": 200, "bins": 32}
    ),
    "rotation of .02": Subject(made=lambda: Rotating(share=0.02)),
    "exact score, default settings": Subject(made=MixtureModel, settings=DEFAULTS),
    "rotation of .1, default settings": Subject(made=Rotating, settings=DEFAULTS),
    "exact score, Euler, K = 16 to 64": Subject(
        made=lambda: MixtureModel(mu=4.0, s2=0.25, side=8),
        settings={"integrator": "euler", "doubling": (16, 32, 64), "family_images": 1000,
                  "images": 500, "steps": 16, "rotation_times": 0, "batch": 500},
    ),
    "Gaussian images, red": Subject(
        made=Spectrum, settings={"batch": 2000}, share=0.5
    ),
    "Gaussian images, white": Subject(
        made=lambda: Spectrum(power=0.0), settings={"batch": 2000}, share=0.5
    ),
    "Gaussian images, blue": Subject(
        made=lambda: Spectrum(power=-2.0), settings={"batch": 2000}, share=0.5
    ),
}  # fmt: skip

_HALVING = "exact score, Euler, K = 16 to 64"
_I1 = {
    "score times 1.2": "fails",
    "score times 1.05": "fails or abstains",
    "exact score, 8 × 8 values": "holds",
}
_I2 = {
    _HALVING: "holds",
    "exact score, 8 × 8 values": "fails",
    "exact score, Euler, 50 steps": "uninformative",
}
_I3 = {
    "rotation of .1": "fails",
    "rotation of .1, 200 images": "fails",
    "rotation of .1, default settings": "fails",
    "rotation of .02": "fails or abstains",
    "Gaussian images, white": "uninformative",
    "Gaussian images, blue": "not fails",
}
EXPECTED = {
    **{(name, "I1"): _I1.get(name, "not fails") for name in SUBJECTS if name != _HALVING},
    **{(name, "I2"): right for name, right in _I2.items()},
    **{(name, "I3"): _I3.get(name, "holds") for name in SUBJECTS if name != _HALVING},
}
"""The right answer by subject and verdict."""


def random_network(width: int, layers: int, seed: int) -> nn.Module:
    """A diffusion transformer of 8 × 8 images with random weights."""
    from diffusers import DiTTransformer2DModel

    torch.manual_seed(seed)
    return DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=width // 4, in_channels=1, out_channels=1,
        num_layers=layers, sample_size=8, patch_size=2, num_embeds_ada_norm=4,
    ).eval()  # fmt: skip
