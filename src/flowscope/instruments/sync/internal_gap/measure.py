"""Keep replicas coupled to the end and measure which modes of their difference survive."""

from __future__ import annotations

from dataclasses import replace

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.instruments.sync.commitment.tables import Times
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.mode_reading import ModeReading
from flowscope.instruments.sync.internal_gap.tables import (
    energy_table,
    gap_arrays,
    internal_gap_table,
)
from flowscope.instruments.sync.internal_gap.twins import twin_arrays, twin_table
from flowscope.instruments.sync.subject import SyncBench
from flowscope.lab.claim import Abstention
from flowscope.models.twin import shuffled_twin
from flowscope.probes import Arrays
from flowscope.records import Unavailable

__all__ = ["modes"]


def modes(bench: SyncBench) -> None:
    """Keep replicas coupled to the end and measure which modes of their difference survive."""
    config, times = bench.config, bench.shared("times")
    couplings = (0.0, *(g for g in config.couplings if g))
    steps = {g: _reading_step(g, times, config) for g in couplings}
    counter = bench.counter("modes", len(couplings) * config.steps)
    reading = ModeReading(bench.subject.denoiser, config, bench.shards, counter.advance)
    try:
        readings = {g: reading.read(g, [steps[g]]) for g in couplings}
    except UnsupportedModelError as error:
        raise Abstention(str(error)) from error
    counter.finish()
    bench.once("modes", lambda: readings)
    twins, because = _twins(bench, steps[0.0])
    bench.put("internal_gap", internal_gap_table(readings, steps, config))
    arrays = gap_arrays(readings[0.0], steps[0.0], config)
    shuffled = [gap_arrays(twin, steps[0.0], config) for twin in twins]
    bench.put_arrays("internal_gap", arrays | twin_arrays(arrays, shuffled))
    bench.put("internal_gap_twins", twin_table(arrays, shuffled, because))
    bench.put("energies", energy_table(readings, config))


def _twins(bench: SyncBench, step: int) -> tuple[list[Arrays], str]:
    """Readings of networks with the model's weights in random order, or why there are none."""
    config, denoiser = bench.config, bench.subject.denoiser
    counter = bench.counter("shuffled twins", config.twins * (step + 1))
    readings = []
    for number in range(config.twins):
        twin = shuffled_twin(denoiser.loaded.model, config.seed + number)
        if isinstance(twin, Unavailable):
            return [], twin.reason
        other = replace(denoiser, loaded=replace(denoiser.loaded, model=twin))
        reading = ModeReading(other, config, bench.shards, counter.advance)
        try:
            readings.append(reading.read_at(step, f"twin{number}"))
        except InvalidInputError as error:
            return [], str(error).rstrip(".")
    counter.finish()
    return readings, ""


def _reading_step(g: float, times: Times, config: SyncConfig) -> int:
    """The step of commitment under this coupling; else the control's; else the middle."""
    label = config.labels[0]
    for key in ((label, g, False, "feature"), (label, 0.0, True, "feature")):
        time = times.get(key)
        if time is not None and time.status == "ok":
            return min(max(round(time.midpoint), 1), config.steps - 1)
    return config.steps // 2
