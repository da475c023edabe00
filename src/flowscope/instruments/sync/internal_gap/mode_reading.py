"""Protocol II: replicas coupled to the end; which modes of their difference keep their energy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial

import numpy as np
from torch import Tensor

from flowscope.errors import UnsupportedModelError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.probes import Arrays, DifferenceProbe
from flowscope.records import Shards
from flowscope.replica import stacked_gram
from flowscope.tap import BlockPass, Chain, Tap

__all__ = ["ModeReading", "kept_steps"]


_LONGEST = 80  # characters of a list of steps in the name of a shard


def kept_steps(config: SyncConfig, asked: Collection[int] = ()) -> tuple[int, ...]:
    """Reverse steps whose differences are read: evenly spaced ones, and those asked for."""
    spaced = np.linspace(0, config.steps - 1, min(config.kept, config.steps))
    return tuple(sorted({int(step) for step in np.round(spaced)} | _inside(config, asked)))


def _inside(config: SyncConfig, asked: Collection[int]) -> set[int]:
    return {min(max(int(step), 1), config.steps - 1) for step in asked}


class ModeReading:
    """Runs Protocol II, one coupling a shard."""

    def __init__(
        self,
        denoiser: Denoiser,
        config: SyncConfig,
        shards: Shards,
        advance: Callable[[int], None],
    ) -> None:
        self._denoiser, self._config = denoiser, config
        self._shards, self._advance = shards, advance

    def read(self, g: float, asked: Collection[int]) -> Arrays:
        """Gram matrices of the differences under one coupling; those of `DifferenceProbe`.

        ``latent_gram`` holds those of the latents themselves, [first; later], at the steps
        ``clock``: what the model was given, before any block.
        """
        kept = kept_steps(self._config, asked)
        asked = tuple(step for step in kept if step in _inside(self._config, asked))
        listed = "_".join(f"{step}c" if step in asked else str(step) for step in kept)
        if len(listed) > _LONGEST:
            listed = hashlib.sha256(listed.encode()).hexdigest()[:16]
        name = f"differences-{self._config.labels[0]}-g{g:g}-{listed}"
        return self._shards.arrays(name, lambda: self._walked(g, kept, asked), {"g": g})

    def read_at(self, step: int, name: str) -> Arrays:
        """Gram matrices of untied replicas at one step; the walk ends there."""
        make = partial(self._walked, 0.0, (step,), (step,), step + 1)
        shard = f"differences-{self._config.labels[0]}-{name}-{step}"
        return self._shards.arrays(shard, make, {"g": 0.0})

    def _walked(
        self, g: float, kept: Collection[int], asked: Collection[int], last: int | None = None
    ) -> Arrays:
        config = self._config
        sampler, noise = pair_sampler(self._denoiser, config, config.labels[0], eta=0.0)
        start = noise.initial(config.mode_sigma)
        with Tap(self._denoiser.loaded.model) as tap:
            listener = _Listener(tap, config.pairs, kept)
            tap.on_block(listener, writes=False)

            def before(step: int) -> None:
                if step in asked:  # the first latents at the time of this step, coupled as it is
                    listener.begin(step, reference=True)
                    time = sampler.clock.times[step]
                    self._denoiser.noise(start, time, sampler.labels, sampler.guidance)
                listener.begin(step)

            latents, x = [], start
            with closing(sampler.walk(start, noise, last=last, g=g, before=before)) as walk:
                for done, reached in walk:
                    if done - 1 in asked:
                        latents.append(stacked_gram(_apart(start), _apart(x)).cpu().numpy())
                    x = reached
                    self._advance(1)
            return listener.arrays() | ({"latent_gram": np.stack(latents)} if latents else {})


def _apart(x: Tensor) -> Tensor:
    """Differences of the latents of each pair, a row each."""
    first, second = x.chunk(2)
    return ((first - second) / 2**0.5).flatten(1)


class _Listener:
    """The probe, made when the anatomy is known, given the blocks of the depth."""

    def __init__(self, tap: Tap, pairs: int, kept: Collection[int]) -> None:
        self._tap, self._pairs, self._kept = tap, pairs, kept
        self._probe: DifferenceProbe | None = None
        self._begun = (0, False)

    def begin(self, step: int, *, reference: bool = False) -> None:
        self._begun = (step, reference)
        if self._probe is not None:
            self._probe.begin(step, reference=reference)

    def __call__(self, block: BlockPass) -> None:
        depth = self._tap.anatomy.depth
        if not isinstance(depth, Chain):
            raise UnsupportedModelError(f"This model has no depth to measure: {depth.reason}.")
        if self._probe is None:
            self._probe = DifferenceProbe(layers=len(depth), pairs=self._pairs, kept=self._kept)
            self._probe.begin(self._begun[0], reference=self._begun[1])
        if block.site.chain == depth.name:
            self._probe.update(block)

    def arrays(self) -> Arrays:
        if self._probe is None:
            raise UnsupportedModelError("No block of this model was seen while it ran.")
        return self._probe.arrays()
