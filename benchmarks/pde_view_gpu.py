"""Run the study ``pde_view`` in parts side by side, then as a whole from the shards of the parts.

A part is one task and one seed, a process of its own; networks of this size do not fill a GPU. The
whole study then runs in the same folder, takes every shard from the runs of the parts, and makes
what needs several seeds. All of it can be killed: the same command goes on from the shards.

    python -m benchmarks.pde_view_gpu --config studies/pde_view_full.yaml --device cuda \
        --text carry/pde_view/newsgroups.jsonl.gz --set mnist=carry/pde_view --out out/pde_view

Prints the time of each part, and packs the tables and reports of all runs with ``--pack``, also
when it is cut off by SIGTERM.
"""

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import yaml


def _command(given, *more):
    settings = [part for one in (*given.set, *more) for part in ("--set", one)]
    text = ["--text", given.text] if given.text else []
    return [
        sys.executable, "-m", "flowscope.cli", "reproduce", "pde_view", "--config", given.config,
        "--device", given.device, "--out", given.out, *text, *settings,
    ]  # fmt: skip


def _parts(given):
    """Settings of each part; the first one has the learning rates too."""
    config = yaml.safe_load(Path(given.config).read_text())
    chosen = dict(one.split("=", 1) for one in given.set)
    tasks, seeds = (
        yaml.safe_load(chosen[name]) if name in chosen else config[name]
        for name in ("tasks", "seeds")
    )
    for seed in seeds:
        for task in tasks:
            only = [f"tasks=[{task}]", f"seeds=[{seed}]", "rivals=false"]
            first = (task, seed) == (tasks[0], seeds[0])
            yield f"{task}-{seed}", only + ([] if first else ["rate_steps=0"])


def main():
    """Run the parts, then the whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--text")
    parser.add_argument("--out", default="out/pde_view")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=9, help="parts at a time")
    parser.add_argument("--pack", help="tar.gz of the tables and the report")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cut off: pack what there is
    begun = time.monotonic()
    try:
        _run_parts(given)
        start = time.monotonic()
        whole = subprocess.run(_command(given), capture_output=True, text=True, check=False)
        print(whole.stdout, whole.stderr[-3000:], sep="\n", flush=True)
        print(f"whole: code {whole.returncode}, {time.monotonic() - start:.0f} s", flush=True)
        return whole.returncode
    finally:
        print(f"all: {time.monotonic() - begun:.0f} s", flush=True)
        if given.pack:
            _pack(Path(given.out), Path(given.pack))


def _run_parts(given):
    """Run the parts, some at a time, and print how each ended."""
    logs = Path(given.out) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, failed = list(_parts(given)), {}, []
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        while waiting or running:
            while waiting and len(running) < given.jobs:
                name, settings = waiting.pop(0)
                with (logs / f"{name}.txt").open("w") as log:
                    job = subprocess.Popen(
                        _command(given, *settings), stdout=log, stderr=subprocess.STDOUT, env=alone
                    )
                running[name] = job, time.monotonic()
            time.sleep(0.5)
            for name, (job, start) in list(running.items()):
                if job.poll() is not None:
                    del running[name]
                    failed += [name] * bool(job.returncode)
                    took = time.monotonic() - start
                    print(f"{name}: code {job.returncode}, {took:.0f} s", flush=True)
    finally:
        for job, _ in running.values():
            job.terminate()
    for name in failed:
        print((logs / f"{name}.txt").read_text()[-3000:], flush=True)


def _pack(out, target):
    """Tables, documents and reports of all runs, the logs beside them."""
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(out.rglob("*")):
            if path.is_file() and "shards" not in path.parts:
                archive.add(path, str(path.relative_to(out)))


if __name__ == "__main__":
    sys.exit(main())
