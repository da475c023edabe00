"""``make golden``: run the old and the new version, compare, exit 1 on any difference."""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.golden.compare import (
    Comparison,
    compare_documents,
    compare_folders,
    decisions,
)
from benchmarks.golden.runs import (
    COMMIT,
    RUNS,
    Result,
    execute,
    fetch_sources,
    remembered,
)

__all__: list[str] = []

_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 20


def _compared(old: Result, new: Result) -> Comparison:
    comparison = Comparison()
    if old.code != new.code:
        comparison.unequal("exit code", old.code, new.code)
    compare_documents("json", old.document, new.document, comparison)
    compare_folders(old.folder, new.folder, comparison)
    return comparison


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__)
    parser.add_argument("names", nargs="*", help="runs to make (default: all)")
    parser.add_argument("--new", type=Path, default=_ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, default=_ROOT / "out/golden", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.names) - {command.name for command in RUNS}
    if unknown:
        parser.error(f"no run is named {', '.join(sorted(unknown))}")
    chosen = [command for command in RUNS if not options.names or command.name in options.names]
    cache, checkout = options.cache.resolve(), options.new.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    source = fetch_sources(_ROOT, cache)
    start, failures = time.perf_counter(), 0
    judged: dict[str, bool] = {}
    header = f"{'run':<20} {'tables':>6} {'values':>7} {'differences':>11}  seconds old, new"
    lines = [f"{header}  decided"]
    with ThreadPoolExecutor(1) as old_side, ThreadPoolExecutor(1) as new_side:
        new = [new_side.submit(execute, run, checkout, cache / "new" / run.name) for run in chosen]
        old = [old_side.submit(remembered, run, source, cache) for run in chosen]
        for command, first, second in zip(chosen, old, new, strict=True):
            try:
                before, after = first.result(), second.result()
            except RuntimeError as error:
                print(f"{command.name}: {error}", flush=True)
                lines.append(f"{command.name:<20} did not run")
                failures += 1
                continue
            comparison = _compared(before, after)
            for line in comparison.differences[:_SHOWN]:
                print(f"{command.name}: {line}")
            if len(comparison.differences) > _SHOWN:
                print(f"{command.name}: {len(comparison.differences) - _SHOWN} differences more")
            for line in comparison.additions:
                print(f"{command.name}: new: {line}")
            sys.stdout.flush()
            failures += len(comparison.differences)
            outcomes = decisions(before.document)
            judged |= {name: decided or judged.get(name, False)
                       for name, decided in outcomes.items()}  # fmt: skip
            lines.append(
                f"{command.name:<20} {comparison.tables:>6} {comparison.values:>7} "
                f"{len(comparison.differences):>11}  {before.seconds:>11.0f}, {after.seconds:<3.0f}"
                f"  {' '.join(name for name, decided in outcomes.items() if decided) or 'none'}"
            )
    print("\n".join(["", *lines]))
    silent = ", ".join(sorted(name for name, decided in judged.items() if not decided))
    print(f"decided by none of these runs, so that only its numbers are compared: {silent or '–'}")
    outcome = "equal to" if not failures else "NOT equal to"
    print(f"{outcome} {COMMIT[:7]}, in {time.perf_counter() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
