"""Grids to learn from, each with cells that may be blank together.

    PYTHONPATH=src python -m studies.denoising_training.data --out bases.npz

A row is a complete grid of the training part and a deep puzzle of it: any subset of its blanks,
moved by any symmetry of the shape, is a puzzle with one solution again. So a few ten thousand rows
give as many puzzles as a training run can read.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

from flowscope.nets.sudoku import SHAPES
from flowscope.nets.sudoku.generation import dug
from flowscope.nets.sudoku.splits import grids_of

__all__ = ["main"]

# Rows of a task, and the deepest puzzle: deeper ones of 9×9 take long to dig.
COUNTS = {"sudoku-4x4": 4_000, "sudoku-6x6": 20_000, "sudoku-9x9": 30_000}
DEEPEST = {"sudoku-4x4": 12, "sudoku-6x6": 26, "sudoku-9x9": 54}
_PART = 1000


def main(arguments: list[str] | None = None) -> None:
    """Write the grids and the blanks of every task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows of every task")
    options = parser.parse_args(arguments)
    found: dict[str, np.ndarray] = {}
    for task, shape in SHAPES.items():
        draw = np.random.default_rng([options.seed, shape.side, 1])
        rows = max(1, round(options.share * COUNTS[task]))
        grids = grids_of(rows, shape, "train", draw)
        empty = [
            dug(part, shape, np.full(len(part), DEEPEST[task]), draw)
            for part in np.split(grids, range(_PART, rows, _PART))
        ]
        found[f"{task}/grids"] = grids
        found[f"{task}/empty"] = np.packbits(np.concatenate(empty), axis=1)
        print(task, rows, "rows, blanks", np.concatenate(empty).sum(1).mean(), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, **found)
    digest = hashlib.sha256(options.out.read_bytes()).hexdigest()
    print(json.dumps({"bytes": options.out.stat().st_size, "sha256": digest}))


if __name__ == "__main__":
    main()
