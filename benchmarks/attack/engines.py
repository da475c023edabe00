"""Kill drivers and workers at random moments and compare the tables with those of one process.

    python -m benchmarks.attack.engines [--kills 12] [--engines processes,ray] [--trials 100]
                                        [--instruments audit,heads,field,latent,sync,image]

First the protocol alone, on an instrument whose shards take milliseconds: a driver and two workers
of one run, one to three of which are killed within 80 ms; then the run is finished.

Then the engines. A small audit (a longer one for Ray) is measured by one process; per engine and
kill, it begins in a new folder with two workers; after a random time its driver or its worker gets
SIGKILL, in turn. A command whose driver was killed is called again. Counted are tables that differ
from those of one process, shards that were made twice, and commands that did not end well. Linux
only: who works is read from /proc.

Last the instruments: a small run of each by one process; by two jobs of ``flowscope work`` at the
same time and a driver that finds all they left; by each engine with two workers. Tables are
compared byte by byte. All has one thread per process.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.instruments.tiny import tiny_options
from tests.lab.engines import crowd
from tests.lab.engines.crowd import CROWD

from flowscope.lab import engine, registry
from flowscope.lab.engines.choice import Share
from flowscope.lab.engines.working import work
from flowscope.records import Run, Unavailable

OUT = Path(__file__).parent.parent / "results" / "attack_engines.json"
AUDIT = [
    "audit", "--prompts", "40", "--tokens", "16", "--only", "P2", "--set", "batch=1",
    "--set", "resamples=10", "--set", "control_prompts=1", "--set", "controls=false",
    "--set", "flow_positions=2", "--set", "flow_close=1", "--set", "evi_positions=0",
]  # fmt: skip
# An actor of Ray needs some seconds to begin: the driver must not have made everything by then.
LONGER = ["60" if word == "40" else "128" if word == "16" else word for word in AUDIT]
AUDITS = {"processes": AUDIT, "ray": LONGER}
WORKS = ("flowscope.lab.engines.working", "ray::_Worker")


def command(out: Path, name: str, options: list[str] = AUDIT) -> list[str]:
    more = [] if name in ("local", "work") else ["--engine", name, "--workers", "2"]
    return [sys.executable, "-m", "flowscope", *options, *more, "--json", "--out", str(out)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}


def finished(out: Path, name: str, options: list[str] = AUDIT) -> Path | None:
    """Run folder of the command; None where it did not end well."""
    done = subprocess.run(
        command(out, name, options), env=environment(), capture_output=True, text=True, check=False
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


def killed(
    out: Path, name: str, victim: str, longest: float, draw: random.Random
) -> tuple[str, int]:
    """Begin a run and kill one of its processes: which one, and how many shards there were.

    The moment is drawn from the time in which shards are made: for a driver it begins with the
    plan, for a worker when there is one. The word is empty where the process had ended before.
    """
    process = subprocess.Popen(
        command(out, name, AUDITS[name]), env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def there() -> bool:
        planned = bool(list(out.glob("*/workers/plan.json")))
        return planned and (victim == "driver" or worker_of(process.pid) is not None)

    while not there() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(draw.uniform(0, longest))
    pid = process.pid if victim == "driver" else worker_of(process.pid)
    shards = len(list(out.glob("*/shards/[!.]*")))
    if pid is None or process.poll() is not None:
        process.wait()
        return "", shards
    os.kill(pid, signal.SIGKILL)
    process.wait()
    return victim, shards


def trials(
    name: str, kills: int, longest: float, expected: dict[str, bytes], draw: random.Random
) -> Iterator[dict[str, Any]]:
    """Counts after each kill, so that what was counted is kept when it is interrupted."""
    counts: dict[str, Any] = {"kills": {"driver": 0, "worker": 0}, "shards_there": []}
    counts |= {"too_late": 0, "differences": 0, "made_twice": 0, "not_finished": 0}
    with tempfile.TemporaryDirectory() as home:
        while sum(counts["kills"].values()) < kills and counts["too_late"] < 2 * kills:
            number = sum(counts["kills"].values())
            out = Path(home) / f"{name}-{number}-{counts['too_late']}"
            victim = ("driver", "worker")[number % 2]
            what, shards = killed(out, name, victim, longest, draw)
            run = finished(out, name, AUDITS[name])
            if what:
                counts["kills"][what] += 1
                counts["shards_there"].append(shards)
            else:
                counts["too_late"] += 1
            if run is None:
                counts["not_finished"] += 1
                continue
            counts["differences"] += tables(run) != expected
            work = Run.open(run).read_manifest().work
            counts["made_twice"] += 0 if isinstance(work, Unavailable) else len(work["made_twice"])
            print(name, number, what, counts, flush=True)
            yield {**counts, "tables": len(expected)}


def by_jobs(out: Path, options: list[str]) -> Path | None:
    """Run folder of two jobs at the same time and of the command that finishes it."""
    program = [sys.executable, "-m", "flowscope"]
    planned = subprocess.run(
        [*program, *options, "--plan", "--json", "--out", str(out)], env=environment(),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    run = json.loads(planned.stdout)["run"]
    jobs = [
        subprocess.Popen(
            [*program, "work", run, "--share", f"{part}/2"],
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for part in (1, 2)
    ]
    if any(job.wait() for job in jobs):
        return None
    return finished(Path(run), "local", options[:1])


def instruments(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compare the tables of each instrument over engines; results after each instrument."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        for name in names:
            options = [name, *tiny_options(name, Path(home))]
            alone = finished(Path(home) / f"{name}-local", "local", options)
            assert alone is not None
            expected = tables(alone)
            results[name] = {"tables": len(expected)}
            for how in ("work", "processes", "ray"):
                out = Path(home) / f"{name}-{how}"
                run = by_jobs(out, options) if how == "work" else finished(out, how, options)
                if run is None:
                    results[name][how] = {"not_finished": 1}
                    continue
                work, found = Run.open(run).read_manifest().work, tables(run)
                names_of = expected.keys() | found.keys()
                results[name][how] = {
                    "differences": sorted(n for n in names_of if expected.get(n) != found.get(n)),
                    "shards": work["shards"], "made_twice": len(work["made_twice"]),
                    "made_by": sorted(work["made_by"].values()),
                }  # fmt: skip
            print(name, results[name], flush=True)
            yield results


def child(job: Callable[[], object]) -> int:
    """Process that does a job and ends."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        job()
        code = 0
    finally:
        os._exit(code)


def protocol(count: int, draw: random.Random) -> dict[str, int]:
    """Kill a driver and two workers of a run of milliseconds; count what is wrong afterwards."""
    registry.instrument = lambda name: CROWD
    config = CROWD.config.resolved({"pieces": 12})
    made, crowd.drawn = crowd.drawn, lambda *given: time.sleep(0.004) or made(*given)
    counts = {"trials": 0, "kills": 0, "differences": 0, "made_twice": 0, "other_ends": 0}
    with tempfile.TemporaryDirectory() as home:
        expected = tables(engine.run(CROWD, config, folder=Path(home) / "whole").run.folder)
        for number in range(count):
            run = engine.planned(CROWD, config, folder=Path(home) / f"run-{number}")
            jobs = [
                lambda run=run: engine.run(CROWD, config, folder=run),
                lambda run=run: work(run, Share(1, 2)),
                lambda run=run: work(run, Share(2, 2)),
            ]
            victims = draw.sample(range(3), draw.choice([1, 2, 3]))
            pids = [child(job) for job in jobs]
            for victim in victims:
                time.sleep(draw.uniform(0, 0.08))
                os.kill(pids[victim], signal.SIGKILL)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            finished = engine.run(CROWD, config, folder=run).run
            counts["trials"] += 1
            counts["kills"] += len(victims)
            counts["differences"] += tables(run) != expected
            counts["made_twice"] += len(finished.read_manifest().work["made_twice"])
            counts["other_ends"] += sum(
                code != 0 for place, code in enumerate(codes) if place not in victims
            )
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--engines", default="processes,ray")
    parser.add_argument("--instruments", default="audit,heads,field,latent,sync,image")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    out = given.out
    results = json.loads(out.read_text()) if out.is_file() else {}
    if given.trials:
        results["protocol"] = protocol(given.trials, draw)
        print("protocol", results["protocol"], flush=True)
        out.write_text(json.dumps(results, indent=1) + "\n")
    if given.instruments:
        for found in instruments(given.instruments.split(",")):
            results["instruments"] = results.get("instruments", {}) | found
            out.write_text(json.dumps(results, indent=1) + "\n")
    if not given.engines:
        return
    for name in given.engines.split(","):
        with tempfile.TemporaryDirectory() as home:
            started = time.monotonic()
            alone = finished(Path(home), "local", AUDITS[name])
            longest = (time.monotonic() - started) / 4  # most of a run is its start
            assert alone is not None
            expected = tables(alone)
            for counts in trials(name, given.kills, longest, expected, draw):
                out.write_text(json.dumps(results | {name: counts}, indent=1) + "\n")
                results[name] = counts


if __name__ == "__main__":
    main()
