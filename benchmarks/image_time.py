"""Where the time of ``flowscope image`` goes when it is given no arguments.

    python -m benchmarks.image_time

The result, with the peak of resident memory, is kept in ``results/image_time.json``.
"""

import json
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.audit_time import Stages
from benchmarks.machine import described
from flowscope.runs import ImageConfig, image_of

RESULTS = Path(__file__).parent / "results" / "image_time.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stages, start = Stages(), time.perf_counter()
        config = ImageConfig.resolved({"out": folder})
        found = image_of(config, stages)
        stages("report", 0, 1)
        found.report()
        stages.end()
        total = time.perf_counter() - start
    entry = {
        "images": config.images,
        "steps": config.steps,
        "doubling": config.doubling,
        "seconds": round(total, 1),
        "stages": {stage: round(s, 1) for stage, s in stages.seconds.items()},
        "peak_resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "machine": described(),
    }
    RESULTS.write_text(json.dumps(entry, indent=2) + "\n")
    print(f"{total:.0f} s, {entry['peak_resident_mb']} MB")
    for stage, seconds in entry["stages"].items():
        print(f"  {stage:<14} {seconds:7.1f} s  {seconds / total:5.0%}")


if __name__ == "__main__":
    main()
