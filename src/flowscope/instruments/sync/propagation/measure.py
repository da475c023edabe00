"""Differentiate every block at a few steps."""

from __future__ import annotations

from flowscope.instruments.sync.propagation.response import Propagation
from flowscope.instruments.sync.subject import SyncBench
from flowscope.lab.claim import Abstention
from flowscope.probes import Arrays
from flowscope.records import Unavailable

__all__ = ["propagation"]


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
