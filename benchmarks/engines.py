"""How much faster two processes are than one, and what an engine costs.

    python -m benchmarks.engines [--rounds 3] [--ray] [--only-overhead]

The pass of an audit over 192 prompts (the part ``measuring``): by one process with one thread; by
two processes with one thread each; with ``--ray`` by two actors of a Ray on this machine, whose
start counts in ``seconds``. A worker starts while the driver measures already, so that a pass of
some seconds gains nothing. Each figure is the smallest of some rounds. They are times on the
clock, and mean something where no other process holds a core: the load is kept beside them.

What an engine costs one worker (claims, journal, and looking for shards before each is made) is
measured in one process, in turns with the same pass without an engine, by the time of the
processor, which a busy machine changes little. ``--only-overhead`` measures that alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from flowscope.instruments.audit import reading
from flowscope.lab import engine, registry
from flowscope.records import Run, Unavailable

AUDIT = [
    "audit", "--prompts", "192", "--tokens", "128", "--only", "exits", "--set", "batch=1",
    "--set", "resamples=10", "--set", "controls=false", "--set", "flow_positions=0",
]  # fmt: skip
SETTINGS = {
    "prompts": 16, "tokens": 64, "batch": 1, "resamples": 10, "controls": False,
    "flow_positions": 0,
}  # fmt: skip


def many_texts() -> list[str]:
    """The bundled prompts, and as many again with their sentences in other orders, twice."""
    prompts = files("flowscope") / "nets" / "prompts.jsonl"
    bundled = [json.loads(line)["text"] for line in prompts.read_text().splitlines()]
    turned = [" ".join(text.split()[k:] + text.split()[:k]) for k in (20, 40) for text in bundled]
    return bundled + turned


def measured(engine: str, workers: int, home: Path) -> dict[str, Any]:
    """Seconds of a run and of its parts."""
    texts = home / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in many_texts()))
    command = [sys.executable, "-m", "flowscope", *AUDIT, "--text", str(texts)]
    command += ["--json", "--out", str(home)]
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


def overhead(rounds: int) -> dict[str, Any]:
    """Time of the processor of one pass, with claims and without, in turns in this process."""
    torch.set_num_threads(1)
    audit, spent = registry.instrument("audit"), {"local": [], "claimed": []}
    passed, tap_pass = [0.0], reading.tap_pass

    def timed(*given: Any, **more: Any) -> Any:
        started = time.process_time()
        try:
            return tap_pass(*given, **more)
        finally:
            passed[0] += time.process_time() - started

    reading.tap_pass = timed
    config = audit.config.resolved(SETTINGS)
    for turn in range(rounds + 1):
        for kind, some in spent.items():
            with tempfile.TemporaryDirectory() as home:
                folder, passed[0] = Path(home) / "run", 0.0
                if kind == "claimed":
                    engine.planned(audit, config, folder=folder, only="exits")
                engine.run(audit, config, folder=folder, only="exits")
                if turn:  # the first one warms up
                    some.append(passed[0])
    reading.tap_pass = tap_pass
    ratios = [one / other for one, other in zip(spent["claimed"], spent["local"], strict=True)]
    return {
        "median": statistics.median(ratios) - 1,
        "from_smallest": min(spent["claimed"]) / min(spent["local"]) - 1,
        "shards": SETTINGS["prompts"],
        "processor_seconds": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--only-overhead", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engines.json"))
    given = parser.parse_args()
    result = json.loads(given.out.read_text()) if given.out.is_file() else {}
    result["overhead_at_one_worker"] = overhead(3 * given.rounds)
    if not given.only_overhead:
        result |= clocked(given.rounds, ray=given.ray)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rounds"}, indent=1))


def clocked(count: int, *, ray: bool) -> dict[str, Any]:
    """Times on the clock, of one process and of two."""
    kinds = [("local", 1), ("processes", 2)] + ([("ray", 2)] * ray)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in kinds}
    loads = []
    for _ in range(count):
        for name, workers in kinds:
            loads.append(os.getloadavg()[0])
            with tempfile.TemporaryDirectory() as home:
                rounds[name].append(measured(name, workers, Path(home)))
    best = {
        kind: {
            part: min(found[part] for found in some)
            for part in ("seconds", "processor_seconds", "measuring")
        }
        for kind, some in rounds.items()
    }
    alone = best["local"]
    faster = {
        kind: alone["measuring"] / found["measuring"]
        for kind, found in best.items()
        if kind != "local"
    }
    beyond = {"ray_beyond_local": best["ray"]["seconds"] - alone["seconds"]} if ray else {}
    return {
        "best": best,
        "two_are_faster_by": faster,
        **beyond,
        "load": {"least": min(loads), "most": max(loads), "cores": os.cpu_count()},
        "rounds": rounds,
    }


if __name__ == "__main__":
    main()
