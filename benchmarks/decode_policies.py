"""Every policy on a pool of puzzles of the bundled denoiser: what it does to each prompt.

``python -m benchmarks.decode_policies RUN OUT [--model FOLDER] [--prompts N] [--device cuda:0]
[--batch 64]`` runs `flowscope.decode` in the folder OUT/RUN, which a second call resumes, and
writes ``benchmarks/results/decode_RUN.npz``: passes, changed and right answers of every prompt of
the pool under every threshold that was walked. `benchmarks.decode_risk` makes all statements on
risk from these files alone; tables of the run lie beside them as ``decode_RUN.json``.

FOLDER may be what `studies.denoising_training.train` wrote. The runs ``weak`` and ``draft-weak``
are of a small denoiser that learned for a minute, because one pass of the bundled one solves the
puzzles: ``train --layers 4 --width 128 --heads 4 --feed-forward 192 --batch 2 40 2 --shares 0.1 1
0.1 --rate 0.02 --warmup 20 --steps 120 --seconds 3000 --device cpu``, on ``data --share 0.1``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from studies.denoising_training.folder import recorded_sizes, write_folder

import flowscope
from flowscope.instruments.decode import outcomes
from flowscope.instruments.decode.calibration import measure as calibrating
from flowscope.instruments.decode.policies.parallel import Threshold
from flowscope.instruments.decode.trial import measure as trying
from flowscope.lab.result import plain_rows

RESULTS = Path(__file__).parent / "results"
ONCE = ("prophet", "sched-linear", "sched-cosine", "sched-exponential", "stable", "joint")
PARALLEL = ("threshold", "factor", "entropy-bound", "klass")
HARD = {"task": "sudoku-9x9", "blanks": (45, 57)}
RUNS: dict[str, dict[str, Any]] = {
    "6x6": {"task": "sudoku-6x6", "policy": (*PARALLEL, *ONCE), "calibration": 1000},
    "hard": {**HARD, "policy": (*PARALLEL, *ONCE), "calibration": 300},
    "weak": {"task": "sudoku-6x6", "policy": (*PARALLEL, *ONCE), "calibration": 1000,
             "prompts": 500},
    "weak-fine": {"task": "sudoku-6x6", "policy": ("threshold",), "calibration": 1000, "seed": 4},
    "draft-weak": {"task": "sudoku-6x6", "policy": ("draft",), "prompts": 1000, "calibration": 1,
                   "controls": False},
    "draft": {"task": "sudoku-6x6", "policy": ("draft",), "prompts": 1000, "calibration": 1,
              "controls": False},
    "draft-hard": {**HARD, "policy": ("draft",), "prompts": 100, "calibration": 1,
                   "controls": False},
}  # fmt: skip
TABLES = ("policies", "thresholds", "window", "progress")


class Collector:
    """Keeps every outcome on the pool, which is the calibration part of a run."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, float], Any] = {}
        self._original = outcomes.outcome_of

    def __call__(self, bench: Any, part: Any, policy: Any) -> Any:
        """Outcome of a policy, kept."""
        made = self._original(bench, part, policy)
        if part.name == "calibration":
            self.found[policy.name, policy.threshold] = made
        return made

    def __enter__(self) -> Collector:
        calibrating.outcome_of = trying.outcome_of = self
        return self

    def __exit__(self, *failure: object) -> None:
        calibrating.outcome_of = trying.outcome_of = self._original

    def arrays(self) -> dict[str, np.ndarray]:
        """Outcomes by policy in the order of the walk, ``[thresholds, prompts]``."""
        kept: dict[str, np.ndarray] = {}
        for policy in dict.fromkeys(name for name, _ in self.found):
            walk = [(t, one) for (name, t), one in self.found.items() if name == policy]
            kept[f"{policy}/thresholds"] = np.array([t for t, _ in walk])
            for field, kind in (("passes", np.int16), ("same", bool), ("correct", np.float16)):
                stacked = np.stack([getattr(one, field) for _, one in walk])
                kept[f"{policy}/{field}"] = stacked.astype(kind)
        return kept


def model_folder(folder: Path | None) -> str | None:
    """The folder, with a configuration and a tokenizer beside weights that were just trained."""
    if folder is None:
        return None
    if not (folder / "config.json").exists():
        record = json.loads((folder / "training.json").read_text())
        write_folder(recorded_sizes(record), folder)
    return str(folder)


def measured(name: str, arguments: argparse.Namespace) -> None:
    """One run: its outcomes and tables."""
    settings = {
        "prompts": 20,
        "controls": False,
        "seed": 3,
        "dtype": "float32",
        "maps": 1,
        **RUNS[name],
    }
    settings |= {"device": arguments.device, "batch": arguments.batch}
    if arguments.prompts:
        settings["prompts" if name.startswith("draft") else "calibration"] = arguments.prompts
    if arguments.policies:
        settings["policy"] = tuple(arguments.policies.split(","))
    if arguments.thresholds:
        Threshold.grid = tuple(map(float, arguments.thresholds.split(",")))
    start, start_cpu = time.perf_counter(), time.process_time()
    with Collector() as collector:
        out = str(arguments.out / name)
        result = flowscope.decode(
            model_folder(arguments.model), out=out, progress=False, **settings
        )
    prompts = result["prompts"]
    pool = prompts[prompts["part"] == ("test" if name.startswith("draft") else "calibration")]
    arrays = {
        f"reference/{c}": pool[c].to_numpy() for c in ("passes", "correct", "known", "settled")
    }
    np.savez_compressed(RESULTS / f"decode_{name}.npz", **arrays, **collector.arrays())
    document = result.to_json()
    device = torch.cuda.get_device_name(0) if arguments.device else "cpu"
    head = {"device": device, "threads": torch.get_num_threads(), "torch": torch.__version__}
    found = {
        "machine": head, "weights": result.run.read_manifest().weight_hashes, "settings": settings,
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - start_cpu,  # of this call; shards are taken up
        "policies": document["policies"], "measured": document["measured"],
        **{t: plain_rows(result[t]) for t in TABLES[1:] if t in result.tables},
    }  # fmt: skip
    (RESULTS / f"decode_{name}.json").write_text(
        json.dumps(found, indent=1, default=str, allow_nan=False) + "\n"
    )


def main() -> None:
    """Make one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", choices=RUNS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, help="folder of a denoiser of one's own training")
    parser.add_argument("--prompts", type=int, default=0)
    parser.add_argument("--policies", default="")
    parser.add_argument("--thresholds", help="of the policy threshold, from the strictest on")
    parser.add_argument("--device", default=None)
    parser.add_argument("--batch", type=int, default=64)
    measured((arguments := parser.parse_args()).run, arguments)


if __name__ == "__main__":
    main()
