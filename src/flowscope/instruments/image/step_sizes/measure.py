"""Sample every member of the family at every number of steps."""

from __future__ import annotations

from flowscope.instruments.image.runs import family_of
from flowscope.instruments.image.step_sizes.tables import family_table, weak_error_tables
from flowscope.instruments.image.subject import ImageBench
from flowscope.records import Unavailable

__all__ = ["family"]


def family(bench: ImageBench) -> None:
    """Sample every member of the family at every number of steps."""
    config, runs = bench.config, family_of(bench)
    points, slopes = weak_error_tables(runs, config)
    bench.put("weak_error", points)
    bench.put("weak_error_slope", slopes)
    bench.put("family", family_table(runs, config))
    if isinstance(bench.subject.reader, Unavailable):
        bench.abstain("accuracy", bench.subject.reader.reason)
