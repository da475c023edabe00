r"""Image models whose score is exact, so that the answer of the synchronisation verdicts is known.

Gaussian images have one spectrum each (red: large scales vary most; white; blue: small ones) or
the covariance of an uneven picture. A *mixture* adds patterns: the image is one of many, each a
large-scale pattern of its own or a small-scale one. Which pattern it is is decided at once, near
one noise level, while a Gaussian of the same covariance spreads the decision.
"""

import diffusers
import torch
from torch import Tensor

from flowscope.instruments.sync.commitment.control import order_arrays
from flowscope.instruments.sync.commitment.gaussian import (
    ExactDenoiser,
    GaussianDenoiser,
    GaussianImages,
)
from flowscope.instruments.sync.commitment.judge import judge_commitment_order
from flowscope.instruments.sync.commitment.order_rule import Order, order_table
from flowscope.instruments.sync.commitment.outcomes import Outcomes
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab.claim import Claim
from flowscope.records import Unavailable, Verdict

__all__ = ["SPECTRA", "gaussian_subject", "order_of"]

SIDE = 16
SPECTRA = {"white": 0.0, "red": -2.0, "blue": 2.0}
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

    def __init__(self):
        self._held = {}

    def find(self, name):
        return self._held.get(name)

    def write(self, name, arrays, metadata):
        self._held[name] = dict(arrays)

    def read(self, name):
        held = self._held[name]
        return type("Held", (), {"arrays": held})()

    def arrays(self, name, make, metadata):
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
