"""What calibrated thresholds of `decode` keep, from the kept outcomes of a pool of prompts.

``python -m benchmarks.decode_risk`` reads ``benchmarks/results/decode_RUN.npz`` (written by
`benchmarks.decode_policies`) and runs no model. For every policy: the pool is split at random into
two halves, 200 times; one half calibrates, the other counts changed answers. Beside it the
threshold that looked best on the calibration half, which promises nothing, and for rules that
commit once the oracle that stops each prompt at the first pass whose answer is the reference's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from flowscope.evidence import risk_control
from flowscope.records import Unavailable

RESULTS = Path(__file__).parent / "results"
REPEATS, DELTA = 200, 0.05
ALPHAS = (0.1, 0.05, 0.02)
RUNS = ("6x6", "weak", "weak-fine", "hard")
ONCE = ("prophet", "sched-linear", "sched-cosine", "sched-exponential", "stable", "joint")


def judged(
    losses: np.ndarray, passes: np.ndarray, most: np.ndarray, alpha: float
) -> dict[str, Any]:
    """Recalibrations of one policy: ``losses`` and ``passes`` are ``[prompts, thresholds]``."""
    rng, size = np.random.default_rng(0), len(losses)
    rows: dict[str, list[float]] = {"changed": [], "saved": [], "naive": [], "calibration": []}
    for _ in range(REPEATS):
        order = rng.permutation(size)
        some, others = order[: size // 2], order[size // 2 :]
        control = risk_control(losses[some], range(losses.shape[1]), alpha, DELTA)
        good = np.flatnonzero(losses[some].mean(0) <= alpha)
        rows["naive"].append(losses[others, good[-1]].mean() if len(good) else np.nan)
        if isinstance(control.index, Unavailable):
            continue
        k = control.index
        rows["changed"].append(losses[others, k].mean())
        rows["saved"].append((1 - passes[others, k] / most[others]).mean())
        rows["calibration"].append(control.risks[k])
    whole = losses.mean(0)
    return {
        "calibrations": REPEATS, "with_threshold": len(rows["changed"]), "n": size // 2,
        "kept_alpha": _share([x <= alpha for x in rows["changed"]]),
        "pool_risk_above_alpha": _share([x > alpha for x in _pool(losses, whole, alpha, rng)]),
        "saved": _median(rows["saved"]), "changed": _median(rows["changed"]),
        "naive_kept_alpha": _share([x <= alpha for x in rows["naive"] if np.isfinite(x)]),
    }  # fmt: skip


def _pool(losses: np.ndarray, whole: np.ndarray, alpha: float, rng: Any) -> list[float]:
    """Risk on the whole pool of thresholds that were calibrated on prompts drawn from it."""
    found = []
    for _ in range(REPEATS):
        some = rng.integers(0, len(losses), len(losses) // 2)
        index = risk_control(losses[some], range(losses.shape[1]), alpha, DELTA).index
        found.append(0.0 if isinstance(index, Unavailable) else float(whole[index]))
    return found


def _share(values: list[bool]) -> float | None:
    return float(np.mean(values)) if values else None


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def of_run(name: str) -> dict[str, Any]:
    """Every policy of a run at every alpha, and the oracle of rules that commit once."""
    arrays = np.load(RESULTS / f"decode_{name}.npz")
    most = arrays["reference/passes"].astype(float)
    found: dict[str, Any] = {
        "prompts": len(most),
        "reference_passes": float(most.mean()),
        "accuracy": float(np.nanmean(arrays["reference/correct"])),
        "oracle_first_saved": float((1 - arrays["reference/known"] / most).mean()),
        "oracle_settled_saved": float((1 - arrays["reference/settled"] / most).mean()),
        "policies": {},
    }
    names = sorted({key.split("/")[0] for key in arrays.files} - {"reference"})
    for policy in names:
        losses = (~arrays[f"{policy}/same"]).T.astype(float)
        passes = arrays[f"{policy}/passes"].T.astype(float)
        thresholds = arrays[f"{policy}/thresholds"].tolist()
        walk = [
            {"threshold": t, "changed": float(losses[:, k].mean()),
             "saved": float((1 - passes[:, k] / most).mean()),
             "accuracy": float(np.nanmean(arrays[f"{policy}/correct"][k]))}
            for k, t in enumerate(thresholds)
        ]  # fmt: skip
        found["policies"][policy] = {
            "once": policy in ONCE, "walk": walk,
            **{f"alpha {a:g}": judged(losses, passes, most, a) for a in ALPHAS},
        }  # fmt: skip
    return found


def main() -> None:
    """Judge every run that is there."""
    there = [name for name in RUNS if (RESULTS / f"decode_{name}.npz").exists()]
    found = {name: of_run(name) for name in there}
    (RESULTS / "decode_risk.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, run in found.items():
        sys.stdout.write(
            f"{name}: {run['prompts']} prompts, {run['reference_passes']:.1f} passes, right "
            f"{run['accuracy']:.1%}; oracle saves {run['oracle_first_saved']:.1%}\n"
        )
        for policy, one in run["policies"].items():
            for alpha in ALPHAS:
                row = one[f"alpha {alpha:g}"]
                sys.stdout.write(f"  {policy:18s} alpha {alpha:g}: {row}\n")


if __name__ == "__main__":
    main()
