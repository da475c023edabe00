r"""The training loop of denoising score matching, and its settings.

.. math:: L_\sigma = 1 + \tfrac1d\,
          \mathbb E\bigl[\sigma^2\|s\|^2 + 2\sigma\, s\cdot\varepsilon\bigr]

is the loss per coordinate, ‖σs + ε‖²/d with ‖ε‖² replaced by its mean: s = 0 scores 1, the true
score 1 − σ²E‖s‖²/d. At σ = .01 that is four digits of nothing before the first that counts, which
is why ‖ε‖² is taken out by hand and ε comes in pairs ±ε.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.network import ScoreNet
from flowscope.flows.score.samples import drawn

__all__ = ["Cloud", "ScoreTraining", "Trained", "denoising_losses", "trained"]


@dataclass(frozen=True, kw_only=True)
class ScoreTraining:
    """How a score is trained.

    Parameters
    ----------
    width, blocks : of :class:`ScoreNet`.
    epochs : at most so many passes over the points.
    batch : points a step, each at one scale.
    learning_rate, weight_decay : of AdamW; the rate falls to zero along a cosine over the epochs.
    patience : stop after so many epochs without a better held-out loss.
    held_out : share of the points, or of the groups, that is not trained on.
    weight : ``"variance"``, σ², or ``"published"``, σ²/(σ² + σ_min²) as in source 000 M.2.
    curriculum : share of the epochs over which the scales enter, the largest at once and the k-th
        of K at epoch ⌈curriculum · epochs · k/(K − 1)⌉, k = 0 … K − 1; 0 is all at once.
    paired : draw noise in pairs ±ε.

    Notes
    -----
    000 M.2 has a curriculum, 5 epochs and a rate of 1e-4; on a few thousand points so few steps
    leave the network where it started. ``benchmarks/results/scores.json`` has what each choice
    does on one mixture, three seeds: without pairs 8 dimensions are not learned at all; with them
    the published weight does no harm and is the better one at the smallest scale, and without them
    it ruins the fit in 2 dimensions; the curriculum changes less than the seed.
    """

    width: int = 64
    blocks: int = 2
    epochs: int = 100
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    patience: int = 20
    held_out: float = 0.2
    weight: Literal["variance", "published"] = "variance"
    curriculum: float = 0.0
    paired: bool = True

    def __post_init__(self) -> None:
        counts = (self.width, self.blocks, self.epochs, self.batch, self.patience)
        if min(counts) < 1:
            raise InvalidInputError(
                f"width, blocks, epochs, batch and patience must be at least 1; found {counts}."
            )
        if not (0 < self.held_out < 1 and 0 <= self.curriculum <= 1 and self.learning_rate > 0):
            raise InvalidInputError(
                "held_out must lie in (0, 1), curriculum in [0, 1] and learning_rate above 0; "
                f"found {self.held_out}, {self.curriculum} and {self.learning_rate}."
            )
        if self.weight not in ("variance", "published"):
            raise InvalidInputError(
                f"weight must be 'variance' or 'published'; found {self.weight!r}."
            )


class Cloud(NamedTuple):
    """Points and, if the law moves, their times."""

    points: Float[Tensor, "n d"]
    times: Float[Tensor, " n"] | None

    def at(self, rows: Tensor) -> "Cloud":
        """Some of the points, by number or by mask."""
        return Cloud(self.points[rows], None if self.times is None else self.times[rows])


class Trained(NamedTuple):
    """The best network on held-out points, and how it was found."""

    net: ScoreNet
    losses: Float[Tensor, " k"]
    loss: float
    history: tuple[float, ...]
    stopped_early: bool


def trained(
    net: ScoreNet,
    kept: tuple[Cloud, Cloud],
    sigmas: Float[Tensor, " k"],
    training: ScoreTraining,
    generator: torch.Generator,
) -> Trained:
    """Train on the first cloud; keep the weights that do best on the second.

    ``history`` is the held-out objective before training and after each epoch. Weights are judged
    only once every scale has entered, the start included: a network that never improves on the
    Gaussian fit is returned as that fit.
    """
    seen, unseen = kept
    sigmas = sigmas.sort(descending=True).values
    weights = _weights(sigmas, training)
    noise = [drawn(unseen.points, generator) for _ in sigmas]
    adam = torch.optim.AdamW(net.parameters(), weight_decay=training.weight_decay)
    history = [_objective(net, unseen, sigmas, noise, weights)]
    best, best_state, waited = history[0], copy.deepcopy(net.state_dict()), 0
    for epoch in range(training.epochs):
        active = _active(epoch, len(sigmas), training)
        adam.param_groups[0]["lr"] = _rate(epoch, training)
        for batch in _batches(seen, training.batch, generator):
            _step(net, adam, batch, sigmas[:active], weights[:active], training.paired, generator)
        history.append(_objective(net, unseen, sigmas, noise, weights))
        if not math.isfinite(history[-1]):
            break
        if active < len(sigmas):
            continue
        waited += 1
        if history[-1] < best:
            best, best_state, waited = history[-1], copy.deepcopy(net.state_dict()), 0
        if waited >= training.patience:
            break
    net.load_state_dict(best_state)
    net.requires_grad_(False).eval()
    losses = torch.stack(_held_out(net, unseen, sigmas, noise))
    return Trained(net, losses, best, tuple(history), len(history) <= training.epochs)


def denoising_losses(
    net: ScoreNet,
    cloud: Cloud,
    sigma: Float[Tensor, " n"],
    noise: Float[Tensor, "n d"],
    *,
    paired: bool = True,
) -> Float[Tensor, " n"]:
    """L_σ at each point, for one noise ε or for the pair ±ε."""
    x, t = cloud
    if paired:
        x, sigma, noise = torch.cat([x, x]), torch.cat([sigma, sigma]), torch.cat([noise, -noise])
        t = None if t is None else torch.cat([t, t])
    scaled = sigma[:, None] * net(x + sigma[:, None] * noise, sigma, t)
    losses = 1 + (scaled * (scaled + 2 * noise)).mean(1)
    found: Tensor = losses.reshape(-1, len(cloud.points)).mean(0)
    return found


def _step(
    net: ScoreNet,
    adam: torch.optim.Optimizer,
    cloud: Cloud,
    sigmas: Tensor,
    weights: Tensor,
    paired: bool,
    generator: torch.Generator,
) -> None:
    chosen = torch.randint(
        len(sigmas), (len(cloud.points),), generator=generator, device=generator.device
    ).to(sigmas.device)
    noise = drawn(cloud.points, generator)
    losses = denoising_losses(net, cloud, sigmas[chosen], noise, paired=paired)
    adam.zero_grad(set_to_none=True)
    (weights[chosen] * losses).mean().backward()  # type: ignore[no-untyped-call]
    adam.step()


def _weights(sigmas: Tensor, training: ScoreTraining) -> Tensor:
    """What multiplies L_σ, with mean one: L already holds σ²."""
    if training.weight == "variance":
        return torch.ones_like(sigmas)
    weights = 1 / (sigmas**2 + sigmas.min() ** 2)
    return weights / weights.mean()


def _active(epoch: int, scales: int, training: ScoreTraining) -> int:
    """How many of the scales, the largest first, are trained on in this epoch."""
    over = training.curriculum * training.epochs
    return scales if epoch >= over else 1 + int(epoch * (scales - 1) / over)


def _rate(epoch: int, training: ScoreTraining) -> float:
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * epoch / training.epochs))


def _batches(cloud: Cloud, size: int, generator: torch.Generator) -> Iterator[Cloud]:
    order = torch.randperm(len(cloud.points), generator=generator, device=generator.device)
    for rows in torch.split(order.to(cloud.points.device), size):
        yield cloud.at(rows)


@torch.no_grad()
def _held_out(net: ScoreNet, cloud: Cloud, sigmas: Tensor, noise: list[Tensor]) -> list[Tensor]:
    """L_σ on held-out points, for each scale, always in pairs."""
    return [
        denoising_losses(net, cloud, sigma.expand(len(cloud.points)), e).mean()
        for sigma, e in zip(sigmas, noise, strict=True)
    ]


def _objective(
    net: ScoreNet, cloud: Cloud, sigmas: Tensor, noise: list[Tensor], weights: Tensor
) -> float:
    losses = torch.stack(_held_out(net, cloud, sigmas, noise))
    return float((weights * losses).mean())
