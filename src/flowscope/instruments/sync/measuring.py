"""The stages of ``flowscope sync``: what each measures and which tables it writes."""

from __future__ import annotations

from flowscope.errors import UnsupportedModelError
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.mode_reading import ModeReading
from flowscope.instruments.sync.outcomes import Outcomes, strip
from flowscope.instruments.sync.propagation import Propagation
from flowscope.instruments.sync.subject import SyncSubject
from flowscope.instruments.sync.tables import (
    Times,
    agreement_table,
    commitment_table,
    commitment_times,
    effect_table,
    energy_table,
    gap_table,
    internal_gap_table,
)
from flowscope.lab.bench import Bench
from flowscope.lab.claim import Abstention
from flowscope.probes import Arrays
from flowscope.records import Unavailable

__all__ = ["commitment", "modes", "propagation"]

SyncBench = Bench[SyncSubject, SyncConfig]


def commitment(bench: SyncBench) -> None:
    """Couple replicas up to a step, let them go, and compare the images they end in."""
    config, subject = bench.config, bench.subject
    classes, counter = subject.denoiser.classes, bench.counter("images")
    outcomes = Outcomes(
        subject.denoiser,
        subject.encoder,
        config,
        bench.shards,
        counter.advance,
    )
    counter.total = max(1, outcomes.passes())
    curves = outcomes.curves()
    counter.finish()
    times = bench.once("times", lambda: commitment_times(curves, config))
    without = {}
    if isinstance(subject.encoder, Unavailable):
        without["feature"] = subject.encoder.reason
        bench.abstain("tau_spec", subject.encoder.reason)
    bench.put("agreement", agreement_table(curves, times, classes, config))
    bench.put("commitment", commitment_table(times, curves, classes, without))
    bench.put("commitment_gap", gap_table(times, curves, classes))
    bench.put("coupling_effect", effect_table(times, config, classes))
    bench.put_arrays("strip", strip(curves))


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
    bench.put("internal_gap", internal_gap_table(readings, steps, config))
    bench.put("energies", energy_table(readings, config))


def propagation(bench: SyncBench) -> None:
    """Differentiate every block at a few steps: how it multiplies a difference of replicas."""
    if not bench.config.propagation:
        raise Abstention("the measurement is switched off")
    readings: dict[float, Arrays] | None = bench.once("modes", lambda: None)
    if readings is None:  # the reason stands with the stage before
        return
    counter = bench.counter("blocks")
    response = Propagation(
        bench.subject.denoiser,
        bench.config,
        readings,
        bench.shards,
        counter.advance,
    )
    counter.total = max(1, response.work())
    tables = response.tables()
    counter.finish()
    if isinstance(tables, Unavailable):
        raise Abstention(tables.reason)
    for name, table in tables.items():
        bench.put(name, table)


def _reading_step(g: float, times: Times, config: SyncConfig) -> int:
    """The step of commitment under this coupling; else the control's; else the middle."""
    label = config.labels[0]
    for key in ((label, g, False, "feature"), (label, 0.0, True, "feature")):
        time = times.get(key)
        if time is not None and time.status == "ok":
            return min(max(round(time.midpoint), 1), config.steps - 1)
    return config.steps // 2
