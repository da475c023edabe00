"""Protocol I: replicas coupled up to a step and then let go; how alike their images are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.commitment.gaussian import ExactDenoiser
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import PairNoise, PairSampler, pair_sampler
from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.models.images.encoders import Encoder, cosines
from flowscope.probes import Arrays
from flowscope.records import Shards, Task, Unavailable
from flowscope.replica import coarse_fine
from flowscope.replica.scales import CoarseFine, independent_baseline

__all__ = ["Curve", "Outcomes", "coarse_side", "intervention_steps", "strip"]


_STRIP_SIDE = 64  # images of the strip are shown no larger


_IMAGES = 2048  # that a device takes in one pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Outcomes of one class under one coupling: ``[pairs, interventions]`` of each measure.

    ``control`` is the run without coupling in which the replicas share their noise up to the
    intervention. ``distances`` are the squared distances behind the measures coarse and fine.
    ``images`` shows the first pair, ``[interventions, 2, C, H, W]``.
    """

    label: int
    g: float
    control: bool
    steps: NDArray[np.int64]
    measures: dict[str, NDArray[np.float64]]
    distances: dict[str, NDArray[np.float64]]
    images: NDArray[np.float32]


def intervention_steps(config: SyncConfig) -> list[int]:
    """Evenly spaced steps from 0 to the end."""
    spaced = np.linspace(0, config.steps, min(config.interventions, config.steps + 1))
    return [int(step) for step in np.unique(np.round(spaced))]


def coarse_side(config: SyncConfig, width: int) -> int:
    """Side of the coarse image in pixels."""
    return config.coarse or max(1, width // 4)


class Outcomes:
    """Runs Protocol I shard by shard: coupling × intervention × pairs."""

    def __init__(
        self,
        denoiser: Denoiser | ExactDenoiser,
        encoder: Encoder | Unavailable,
        config: SyncConfig,
        shards: Shards,
        advance: Callable[[int], None],
    ) -> None:
        self._denoiser, self._encoder, self._config = denoiser, encoder, config
        self._shards, self._advance = shards, advance
        self.steps = intervention_steps(config)

    def passes(self) -> int:
        """Reverse steps of one chunk of pairs that all shards together take."""
        config = self._config
        chunks = len(self._chunks()) * len(config.labels)
        after = sum(config.steps - step for step in self.steps if step)
        every = chunks * (config.steps + (len(config.couplings) + 1) * (config.steps + after))
        return every + len(config.labels) * len(self._more_chunks()) * config.steps

    def curves(self) -> list[Curve]:
        """Every curve: for each class, each coupling, and the control."""
        asked = [(g, False) for g in self._config.couplings] + [(0.0, True)]
        if (crew := self._shards.crew) is not None:
            curves = [(label, g, c) for label in self._config.labels for g, c in asked]
            # Every curve begins with replicas that were never tied: they are made first, once.
            crew.spread([t for n in self._config.labels for t in self._tasks(n, 0.0, False, [0])])
            crew.spread([t for curve in curves for t in self._tasks(*curve, self.steps)])
        return [self._curve(label, g, c) for label in self._config.labels for g, c in asked]

    def finals(self, label: int) -> NDArray[np.float32]:
        """Finished latents of replicas that were never tied, as many as are asked for."""
        numbers = range(len(self._chunks()))
        parts = [self._outcome(label, 0.0, False, 0, number)["finals"] for number in numbers]
        for rows in self._more_chunks():
            name = f"finals-{label}-{rows.start}-{rows.stop}"
            make = partial(self._untied, label, rows)
            parts.append(self._shards.arrays(name, make, {"label": label})["finals"])
        return np.concatenate(parts)

    def _untied(self, label: int, rows: slice) -> Arrays:
        config = self._config
        sampler, noise = pair_sampler(
            self._denoiser, config, label, eta=config.eta, rows=rows, beyond=self._more()
        )
        start = {0: noise.initial(1.0)}
        ended = sampler.finished(start, noise, advance=self._advance)[0]
        return {"finals": ended.float().cpu().numpy()}

    def _more(self) -> int:
        """Pairs beyond those of the protocol that the images asked for need."""
        return max(0, math.ceil(self._config.finals / 2) - self._config.pairs)

    def _more_chunks(self) -> list[slice]:
        return self._sliced(self._more())

    def _chunks(self) -> list[slice]:
        return self._sliced(self._config.pairs)

    def _sliced(self, most: int) -> list[slice]:
        size = max(2, self._config.batch)
        return [slice(start, min(start + size, most)) for start in range(0, most, size)]

    def _curve(self, label: int, g: float, control: bool) -> Curve:
        self._prepare(label, g, control)
        columns, baseline = [], self._baseline(label)
        for step in self.steps:
            parts = [
                self._outcome(label, g, control, step, number)
                for number in range(len(self._chunks()))
            ]
            told = [k for k in parts[0] if not k.endswith("_baseline") and k != "finals"]
            columns.append({k: np.concatenate([p[k] for p in parts]) for k in told})
        measures = {}
        if "feature" in columns[0]:
            measures["feature"] = np.stack([c["feature"] for c in columns], 1)
        distances = {name: np.stack([c[name] for c in columns], 1) for name in baseline}
        for name, base in baseline.items():
            measures[name] = 1 - distances[name] / base
        return Curve(
            label=label,
            g=g,
            control=control,
            steps=np.asarray(self.steps),
            measures=measures,
            distances=distances,
            images=np.stack([c["images"][0] for c in columns]),
        )

    def _baseline(self, label: int) -> dict[str, float]:
        """Mean distances of independent images of one class, of pairs never tied."""
        weights, sums = [], []
        for number, rows in enumerate(self._chunks()):
            found = self._outcome(label, 0.0, False, 0, number)
            if "coarse_baseline" not in found:  # a last pair that is left over has none to compare
                continue
            weights.append(rows.stop - rows.start)
            sums.append([found["coarse_baseline"][0], found["fine_baseline"][0]])
        coarse, fine = np.average(sums, axis=0, weights=weights)
        if not min(coarse, fine) > 0:
            raise InvalidInputError(
                f"Unrelated images of class {label} do not differ, so that agreement has no "
                "meaning. Check the weights, and that the schedule belongs to the model."
            )
        return {"coarse": float(coarse), "fine": float(fine)}

    @staticmethod
    def _outcome_name(label: int, g: float, control: bool, step: int, number: int) -> str:
        kind = "untied" if step == 0 else "shared" if control else f"g{g:g}"
        return f"outcome-{label}-{kind}-{step}-{number}"

    def _prepare(self, label: int, g: float, control: bool) -> None:
        """Finish every shard of a curve that is not there."""
        for task in self._tasks(label, g, control, self.steps):
            task.make()

    def _tasks(self, label: int, g: float, control: bool, steps: list[int]) -> list[Task]:
        """The shards of each chunk of pairs; they share one coupled walk."""
        return [
            Task(
                name=self._shards.task_name(
                    self._outcome_name(label, g, control, steps[-1], number)
                ),
                done=partial(self._whole, label, g, control, number, steps),
                make=partial(self._fill, label, g, control, number, rows, steps),
            )
            for number, rows in enumerate(self._chunks())
        ]

    def _whole(self, label: int, g: float, control: bool, number: int, steps: list[int]) -> bool:
        return not self._missing(label, g, control, number, steps)

    def _missing(
        self, label: int, g: float, control: bool, number: int, steps: list[int]
    ) -> list[int]:
        return [
            step
            for step in steps
            if self._shards.find(self._outcome_name(label, g, control, step, number)) is None
        ]

    def _fill(
        self, label: int, g: float, control: bool, number: int, rows: slice, steps: list[int]
    ) -> None:
        """Finish some shards that are not there; a device takes many branches at once."""
        missing = self._missing(label, g, control, number, steps)
        size = 2 * (rows.stop - rows.start)
        most = max(1, _IMAGES // size) if self._denoiser.device.type != "cpu" else 1
        for start in range(0, len(missing), most):
            self._finish(label, g, control, missing[start : start + most], number, rows)

    def _finish(
        self, label: int, g: float, control: bool, steps: list[int], number: int, rows: slice
    ) -> None:
        config = self._config
        sampler, noise = pair_sampler(self._denoiser, config, label, eta=config.eta, rows=rows)
        states = {
            step: self._state(label, g, control, step, number, sampler, noise) for step in steps
        }
        for step, x in sampler.finished(states, noise, advance=self._advance).items():
            name = self._outcome_name(label, g, control, step, number)
            arrays = self._told(x, baseline=step == 0)
            if step == 0:
                arrays["finals"] = x.float().cpu().numpy()
            self._shards.write(name, arrays, {"label": label, "g": g, "step": step})

    def _outcome(self, label: int, g: float, control: bool, step: int, number: int) -> Arrays:
        """What the images of some pairs tell, from its shard."""
        name = self._outcome_name(label, g, control, step, number)
        return dict(self._shards.read(name).arrays)

    def _state(
        self,
        label: int,
        g: float,
        control: bool,
        step: int,
        number: int,
        sampler: PairSampler,
        noise: PairNoise,
    ) -> Tensor:
        """Where the replicas are when they are let go: one coupled walk serves every step."""
        start = noise.initial(self._config.sigma)
        if step == 0:
            return start

        def make() -> Arrays:
            states = {}
            # Closed at once when something breaks, so that the model is not left coupled.
            with closing(sampler.walk(start, noise, g=g, shared=control)) as walk:
                for done, x in walk:
                    if done in self.steps:
                        states[f"step{done}"] = x.float().cpu().numpy()
                    self._advance(1)
            return states

        name = f"trunk-{label}-{'shared' if control else f'g{g:g}'}-{number}"
        held = self._shards.arrays(name, make, {"label": label, "g": g})[f"step{step}"]
        return torch.from_numpy(held.copy()).to(self._denoiser.device)

    def _told(self, x: Tensor, *, baseline: bool) -> Arrays:
        images = self._denoiser.decoded(x).float()
        first, second = images.chunk(2)
        size = coarse_side(self._config, images.shape[-1])
        scales = coarse_fine(first, second, size)
        found = {"coarse": scales.low, "fine": scales.high, "images": _shown(first, second)}
        if not isinstance(self._encoder, Unavailable):
            found["feature"] = cosines(self._encoder, first, second)
        if baseline and len(first) > 1:
            apart: CoarseFine = independent_baseline(first, second, size)
            each = len(first)
            found["coarse_baseline"] = apart.low.expand(each)
            found["fine_baseline"] = apart.high.expand(each)
        kinds = {"images": torch.float32}
        return {
            name: value.to(kinds.get(name, torch.float64)).cpu().contiguous().numpy()
            for name, value in found.items()
        }


def _shown(first: Tensor, second: Tensor) -> Tensor:
    """The first pair of images, ``[1, 2, C, H, W]``, small enough to be shown in a strip."""
    pair = torch.cat([first[:1], second[:1]])
    side = max(pair.shape[-2:])
    if side > _STRIP_SIDE:
        sizes = [round(n * _STRIP_SIDE / side) for n in pair.shape[-2:]]
        pair = F.interpolate(pair, sizes, mode="area")
    return pair[None]


def strip(curves: Sequence[Curve]) -> Arrays:
    """Images of the first pair of the first class, by coupling and intervention."""
    shown = [curve for curve in curves if curve.label == curves[0].label]
    return {
        "images": np.stack([curve.images for curve in shown]),
        "g": np.asarray([curve.g for curve in shown]),
        "control": np.asarray([curve.control for curve in shown]),
        "steps": shown[0].steps,
    }
