"""Every number among the settings of every instrument, one at a time, through whole runs.

Question: does a run whose setting is 0, 1, −1, 10¹², or for floats NaN or ∞, end in a result or in
a sentence, within a minute of processor time? `tests/hostile` asks the same of the settings and of
the preparation; here each run that they let through is made to its end, on models of two layers.

Run: ``python -m benchmarks.attack.inputs``; writes ``benchmarks/results/attack_inputs.json`` and
ends with 1 if a run ended in anything else.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.hostile.settings import SMALL, setting_values
from tests.hostile.subjects import World
from typer.testing import CliRunner

from benchmarks.machine import described
from flowscope.cli import app

__all__ = ["FAILURES", "attacked"]

RESULT = Path(__file__).parents[1] / "results" / "attack_inputs.json"
FAILURES = ("unexpected", "raw", "too long")
_LIMIT = 60  # seconds of the processor, whatever else runs on the machine


class _TooLong(BaseException):
    """A run did not end."""


def _stop(*arguments: Any) -> None:
    raise _TooLong


def _ended(world: World, name: str, assignment: str) -> str:
    """How a run with one changed setting ends, in a word."""
    pipeline = name in ("sync", "image")
    inputs = [world.pipeline] if pipeline else [world.language, "--text", world.prompts]
    out = world.out
    settings = [part for value in (*SMALL[name], assignment) for part in ("--set", value)]
    signal.setitimer(signal.ITIMER_PROF, _LIMIT)
    try:
        arguments = [name, *map(str, inputs), *settings, "--out", str(out), "--json"]
        done = CliRunner().invoke(app, arguments)
    except _TooLong:
        return "too long"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(out, ignore_errors=True)
    if isinstance(done.exception, _TooLong):
        return "too long"
    if done.exit_code in (0, 3):
        return "result"
    try:
        sentence = json.loads(done.stdout)["error"]
    except (ValueError, KeyError):
        return "raw"
    return "unexpected" if sentence.startswith("an unexpected") else "sentence"


def attacked(names: list[str]) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Counts of the ends of runs for each instrument, and the settings that ended badly."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    failed: list[str] = []
    signal.signal(signal.SIGPROF, _stop)
    os.fsync = os.fstat  # type: ignore[assignment]  # what a flush does is attacked elsewhere
    with tempfile.TemporaryDirectory() as root:
        world = World(Path(root))
        for name, _, assignment in setting_values():
            if name not in counts:
                continue
            end = _ended(world, name, assignment)
            counts[name][end] += 1
            if end in FAILURES:
                failed.append(f"{name} {assignment}: {end}")
    return {name: dict(count) for name, count in counts.items()}, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SMALL))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    counts, failed = attacked(options.names)
    figures = {"machine": described(), "instruments": counts, "failed": failed}
    options.out.write_text(json.dumps(figures, indent=2) + "\n")
    for name, count in counts.items():
        print(f"{name:<6}", *(f"{end} {number}" for end, number in sorted(count.items())))
    if failed:
        sys.exit("\n".join(["A promise is broken:", *failed]))


if __name__ == "__main__":
    main()
