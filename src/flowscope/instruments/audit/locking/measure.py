"""Measure how far a step moves the output, by the probability outside the top token."""

from __future__ import annotations

from flowscope.instruments.audit.locking import LOCKING
from flowscope.instruments.audit.locking.judge import judge_locking
from flowscope.instruments.audit.locking.tables import locking_of
from flowscope.instruments.audit.reading import depth_of, no_passing_segment, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention

__all__ = ["measure"]


def measure(bench: AuditBench) -> None:
    """Write the locking curve of the segments that passed the gate."""
    depth = depth_of(bench)
    if depth.reading.space != "output":
        raise Abstention(depth.reading.because)
    if not depth.passing:
        raise Abstention(no_passing_segment())
    locking = locking_of(
        depth.reading.depth, depth.passing, prompt_counts(bench), bench.config.seed
    )
    bench.put("locking", locking.table)
    bench.decide(
        judge_locking(
            locking.correlation,
            locking.null,
            claim=LOCKING,
            exceeded=locking.exceeded,
            steps=locking.steps,
            informative=locking.informative,
        )
    )
