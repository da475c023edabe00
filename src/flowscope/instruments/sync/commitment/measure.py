"""Couple replicas up to a step, let them go, and compare the images they end in."""

from __future__ import annotations

from flowscope.instruments.sync.commitment.control import order_arrays
from flowscope.instruments.sync.commitment.order_rule import Order, order_table
from flowscope.instruments.sync.commitment.outcomes import Outcomes, strip
from flowscope.instruments.sync.commitment.tables import (
    agreement_table,
    commitment_table,
    commitment_times,
    effect_table,
    gap_table,
    named_order,
)
from flowscope.instruments.sync.subject import SyncBench
from flowscope.records import Unavailable

__all__ = ["commitment"]


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
    for label in config.labels:
        outcomes.finals(label)
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
    arrays, because = order_arrays(outcomes, subject.denoiser, curves, config)
    if because:
        bench.abstain("gaussian_control", because)
    bench.put_arrays("commitment_order", arrays)
    order = Order(arrays=arrays, seed=config.seed)
    bench.put("commitment_order", named_order(order_table(order, because), classes))
    bench.put_arrays("strip", strip(curves))
