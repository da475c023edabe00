"""Mutants: a small error is put into the code, and the tests of its package must notice.

Question: would the tests see a flipped sign, a missing +1, n for n − 1, a wrong level, one side for
two, exchanged arguments, the wrong axis, a guard that is gone, a key that misses a field?

Each mutant is one replacement in one file of a copy of the checkout; the checkout itself is never
touched. A mutant is *killed* when a test fails, and *survives* when all pass.

Run: ``python -m benchmarks.attack.mutants``; writes ``benchmarks/results/attack_mutants.json``.
Not part of ``make attack``: some ten minutes for all (``make mutants``).
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.attack.mutant_list import MUTANTS, Mutant
from benchmarks.machine import described

__all__ = ["Outcome", "mutated", "tried"]

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parents[1] / "results" / "attack_mutants.json"
_LEFT_OUT = (".git", ".venv", "out", "results", "__pycache__", ".hypothesis", ".mypy_cache")
_LONGEST = 600


class Outcome(NamedTuple):
    """What became of a mutant: ``killed`` or ``survived``, and the first test that failed."""

    name: str
    state: str
    test: str


def mutated(text: str, mutant: Mutant) -> str:
    """Text of a file with the error in it; the place must be there once."""
    if text.count(mutant.old) != 1:
        times = text.count(mutant.old)
        sys.exit(f"{mutant.file} holds {mutant.old!r} {times} times, expected once.")
    return text.replace(mutant.old, mutant.new)


def tried(mutant: Mutant, copy: Path) -> Outcome:
    """Put a mutant into a copy of the checkout, run its tests, and take it out again."""
    file = copy / "src" / "flowscope" / mutant.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(mutated(whole, mutant), encoding="utf-8")
    log = copy / "pytest.log"
    try:
        # A fork of this process, which has imported torch and its like already, but not flowscope.
        child = get_context("fork").Process(target=_run, args=(mutant.tests, copy, log))
        child.start()
        child.join(_LONGEST)
        if child.is_alive():
            child.kill()
            child.join()
            return Outcome(f"{mutant.file}: {mutant.error}", "killed", "no end")
    finally:
        file.write_text(whole, encoding="utf-8")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if child.exitcode not in (0, 1) and not failed:
        sys.exit(f"pytest could not run {mutant.tests}: {lines[-10:]}")
    test = failed[0].split(" - ")[0].split()[1] if failed else ""
    state = "survived" if child.exitcode == 0 else "killed"
    return Outcome(f"{mutant.file}: {mutant.error}", state, test)


def _run(tests: tuple[str, ...], copy: Path, log: Path) -> None:
    """Run tests of the copy in this process, which ends with pytest's exit code."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy / "src")  # for tests that start a process
    sys.path[:0] = [str(copy / "src"), str(copy)]
    sys.dont_write_bytecode = True
    import pytest

    code = pytest.main(["-q", "-x", "-ra", "-p", "no:cacheprovider", "-p", "no:warnings", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.file]
    for mutant in chosen:  # all places first: a list that is out of date ends at once
        mutated((ROOT / "src" / "flowscope" / mutant.file).read_text(encoding="utf-8"), mutant)
    for name in ("hypothesis", "pandas", "scipy.stats", "torch", "transformers"):
        import_module(name)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        outcomes = []
        for mutant in chosen:
            outcomes.append(tried(mutant, copy))
            print(*outcomes[-1], sep="  ", flush=True)
    survivors = _write(outcomes, options.out)
    if survivors:
        sys.exit(f"{len(survivors)} of {len(MUTANTS)} mutants survived.")


def _write(outcomes: list[Outcome], path: Path) -> list[str]:
    """Write what became of every mutant, earlier outcomes of the others too; return survivors."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["outcomes"] if path.exists() else {}
    latest = {o.name: {"state": o.state, "test": o.test} for o in outcomes}
    names = [f"{mutant.file}: {mutant.error}" for mutant in MUTANTS]
    known = {name: (earlier | latest)[name] for name in names if name in earlier | latest}
    survivors = [name for name, outcome in known.items() if outcome["state"] == "survived"]
    figures = {
        "machine": described(),
        "mutants": len(known),
        "killed": len(known) - len(survivors),
        "survivors": survivors,
        "outcomes": known,
    }
    path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return survivors


if __name__ == "__main__":
    main()
