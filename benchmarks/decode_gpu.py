"""Every policy on tasks of the bundled denoiser, on a GPU, with what it takes to recheck.

``python -m benchmarks.decode_gpu MODEL OUT [--seconds 150] [--tiny] [--device cuda:0]`` writes
``decode_gpu.json`` (tables of each run, thresholds, seconds) and ``decode_gpu.npz``: passes,
changed and right answers of every prompt under every threshold, and for every pass of the
reference what rules that commit once look at. `benchmarks.decode_risk` makes all statements on
risk from these two files alone.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flowscope
from flowscope.instruments.decode import outcomes
from flowscope.instruments.decode.calibration import measure as calibrating
from flowscope.instruments.decode.reference import measure as referring
from flowscope.instruments.decode.trial import measure as trying
from flowscope.lab.result import plain_rows

EVERY = (
    "threshold", "factor", "entropy-bound", "klass", "prophet", "sched-linear", "sched-cosine",
    "sched-exponential", "stable", "joint", "draft",
)  # fmt: skip
FEW = ("threshold", "factor", "prophet", "joint", "draft")
TABLES = ("policies", "thresholds", "window", "progress", "calibration")
HARD = (45, 57)  # blanks of a 9×9 at which one pass solves a fifth of the puzzles
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("9x9-hard", {"task": "sudoku-9x9", "blanks": HARD, "policy": EVERY}),
    ("draft", {"task": "sudoku-9x9", "blanks": HARD, "policy": ("draft",), "prompts": 1000,
               "calibration": 1, "controls": False, "frontier": False, "seed": 7}),
    ("6x6", {"task": "sudoku-6x6", "policy": EVERY}),
    ("6x6-hard", {"task": "sudoku-6x6", "blanks": (24, 26), "policy": FEW}),
    ("9x9", {"task": "sudoku-9x9", "policy": FEW}),
)  # fmt: skip


class Collector:
    """Keeps every outcome of a run beside what the run writes."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, float], Any] = {}
        self._original = outcomes.outcome_of

    def __call__(self, bench: Any, part: Any, policy: Any) -> Any:
        """Outcome of a policy, kept."""
        made = self._original(bench, part, policy)
        self.found[part.name, policy.name, policy.threshold] = made
        self.parts = bench.shared("parts")
        self.bench = bench
        return made

    def __enter__(self) -> Collector:
        calibrating.outcome_of = trying.outcome_of = self
        return self

    def __exit__(self, *failure: object) -> None:
        calibrating.outcome_of = trying.outcome_of = self._original

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Outcomes by policy, ``[thresholds, prompts]`` with calibration prompts first."""
        kept: dict[str, np.ndarray] = {}
        policies = sorted({policy for _, policy, _ in self.found})
        for policy in policies:
            thresholds = [t for part, p, t in self.found if p == policy and part == "test"]
            grid = sorted(set(thresholds))
            for field in ("passes", "rows", "same", "correct"):
                rows = [self._joined(policy, t, field) for t in grid]
                kept[f"{name}/{policy}/{field}"] = np.stack(rows).astype(
                    {"same": bool, "correct": np.float16}.get(field, np.int16)
                )
            kept[f"{name}/{policy}/thresholds"] = np.array(grid)
        return kept

    def _joined(self, policy: str, threshold: float, field: str) -> np.ndarray:
        parts = []
        for part in ("calibration", "test"):
            one = self.found.get((part, policy, threshold))
            size = len(self.parts[part])
            values = np.full(size, -1) if one is None else getattr(one, field)
            parts.append(values)
        return np.concatenate(parts)

    def record(self, name: str) -> dict[str, np.ndarray]:
        """What rules that commit once see in every pass, ``[passes, prompts]``."""
        columns: dict[str, list[np.ndarray]] = {}
        for part in self.parts.values():
            for batch in part.batches:
                for field, values in _statistics(self.bench, batch).items():
                    columns.setdefault(field, []).append(values)
        longest = max(len(piece) for piece in columns["same"])
        return {
            f"{name}/record/{field}": np.concatenate(
                [np.pad(p, ((0, longest - len(p)), (0, 0))) for p in pieces], 1
            )
            for field, pieces in columns.items()
        }


def _statistics(bench: Any, batch: Any) -> dict[str, np.ndarray]:
    trace = batch.trace
    masked = trace.masked
    count = np.maximum(masked.sum(2), 1)

    def mean(values: np.ndarray) -> np.ndarray:
        return (np.where(masked, values, 0).sum(2) / count).astype(np.float32)

    logs = np.log(np.maximum(trace.laws["first"], 1e-30))
    steady = np.zeros(masked.shape[:2], bool)
    steady[1:] = ((trace.top[1:] == trace.top[:-1]) | ~masked[1:]).all(2)
    return {
        "gap": mean(trace.laws["gap"]),
        "entropy": mean(trace.laws["entropy"]),
        "joint": np.where(masked, logs, 0).sum(2).astype(np.float32),
        "steady": steady,
        "masked": masked.sum(2).astype(np.int16),
        "same": referring.agreeing(bench, batch),
    }


def measured(name: str, options: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """One run: its tables, its seconds, its arrays."""
    size = 6 if arguments.tiny else 500
    settings = {
        "calibration": size, "prompts": size, "frontier": True, "windows": (12, 8),
        "batch": 4 if arguments.tiny else 512, "device": arguments.device, "dtype": "float32",
        "maps": 2, **options,
    }  # fmt: skip
    if arguments.tiny:
        settings |= {"prompts": size, "calibration": size}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Collector() as collector:
        result = flowscope.decode(
            arguments.model, out=Path(folder) / "run", progress=False, **settings
        )
        found = {
            "settings": settings,
            "verdicts": result.to_json()["verdicts"],
            "measured": result.to_json()["measured"],
            **{t: plain_rows(result[t]) for t in TABLES if t in result.tables},
        }
        prompts = result["prompts"]
        arrays = {
            **collector.arrays(name), **collector.record(name),
            f"{name}/reference/passes": prompts["passes"].to_numpy(np.int16),
            f"{name}/reference/correct": prompts["correct"].to_numpy(np.float16),
            f"{name}/reference/settled": prompts["settled"].to_numpy(np.int16),
            f"{name}/part": (prompts["part"] == "test").to_numpy(),
        }  # fmt: skip
    found["seconds"] = time.perf_counter() - start
    return {"document": found, "arrays": arrays}


def main() -> None:
    """Run the tasks in order of weight, until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    start, documents, arrays = time.perf_counter(), {}, {}
    for name, options in RUNS:
        if time.perf_counter() - start > arguments.seconds:
            documents[name] = {"skipped": "the time was over"}
            continue
        one = measured(name, options, arguments)
        documents[name] = one["document"]
        arrays |= one["arrays"]
        print(name, f"{one['document']['seconds']:.1f} s", flush=True)
        _write(arguments, documents, arrays)


def _write(arguments: argparse.Namespace, documents: dict[str, Any], arrays: Any) -> None:
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
    head = {"device": device, "torch": torch.__version__, "model": str(arguments.model)}
    text = json.dumps({"machine": head, "runs": documents}, indent=1, default=str)
    (arguments.out / "decode_gpu.json").write_text(text)
    np.savez_compressed(arguments.out / "decode_gpu.npz", **arrays)


if __name__ == "__main__":
    main()
