"""How long the default runs take now, as a ratio to an earlier version, in one run.

Each command runs with the code of the earlier commit and with that of the working tree, in turn,
on one thread, with the bundled model and all settings at their defaults. Processor seconds count,
because another process may share the machine. The medians and their ratio go to
``results/default_runs.json``.

    python -m benchmarks.default_runs --rounds 3
    python -m benchmarks.default_runs --commands audit --before COMMIT
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.golden.runs import fetch_sources
from benchmarks.machine import described

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "default_runs.json"
BEFORE = "d0976319d20a847808fed756805ce47f06b8a3a2"
COMMANDS = ("audit", "heads", "sync", "image")
ENDED = (0, 3)


def processor_seconds(command: str, checkout: Path) -> float:
    """Processor seconds of one command with the code of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout / "src")}
        environment |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [sys.executable, "-m", "flowscope.cli", command, "--json", "--out", folder],
            cwd=folder, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode not in ENDED:
            raise SystemExit(
                f"{command} of {checkout} ended with {ended.returncode}:\n{ended.stderr}"
            )
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default=BEFORE, help="commit to compare with")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="separated by commas")
    options = parser.parse_args()
    cache = ROOT / "out" / "golden"
    cache.mkdir(parents=True, exist_ok=True)
    earlier = fetch_sources(ROOT, cache, options.before)
    rows = {}
    for command in options.commands.split(","):
        old, now = [], []
        for _ in range(options.rounds):
            old.append(processor_seconds(command, earlier))
            now.append(processor_seconds(command, ROOT))
        ratio = statistics.median(now) / statistics.median(old)
        rows[command] = {"before": old, "now": now, "ratio": round(ratio, 3)}
        print(f"{command:<6} {ratio:5.2f} ×  {statistics.median(now):6.1f} s", flush=True)
    kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    kept = kept if kept.get("before") == options.before else {}
    document = {
        "machine": described(),
        "before": options.before,
        "commands": {**kept.get("commands", {}), **rows},
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
