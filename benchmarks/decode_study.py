"""What the default study of Track D takes: time, passes, sequences and seconds of every policy.

``OMP_NUM_THREADS=1 python -m benchmarks.decode_study OUT`` runs
``flowscope reproduce track_d`` in the folder OUT and writes
``benchmarks/results/decode_study.json``. Seconds of the processor do not count other programs;
seconds of the policies are on the wall.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import flowscope

PLACE = Path(__file__).parent / "results" / "decode_study.json"
KEYS = ("name", "kind", "threshold", "passes", "rows", "saved", "seconds", "reference_seconds",
        "same", "same_interval", "certified", "n")  # fmt: skip


def main() -> None:
    """Run the study and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    wall, processor = time.perf_counter(), time.process_time()
    document = flowscope.reproduce("track_d", out=str(out), progress=False).result.to_json()
    found = {
        "machine": {"threads": torch.get_num_threads(), "torch": torch.__version__},
        "wall_seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "policies": [{key: row[key] for key in KEYS} for row in document["policies"]],
    }
    PLACE.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    sys.stdout.write(f"{found['processor_seconds']:.0f} s of the processor\n")


if __name__ == "__main__":
    main()
