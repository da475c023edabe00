"""How much faster two processes are than one, and what an engine costs.

    python -m benchmarks.engines [--ray] [--out benchmarks/results/engines.json]

The pass of an audit over its prompts (the part ``measuring``) by one process with one thread, by
``processes`` with one worker, and by two workers with one thread each. Beside the time on the clock
stands the time of the processor, which a busy machine changes little, and the load of the machine.
Each figure is the smallest of three rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flowscope.records import Run, Unavailable

AUDIT = [
    "audit", "--prompts", "48", "--tokens", "64", "--only", "exits", "--set", "batch=1",
    "--set", "resamples=10", "--set", "controls=false", "--set", "flow_positions=0",
]  # fmt: skip


def measured(engine: str, workers: int, home: Path) -> dict[str, Any]:
    """Seconds of a run and of its parts."""
    command = [sys.executable, "-m", "flowscope", *AUDIT, "--json", "--out", str(home)]
    command += ["--engine", engine, "--workers", str(workers)] if engine != "local" else []
    before, started = os.times(), time.monotonic()
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr + done.stdout
    after = os.times()
    run = Run.open(json.loads(done.stdout)["run"])
    manifest = run.read_manifest()
    work = {} if isinstance(manifest.work, Unavailable) else manifest.work
    stages = {} if isinstance(manifest.stages, Unavailable) else manifest.stages
    return {
        "seconds": time.monotonic() - started,
        "processor_seconds": after.children_user + after.children_system
        - before.children_user - before.children_system,
        "measuring": stages["measuring"]["seconds"],
        "shard_seconds": work.get("shard_seconds"),
        "serial_share": work.get("serial_share"),
        "made_by": sorted(dict(work.get("made_by", {})).values()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engines.json"))
    given = parser.parse_args()
    kinds = [("local", 1), ("processes", 1), ("processes", 2)] + ([("ray", 2)] * given.ray)
    rounds: dict[str, list[dict[str, Any]]] = {f"{name} {count}": [] for name, count in kinds}
    loads = []
    for _ in range(given.rounds):
        for name, count in kinds:
            loads.append(os.getloadavg()[0])
            with tempfile.TemporaryDirectory() as home:
                rounds[f"{name} {count}"].append(measured(name, count, Path(home)))
    best = {
        kind: {
            part: min(found[part] for found in some)
            for part in ("seconds", "processor_seconds", "measuring")
        }
        for kind, some in rounds.items()
    }
    alone, one, two = (best[f"{name} {count}"] for name, count in kinds[:3])
    result = {
        "best": best,
        "two_processes_are_faster_by": alone["measuring"] / two["measuring"],
        "overhead_at_one_worker": one["measuring"] / alone["measuring"] - 1,
        "processor_overhead_at_one_worker": one["processor_seconds"] / alone["processor_seconds"]
        - 1,
        "load": {"least": min(loads), "most": max(loads), "cores": os.cpu_count()},
        "rounds": rounds,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rounds"}, indent=1))


if __name__ == "__main__":
    main()
