r"""Two generations side by side: shared or separate noise, coupled for a while, then let go.

Replicas start as (source 004, eqs 67–69)

$$
z_T^{A,B} = \frac{z \pm \sigma\,\delta}{\sqrt{1+\sigma^2}}, \qquad
\varrho(\sigma) = \frac{1-\sigma^2}{1+\sigma^2},
$$

each of them unit noise, with correlation $\varrho$ between them. Every pair has a seed, and its
noise at every step follows from it: the same pair meets the same noise under every coupling and
intervention, in whatever batch it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.commitment.gaussian import ExactDenoiser
from flowscope.instruments.sync.config import SyncConfig
from flowscope.levers import couple
from flowscope.models.diffusion.denoiser import Clock, Denoiser

__all__ = ["PairNoise", "PairSampler", "pair_sampler", "pair_seeds", "replica_correlation"]


_LOOKED_AT = 10  # steps between looks for NaN on a device


def replica_correlation(sigma: float) -> float:
    r"""Correlation ϱ(σ) of the two starting points.

    Raises
    ------
    InvalidInputError
        When σ is negative or not finite.

    Examples
    --------
    >>> replica_correlation(0.0), replica_correlation(1.0)
    (1.0, 0.0)
    """
    if not 0 <= sigma < math.inf:
        raise InvalidInputError(f"sigma must be 0 or more and finite; got {sigma}.")
    return (1 - sigma**2) / (1 + sigma**2)


class PairNoise:
    """All noise of some pairs, from their seeds.

    Parameters
    ----------
    seeds
        One per pair.
    shape
        Channels, height and width of a latent.
    steps
        Reverse steps.
    device
        Where it is wanted.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        shape: tuple[int, int, int],
        steps: int,
        device: torch.device,
    ) -> None:
        drawn = []
        for seed in seeds:  # on the CPU, so that a device does not change the numbers
            generator = torch.Generator().manual_seed(seed)
            drawn.append(torch.randn(steps + 1, 2, *shape, generator=generator))
        self._drawn = torch.stack(drawn, 2).to(device)

    def initial(self, sigma: float) -> Float[Tensor, "two_M c h w"]:
        """Starting points, the A of every pair and then the B."""
        replica_correlation(sigma)
        middle, apart = self._drawn[0]
        size = math.sqrt(1 + sigma**2)
        return torch.cat([(middle + sigma * apart) / size, (middle - sigma * apart) / size])

    def at(self, step: int, *, shared: bool) -> Float[Tensor, "two_M c h w"]:
        """Noise of one reverse step; B's is A's when it is shared."""
        first, second = self._drawn[step + 1]
        return torch.cat([first, first if shared else second])


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSampler:
    """Runs pairs of replicas through reverse steps.

    Attributes
    ----------
    denoiser, clock
        The model and its reverse steps.
    labels
        Class of every replica, A first and then B; None when the model takes none.
    eta
        0 is DDIM, 1 has the noise of DDPM.
    guidance
        1 is none.
    """

    denoiser: Denoiser | ExactDenoiser
    clock: Clock
    labels: Int[Tensor, "two_M"] | None
    eta: float
    guidance: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise InvalidInputError(f"eta must lie in [0, 1]; got {self.eta}.")
        if not 0 <= self.guidance < math.inf:
            raise InvalidInputError(f"guidance must be 0 or more and finite; got {self.guidance}.")
        if self.labels is None:
            return
        if len(self.labels) % 2:
            raise InvalidInputError(
                f"labels must name the class of A and of B, an even number; got {len(self.labels)}."
            )
        first, second = self.labels.chunk(2)
        if not torch.equal(first, second):
            pair = int((first != second).nonzero()[0])
            raise InvalidInputError(
                f"Both replicas of a pair must have the same label; pair {pair} has "
                f"{int(first[pair])} and {int(second[pair])}. They could never agree."
            )
        known = len(self.denoiser.classes)
        if known and not bool(((first >= 0) & (first < known)).all()):
            raise InvalidInputError(
                f"labels must lie between 0 and {known - 1} "
                f"({self.denoiser.classes[0]} … {self.denoiser.classes[-1]}); got "
                f"{sorted({int(label) for label in first})}."
            )

    @torch.no_grad()
    def walk(
        self,
        x: Float[Tensor, "two_M c h w"],
        noise: PairNoise,
        *,
        first: int = 0,
        last: int | None = None,
        g: float = 0.0,
        shared: bool = False,
        before: Callable[[int], None] = lambda step: None,
    ) -> Generator[tuple[int, Float[Tensor, "two_M c h w"]]]:
        """States on the way from step ``first`` to step ``last``, as (steps done, state).

        Parameters
        ----------
        x
            Where they are when ``first`` steps are done.
        noise
            Of these pairs.
        first, last
            Steps done before and after; to the end by default.
        g
            Coupling strength while it walks.
        shared
            Whether both replicas meet the same noise.
        before
            Told each step before the model runs.

        Raises
        ------
        InvalidInputError
            When a state is not finite.

        Notes
        -----
        The model is coupled while the walk is under way: close it when you leave early
        (``contextlib.closing``).
        """
        last = len(self.clock) if last is None else last
        with self._tied(g) if g else nullcontext():
            for step in range(first, last):
                before(step)
                time = self.clock.times[step]
                found = self.denoiser.noise(x, time, self.labels, self.guidance)
                drawn = noise.at(step, shared=shared) if self.eta else None
                x = self.clock.step(found, step, x, eta=self.eta, noise=drawn)
                self._refuse_broken(x, step, g)
                yield step + 1, x

    def _tied(self, g: float) -> AbstractContextManager[Any]:
        if isinstance(self.denoiser, ExactDenoiser):
            return self.denoiser.tied(g)
        branches = 1 if self.guidance == 1 else 2
        return couple(self.denoiser.loaded.model, g, branches=branches)

    @torch.no_grad()
    def finished(
        self,
        states: Mapping[int, Float[Tensor, "two_M c h w"]],
        noise: PairNoise,
        *,
        advance: Callable[[int], None] = lambda branches: None,
    ) -> dict[int, Float[Tensor, "two_M c h w"]]:
        """Where replicas end that are let go at several steps, walked to the end in one batch.

        Parameters
        ----------
        states
            Where they are when they are let go, by the number of steps done.
        noise
            Of these pairs; every branch meets the same.
        advance
            Told the number of branches after each step.
        """
        ended = {done: x for done, x in states.items() if done >= len(self.clock)}
        active: dict[int, Tensor] = {}
        for step in range(min(states), len(self.clock)):
            if step in states:
                active[step] = states[step]
            number = len(active)
            x = torch.cat(list(active.values()))
            labels = None if self.labels is None else self.labels.repeat(number)
            found = self.denoiser.noise(x, self.clock.times[step], labels, self.guidance)
            drawn = noise.at(step, shared=False).repeat(number, 1, 1, 1) if self.eta else None
            x = self.clock.step(found, step, x, eta=self.eta, noise=drawn)
            self._refuse_broken(x, step, 0.0)
            active = dict(zip(active, x.chunk(number), strict=True))
            advance(number)
        return active | ended

    def _refuse_broken(self, x: Tensor, step: int, g: float) -> None:
        last = step + 1 == len(self.clock)
        if x.is_cuda and not last and step % _LOOKED_AT:  # a look at a device waits for it
            return
        if bool(torch.isfinite(x).all()):
            return
        rows = int((~torch.isfinite(x).flatten(1).all(1)).nonzero()[0])
        broken = rows if self.labels is None else rows % len(self.labels)
        raise InvalidInputError(
            f"Latents of replica {broken} are NaN or infinite after step {step + 1} of "
            f"{len(self.clock)} (g = {g:g}). Use a wider dtype (--dtype float32), less guidance, "
            "or check that the schedule is the model's own."
        )


def pair_seeds(config: SyncConfig, label: int, *, beyond: int = 0) -> list[int]:
    """Seed of each pair, or of pairs beyond these; other classes have other pairs."""
    start = np.random.SeedSequence([config.seed, label])
    seeds = start.generate_state(config.pairs + beyond, np.uint64)
    return [int(seed >> np.uint64(1)) for seed in (seeds[config.pairs :] if beyond else seeds)]


def pair_sampler(
    denoiser: Denoiser | ExactDenoiser,
    config: SyncConfig,
    label: int,
    *,
    eta: float,
    rows: slice = slice(None),
    beyond: int = 0,
) -> tuple[PairSampler, PairNoise]:
    """The sampler and the noise of some pairs of a class, in one batch."""
    seeds = pair_seeds(config, label, beyond=beyond)[rows]
    labels = None
    if denoiser.classes:
        labels = torch.full((2 * len(seeds),), label, device=denoiser.device)
    sampler = PairSampler(
        denoiser=denoiser,
        clock=denoiser.clock(config.steps),
        labels=labels,
        eta=eta,
        guidance=config.guidance,
    )
    noise = PairNoise(seeds, shape=denoiser.shape, steps=config.steps, device=denoiser.device)
    return sampler, noise
