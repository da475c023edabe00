"""How near the doctor's estimate of the measuring pass is to what an audit takes.

The doctor estimates the pass of an audit over 64 prompts of 128 tokens; an audit of fewer prompts
is run beside it in the same process, and its pass is scaled to as many prompts. Both count the
processor seconds of one thread, because another process may share the machine.

    OMP_NUM_THREADS=1 python -m benchmarks.estimate_time
    OMP_NUM_THREADS=1 python -m benchmarks.estimate_time MODEL --name stories260K --prompts 8
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import flowscope as fs
from benchmarks.machine import described
from flowscope.lab.running.clock import StageClock
from flowscope.models.reading import cost
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

RESULTS = Path(__file__).parent / "results" / "estimate_time.json"
LESS = {
    "flow_positions": 0,
    "evi_positions": 0,
    "temperatures": (),
    "key_norms": (),
    "controls": False,
}
CLOCK = SimpleNamespace(perf_counter=time.process_time)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=str(bundled_path()))
    parser.add_argument("--name", default="bundled")
    parser.add_argument("--prompts", type=int, default=16)
    options = parser.parse_args()
    loaded = fs.load(options.model)
    with mock.patch.object(cost, "time", CLOCK):
        estimate = fs.doctor(loaded).estimate
        if isinstance(estimate, Unavailable):
            raise SystemExit(f"{options.model} has no estimate: {estimate.reason}")
        start = mock.patch.object(StageClock.__init__, "__defaults__", (time.process_time,))
        with tempfile.TemporaryDirectory() as folder, start:
            run = fs.audit(loaded, out=f"{folder}/run", prompts=options.prompts, **LESS)
            measuring = run.stages["measuring"]["seconds"]
        again = fs.doctor(loaded).estimate
    assert not isinstance(again, Unavailable)
    parts = ("forward", "outputs", "attention", "compared")
    said = [sum(getattr(one, part) for part in parts) for one in (estimate, again)]
    taken = measuring * estimate.prompts / options.prompts
    row = {
        "estimated": [round(seconds, 1) for seconds in said],
        "parts": {part: round(getattr(estimate, part), 1) for part in parts},
        "taken": round(taken, 1),
        "prompts_run": options.prompts,
        "ratio": round(sum(said) / 2 / taken, 2),
        "machine": described(),
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    kept[options.name] = row
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(options.name, row)


if __name__ == "__main__":
    main()
