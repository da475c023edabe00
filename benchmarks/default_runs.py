"""How long the default runs take now, as a ratio to an earlier version, in one run.

Each command runs with the code of the earlier commit and with that of the working tree, in turn,
on one thread, with the bundled model and all settings at their defaults. Processor seconds count,
because another process may share the machine; on a machine that many share, ``--together`` runs
both at once. The medians and their ratio go to
``results/default_runs.json``.

    python -m benchmarks.default_runs --rounds 3
    python -m benchmarks.default_runs --commands audit --before COMMIT
"""

import argparse
import json
import os
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


def processor_seconds(command: str, checkouts: list[Path], *, together: bool) -> list[float]:
    """Processor seconds of one command with the code of each checkout, in turn or side by side."""
    with tempfile.TemporaryDirectory() as folder:
        if together:
            started = [_started(command, checkout, Path(folder)) for checkout in checkouts]
            return [_seconds(command, *process) for process in started]
        return [
            _seconds(command, *_started(command, checkout, Path(folder))) for checkout in checkouts
        ]


def _started(
    command: str, checkout: Path, parent: Path
) -> tuple[Path, Path, subprocess.Popen[bytes]]:
    """The checkout, the folder of its run, and the process."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout / "src")}
    environment |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    with (folder / "errors.txt").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "flowscope.cli", command, "--json", "--out", folder / "run"],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    return checkout, folder, process


def _seconds(command: str, checkout: Path, folder: Path, process: subprocess.Popen[bytes]) -> float:
    """Processor seconds of a process and of the children it waited for, once it has ended."""
    _, status, used = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if code not in ENDED:
        said = (folder / "errors.txt").read_text(encoding="utf-8")
        raise SystemExit(f"{command} of {checkout} ended with {code}:\n{said}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default=BEFORE, help="commit to compare with")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="separated by commas")
    parser.add_argument(
        "--together", action="store_true", help="both at once: what else runs slows both alike"
    )
    parser.add_argument("--more", action="store_true", help="add to the rounds that are kept")
    options = parser.parse_args()
    cache = ROOT / "out" / "golden"
    cache.mkdir(parents=True, exist_ok=True)
    earlier = fetch_sources(ROOT, cache, options.before)
    kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    kept = kept if kept.get("before") == options.before else {}
    rows = {}
    for command in options.commands.split(","):
        earlier_rounds = kept.get("commands", {}).get(command, {}) if options.more else {}
        old, now = (list(earlier_rounds.get(name, [])) for name in ("before", "now"))
        for _ in range(options.rounds):
            pair = processor_seconds(command, [earlier, ROOT], together=options.together)
            old.append(pair[0])
            now.append(pair[1])
        ratio = statistics.median(now) / statistics.median(old)
        rows[command] = {"before": old, "now": now, "ratio": round(ratio, 3)}
        rows[command]["together"] = options.together
        print(f"{command:<6} {ratio:5.2f} ×  {statistics.median(now):6.1f} s", flush=True)
    document = {
        "machine": described(),
        "before": options.before,
        "commands": {**kept.get("commands", {}), **rows},
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
