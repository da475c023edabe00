"""Protocol II: replicas coupled to the end; which modes of their difference keep their energy."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from flowscope.errors import UnsupportedModelError
from flowscope.probes import Arrays, DifferenceProbe
from flowscope.records import Run, ShardKey
from flowscope.runs.config import SyncConfig
from flowscope.runs.denoiser import Denoiser
from flowscope.runs.outcomes import pair_sampler
from flowscope.tap import BlockPass, Chain, Tap

__all__ = ["ModeReading", "kept_steps"]


def kept_steps(config: SyncConfig, asked: Collection[int] = ()) -> tuple[int, ...]:
    """Reverse steps whose differences are read: evenly spaced ones, and those asked for."""
    spaced = np.linspace(0, config.steps - 1, min(config.kept, config.steps))
    inside = {min(max(int(step), 1), config.steps - 1) for step in asked}
    return tuple(sorted({int(step) for step in np.round(spaced)} | inside))


class ModeReading:
    """Runs Protocol II, one coupling a shard."""

    def __init__(
        self,
        denoiser: Denoiser,
        config: SyncConfig,
        run: Run,
        fingerprint: str,
        advance: Callable[[int], None],
    ) -> None:
        self._denoiser, self._config = denoiser, config
        self._run, self._fingerprint, self._advance = run, fingerprint, advance

    def read(self, g: float, asked: Collection[int]) -> Arrays:
        """Gram matrices of the differences under one coupling; those of `DifferenceProbe`."""
        kept = kept_steps(self._config, asked)
        name = f"modes-g{g:g}-" + "_".join(str(step) for step in kept)
        key = ShardKey(name=name[:120], fingerprint=self._fingerprint)
        if self._run.shard_done(key):
            return dict(self._run.read_shard(key).arrays)
        arrays = self._walked(g, kept)
        self._run.write_shard(key, arrays, {"g": g})
        return arrays

    def _walked(self, g: float, kept: Collection[int]) -> Arrays:
        config = self._config
        sampler, noise = pair_sampler(self._denoiser, config, config.labels[0], eta=0.0)
        start = noise.initial(config.mode_sigma)
        with Tap(self._denoiser.loaded.model) as tap:
            listener = _Listener(tap, config.pairs, kept)
            tap.on_block(listener)
            walk = sampler.walk(start, noise, g=g, before=listener.begin)
            for _ in walk:
                self._advance(1)
            return listener.arrays()


class _Listener:
    """The probe, made when the anatomy is known, given the blocks of the depth."""

    def __init__(self, tap: Tap, pairs: int, kept: Collection[int]) -> None:
        self._tap, self._pairs, self._kept = tap, pairs, kept
        self._probe: DifferenceProbe | None = None
        self._step = 0

    def begin(self, step: int) -> None:
        self._step = step
        if self._probe is not None:
            self._probe.begin(step)

    def __call__(self, block: BlockPass) -> None:
        depth = self._tap.anatomy.depth
        if not isinstance(depth, Chain):
            raise UnsupportedModelError(f"This model has no depth to read: {depth.reason}.")
        if self._probe is None:
            self._probe = DifferenceProbe(layers=len(depth), pairs=self._pairs, kept=self._kept)
            self._probe.begin(self._step)
        if block.site.chain == depth.name:
            self._probe.update(block)

    def arrays(self) -> Arrays:
        if self._probe is None:
            raise UnsupportedModelError("No block of this model was seen while it ran.")
        return self._probe.arrays()
