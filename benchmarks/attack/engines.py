"""Kill drivers and workers at random moments and compare the tables with those of one process.

    python -m benchmarks.attack.engines [--kills 12] [--engines processes,ray]

A small audit is measured by one process. Then, per engine and kill, the same audit begins in a new
folder with two workers; after a random time its driver or its worker gets SIGKILL, in turn. A
command whose driver was killed is called again. Counted are tables that differ from those of one
process, shards that were made twice, and commands that did not end well. Linux only: who works is
read from /proc.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flowscope.records import Run, Unavailable

OUT = Path(__file__).parent.parent / "results" / "attack_engines.json"
AUDIT = [
    "audit", "--prompts", "8", "--tokens", "16", "--only", "P2", "--set", "batch=1",
    "--set", "resamples=10", "--set", "control_prompts=1", "--set", "controls=false",
    "--set", "flow_positions=2", "--set", "flow_close=1", "--set", "evi_positions=0",
]  # fmt: skip
WORKS = ("flowscope.lab.engines.working", "ray::_Worker")


def command(out: Path, engine: str) -> list[str]:
    more = [] if engine == "local" else ["--engine", engine, "--workers", "2"]
    return [sys.executable, "-m", "flowscope", *AUDIT, *more, "--json", "--out", str(out)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}


def finished(out: Path, engine: str) -> Path | None:
    """Run folder of the command; None where it did not end well."""
    done = subprocess.run(
        command(out, engine), env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):
        print(done.stdout, done.stderr[-600:])
        return None
    return Path(json.loads(done.stdout)["run"])


def tables(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "tables").glob("*.csv"))}


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that these have started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, pending = [], [pid]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found


def worker_of(pid: int) -> int | None:
    for below in descendants(pid):
        try:
            words = Path(f"/proc/{below}/cmdline").read_text(errors="replace")
        except OSError:
            continue
        if any(name in words for name in WORKS):
            return below
    return None


def killed(out: Path, engine: str, victim: str, longest: float, draw: random.Random) -> str:
    """Begin a run and kill one of its processes; which one, in words."""
    process = subprocess.Popen(
        command(out, engine), env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    # Most moments lie where shards are made: after the plan is there.
    deadline = time.monotonic() + 300
    while not list(out.glob("*/workers/plan.json")) and process.poll() is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    time.sleep(draw.uniform(0, longest))
    pid = process.pid if victim == "driver" else worker_of(process.pid)
    if pid is None or process.poll() is not None:
        process.wait()
        return f"{victim}: it had ended" if victim == "driver" else "worker: there was none yet"
    os.kill(pid, signal.SIGKILL)
    process.wait()
    return victim


def trials(engine: str, kills: int, expected: dict[str, bytes], draw: random.Random) -> dict:
    counts = {"kills": 0, "killed": {}, "differences": 0, "made_twice": 0, "not_finished": 0}
    with tempfile.TemporaryDirectory() as home:
        for number in range(kills):
            out = Path(home) / f"{engine}-{number}"
            victim = ("driver", "worker")[number % 2]
            what = killed(out, engine, victim, 12.0, draw)
            run = finished(out, engine)
            counts["kills"] += 1
            counts["killed"][what] = counts["killed"].get(what, 0) + 1
            if run is None:
                counts["not_finished"] += 1
                continue
            counts["differences"] += tables(run) != expected
            work = Run.open(run).read_manifest().work
            counts["made_twice"] += 0 if isinstance(work, Unavailable) else len(work["made_twice"])
            print(engine, number, what, counts, flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--engines", default="processes,ray")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as home:
        alone = finished(Path(home), "local")
        assert alone is not None
        expected = tables(alone)
        results = json.loads(OUT.read_text()) if OUT.is_file() else {}
        for engine in given.engines.split(","):
            results[engine] = trials(engine, given.kills, expected, draw)
            results[engine]["tables"] = len(expected)
            OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
