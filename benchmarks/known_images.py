r"""Image models whose score is exact, so that the answer of the synchronisation verdicts is known.

Gaussian images have one spectrum each (red: large scales vary most; white; blue: small ones) or
the covariance of an uneven picture. A *mixture* adds patterns: the image is one of many, each a
large-scale pattern of its own or a small-scale one. Which pattern it is is decided at once, near
one noise level, while a Gaussian of the same covariance spreads the decision.
"""

import math
from types import SimpleNamespace
from typing import Any

import diffusers
import torch
from torch import Tensor

from flowscope.instruments.sync.commitment.control import order_arrays
from flowscope.instruments.sync.commitment.gaussian import (
    ExactDenoiser,
    GaussianDenoiser,
    GaussianImages,
    cosine_transform,
)
from flowscope.instruments.sync.commitment.judge import judge_commitment_order
from flowscope.instruments.sync.commitment.order_rule import Order, order_table
from flowscope.instruments.sync.commitment.outcomes import Outcomes
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.claim import Claim
from flowscope.records import Unavailable, Verdict

__all__ = ["SUBJECTS", "gaussian_subject", "mixture_subject", "order_of", "uneven_subject"]

SIDE = 16
COARSE_SIZE, DETAIL = 1.0, 0.1
CLAIM = Claim(name="R1", says="coarse first", asks="Is it?")


class Surroundings:
    """What an exact denoiser takes from the model that it stands in for: here, pixels."""

    def __init__(self, side: int = SIDE) -> None:
        self.schedule = dict(diffusers.DDIMScheduler(clip_sample=False).config)
        self.shape = (1, side, side)
        self.device = torch.device("cpu")

    def decoded(self, x: Tensor) -> Tensor:
        """Images as they are; a clamp would make them other than Gaussian."""
        return x


def uneven_subject(side: int = SIDE) -> GaussianDenoiser:
    """Gaussian images of a red spectrum that vary in the middle of the picture only.

    Twenty-four directions hold the variance; no spectrum does.
    """
    place = torch.linspace(-1, 1, side, dtype=torch.float64)
    window = torch.exp(-4 * (place[:, None] ** 2 + place[None] ** 2))
    generator = torch.Generator().manual_seed(2)
    waves = torch.randn(24, 1, side, side, generator=generator, dtype=torch.float64)
    frequency = torch.arange(side, dtype=torch.float64)
    fading = (1 + torch.hypot(frequency[:, None], frequency[None])) ** -1.5
    pictures = cosine_transform(waves * fading, inverse=True) * window
    rows = cosine_transform(pictures).flatten(1)
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    law = GaussianImages(
        mean=torch.zeros(1, side, side, dtype=torch.float64),
        spectrum=torch.full((1, side, side), 1e-3, dtype=torch.float64),
        directions=directions,
        strengths=sizes.square() * 0.25 * side**2 / sizes.square().sum(),
    )
    return GaussianDenoiser(law, Surroundings(side))


def gaussian_subject(power: float, side: int = SIDE, size: float = 0.25) -> GaussianDenoiser:
    """Gaussian images whose spectrum is a power of the frequency."""
    place = torch.arange(side, dtype=torch.float64)
    spectrum = (1 + torch.hypot(place[:, None], place[None])) ** power
    spectrum *= size / spectrum.mean()
    law = GaussianImages(
        mean=torch.zeros(1, side, side, dtype=torch.float64),
        spectrum=spectrum[None],
        directions=torch.zeros(0, side * side, dtype=torch.float64),
        strengths=torch.zeros(0, dtype=torch.float64),
    )
    return GaussianDenoiser(law, Surroundings(side))


class MemoryShards:
    """Shards of a run that is not kept."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        """Shard of that name, or nothing."""
        return self._held.get(name)

    def write(self, name: str, arrays: Any, metadata: Any) -> None:
        """Hold a shard."""
        self._held[name] = dict(arrays)

    def read(self, name: str) -> Any:
        """Shard of that name."""
        return SimpleNamespace(arrays=self._held[name])

    def arrays(self, name: str, make: Any, metadata: Any) -> Any:
        """Arrays of a shard, made where it is not held."""
        if name not in self._held:
            self._held[name] = make()
        return self._held[name]


def order_of(denoiser: ExactDenoiser, config: SyncConfig) -> tuple[Order, Verdict]:
    """The protocol on a subject, and the verdict on its order."""
    nothing = Unavailable("no encoder is needed")
    outcomes = Outcomes(denoiser, nothing, config, MemoryShards(), lambda steps: None)
    arrays, because = order_arrays(outcomes, denoiser, outcomes.curves(), config)
    order = Order(arrays=arrays, seed=config.seed)
    table = order_table(order, because)
    return order, judge_commitment_order(arrays, table, claim=CLAIM, seed=config.seed)


class MixtureDenoiser(ExactDenoiser):
    """Exact denoiser of patterns with Gaussian detail of one spectrum around each.

    Parameters
    ----------
    patterns
        Coefficients of the cosine transform, ``[K, C, H, W]``; all are equally likely.
    spectrum
        Variance of each coefficient around its pattern.
    surroundings
        Schedule, shape and decoder.
    """

    def __init__(self, patterns: Tensor, spectrum: Tensor, surroundings: Any) -> None:
        super().__init__(surroundings)
        self._patterns, self._spectrum = patterns, spectrum

    def denoised(self, x: Tensor, level: float) -> Tensor:
        """Mean of the image: patterns weighted by how likely each is, and the detail around."""
        seen = cosine_transform(x.double())
        total = level * self._spectrum + 1 - level
        away = seen[:, None] - math.sqrt(level) * self._patterns[None]
        evidence = -0.5 * (away.square() / total).sum((2, 3, 4))
        if self._weight:  # tied replicas share what speaks for each pattern, all of it at g = 1
            first, second = evidence.chunk(2)
            shared = 2 * self._weight
            evidence = torch.cat([first + shared * second, second + shared * first])
        weights = torch.softmax(evidence, 1)
        middle = torch.einsum("nk,kchw->nchw", weights, self._patterns)
        gain = math.sqrt(level) * self._spectrum / total
        clean = middle + gain * (seen - math.sqrt(level) * middle)
        return cosine_transform(clean, inverse=True).to(x.dtype)


def mixture_subject(kind: str, *, patterns: int = 32, side: int = SIDE) -> MixtureDenoiser:
    """Images that are one of some patterns at some scales, Gaussian at the others.

    Parameters
    ----------
    kind
        ``coarse``: patterns of large scales, Gaussian detail. ``whole``: patterns of all scales
        with a red spectrum, so that detail is decided with the layout.
    patterns
        How many.
    side
        Of the images.
    """
    place = torch.arange(side, dtype=torch.float64)
    frequency = torch.hypot(place[:, None], place[None])
    low = frequency < 6
    red = (1 + frequency) ** -2.0
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(patterns, 1, side, side, generator=generator, dtype=torch.float64)
    if kind == "coarse":
        spread, rest = low * COARSE_SIZE, ~low * DETAIL
    else:
        spread, rest = red / red.mean() * 0.25, torch.full_like(red, 1e-3)
    return MixtureDenoiser(drawn * spread.sqrt(), rest[None].double(), Surroundings(side))


SUBJECTS: dict[str, tuple[Any, dict[str, int]]] = {
    "Gaussian, white": (lambda: gaussian_subject(0.0), {}),
    "Gaussian, red": (lambda: gaussian_subject(-2.0), {}),
    "Gaussian, blue": (lambda: gaussian_subject(2.0), {}),
    "Gaussian, uneven": (uneven_subject, {}),
    "coarse patterns, Gaussian detail": (lambda: mixture_subject("coarse"), {"coarse": 8}),
    "patterns of all scales": (lambda: mixture_subject("whole", patterns=128), {}),
}
"""Subjects by name, and the settings of the protocol that belong to them."""
