"""Where the time of ``flowscope sync`` goes when it is given no arguments.

    python -m benchmarks.sync_time

The result, with the peak of resident memory, is kept in ``results/sync_time.json``. Where other
programs share the machine, its processor seconds count.
"""

import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.audit_time import Stages
from benchmarks.machine import described
from flowscope.lab import engine, registry

RESULTS = Path(__file__).parent / "results"


def timed(command: str, sizes: Sequence[str]) -> None:
    """Run a command as if it had no arguments, write its report, keep where the time went."""
    with tempfile.TemporaryDirectory() as folder:
        stages, start, processor = Stages(), time.perf_counter(), time.process_time()
        instrument = registry.instrument(command)
        settings = instrument.config.resolved({"out": folder})
        found = engine.run(instrument, settings, progress=stages)
        stages("report", 0, 1)
        found.report()
        stages.end()
        total = time.perf_counter() - start
        processor = time.process_time() - processor
    entry = {
        **{name: getattr(settings, name) for name in sizes},
        "seconds": round(total, 1),
        "processor_seconds": round(processor, 1),
        "stages": {stage: round(s, 1) for stage, s in stages.seconds.items()},
        "peak_resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "machine": described(),
    }
    (RESULTS / f"{command}_time.json").write_text(json.dumps(entry, indent=2) + "\n")
    print(f"{total:.0f} s ({processor:.0f} of the processor), {entry['peak_resident_mb']} MB")
    for stage, seconds in entry["stages"].items():
        print(f"  {stage:<14} {seconds:7.1f} s  {seconds / total:5.0%}")


if __name__ == "__main__":
    timed("sync", ("pairs", "steps", "couplings"))
