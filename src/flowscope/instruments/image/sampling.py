"""Samplers that march side by side: several members of the family, on grids that share times.

All tracks of a batch start from the same noise. At every time the states of all tracks that step
there go through the model in one batch; noise is drawn on the finest grid and merged for coarser
ones, so that a track of K steps and one of 2K see one Brownian path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.variance_preserving import (
    MergedNoise,
    Prediction,
    euler_step,
    family_step,
    nested_times,
    unit_clock,
)
from flowscope.instruments.image.models import ImageModel

__all__ = ["HalvedNoise", "Stepped", "Track", "marched", "track_times"]


@dataclass(frozen=True, kw_only=True)
class Track:
    """One sampler: a member of the family, its steps, and which stream of noise it sees."""

    lam: float
    steps: int
    stream: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Stepped:
    """One step that a track has made.

    Attributes
    ----------
    track
        Its place among the tracks.
    done
        Steps done, this one counted.
    time
        The model's time after it.
    before, prediction, after
        States before the step, what the model said of them, and states after it.
    """

    track: int
    done: int
    time: int
    before: Float[Tensor, "n c h w"]
    prediction: Prediction
    after: Float[Tensor, "n c h w"]


def track_times(model: ImageModel, steps: int, last: int | None = None) -> list[int]:
    """Times of a track from its start to the image; from the last time by default."""
    return nested_times(len(model.levels) - 1 if last is None else last, steps)


@torch.no_grad()
def marched(
    model: ImageModel,
    tracks: Sequence[Track],
    start: Float[Tensor, "n c h w"],
    labels: Int[Tensor, "n"] | None,
    generators: Sequence[torch.Generator | HalvedNoise],
    *,
    integrator: Literal["ddim", "euler"] = "ddim",
    last: int | None = None,
) -> Iterator[Stepped]:
    """Every step of every track, in the order of time.

    Parameters
    ----------
    model, tracks
        What is sampled, and how; the numbers of steps divide the largest of them.
    start, labels
        States at the start, the same for all tracks, and their classes.
    generators
        One for each stream of noise that a track names, or noise that refines a coarser run.
    integrator
        How a step is made.
    last
        Time of the start; the last of the model by default.

    Raises
    ------
    InvalidInputError
        When the steps do not nest, or a state is not finite.
    """
    finest = max(track.steps for track in tracks)
    wrong = [track.steps for track in tracks if finest % track.steps]
    if wrong:
        raise InvalidInputError(
            f"Numbers of steps must divide the largest, {finest}; {wrong[0]} does not."
        )
    times = track_times(model, finest, last)
    clock = [unit_clock(model.levels[time]) for time in times]
    noise = {i: MergedNoise(clock) for i, track in enumerate(tracks) if track.lam}
    streams = sorted({tracks[i].stream for i in noise})
    states = [start] * len(tracks)
    step = family_step if integrator == "ddim" else euler_step
    told: dict[int, Prediction] = {}
    for place in range(finest):
        leaving = [i for i, t in enumerate(tracks) if place % (finest // t.steps) == 0]
        told |= _predicted(model, [(i, states[i]) for i in leaving], times[place], labels)
        drawn = {s: _drawn(generators[s], start, clock, place) for s in streams}
        for i, merged in noise.items():
            merged.add(place, drawn[tracks[i].stream])
        for i, track in enumerate(tracks):
            stride = finest // track.steps
            if (place + 1) % stride:
                continue
            now, then = (model.levels[times[p]] for p in (place + 1 - stride, place + 1))
            merged_noise = noise[i].taken() if i in noise else None
            after = step(states[i], told[i], now, then, track.lam, merged_noise)
            done = (place + 1) // stride
            _refuse_broken(after, track, done)
            yield Stepped(
                track=i,
                done=done,
                time=times[place + 1],
                before=states[i],
                prediction=told[i],
                after=after,
            )
            states[i] = after
            del told[i]


class HalvedNoise:
    r"""Noise of steps of half the length whose sums over pairs are those of a coarser run.

    With $Z$ the unit noise of the coarse step, $Y$ another one and $a^2 + b^2 = 1$ the shares of
    the two halves in its time, the halves see $aZ + bY$ and $bZ - aY$, which are independent and
    merge to $Z$ again.

    Parameters
    ----------
    coarse
        Generator in the state in which the coarse run began.
    other
        Source of what the coarse run did not draw.
    """

    def __init__(self, coarse: torch.Generator, other: torch.Generator) -> None:
        self._coarse, self._other = coarse, other
        self._second: Tensor | None = None

    def drawn(self, start: Tensor, clock: Sequence[float], place: int) -> Tensor:
        """Unit noise of the fine step number ``place``."""
        if self._second is not None:
            second, self._second = self._second, None
            return second
        Z, Y = (
            torch.randn(start.shape, generator=g, dtype=start.dtype)
            for g in (self._coarse, self._other)
        )
        whole = clock[place] - clock[place + 2]
        a, b = (((clock[k] - clock[k + 1]) / whole) ** 0.5 for k in (place, place + 1))
        self._second = b * Z - a * Y
        first: Tensor = a * Z + b * Y
        return first


def _drawn(
    source: torch.Generator | HalvedNoise, start: Tensor, clock: Sequence[float], place: int
) -> Tensor:
    if isinstance(source, HalvedNoise):
        return source.drawn(start, clock, place).to(start.device)
    return torch.randn(start.shape, generator=source, dtype=start.dtype).to(start.device)


def _predicted(
    model: ImageModel, leaving: Sequence[tuple[int, Tensor]], time: int, labels: Tensor | None
) -> dict[int, Prediction]:
    """Predictions of several tracks at one time, from one batch."""
    if not leaving:
        return {}
    asked = None if labels is None else labels.repeat(len(leaving))
    found = model.predicted(torch.cat([x for _, x in leaving]), time, asked)
    if len(leaving) == 1:
        return {leaving[0][0]: found}
    # Own memory each: a coarse track would else keep the predictions of all others alive.
    clean, noise = (
        [part.clone() for part in x.chunk(len(leaving))] for x in (found.clean, found.noise)
    )
    return {i: Prediction(clean=clean[k], noise=noise[k]) for k, (i, _) in enumerate(leaving)}


def _refuse_broken(x: Tensor, track: Track, done: int) -> None:
    if x.is_cuda and done % 10 and done != track.steps:  # a look at a device waits for it
        return
    if bool(torch.isfinite(x).all()):
        return
    row = int((~torch.isfinite(x).flatten(1).all(1)).nonzero()[0])
    raise InvalidInputError(
        f"Image {row} of a batch is NaN or infinite after step {done} of {track.steps} (λ = "
        f"{track.lam:g}). Use a wider dtype (--dtype float32), less guidance, or check that the "
        "schedule is the model's own."
    )
