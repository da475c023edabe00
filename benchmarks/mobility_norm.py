"""Cost of λ_max of the mobility, next to the softmax that made the probabilities.

Peer: ``torch.softmax`` over the same 1,000 rows of 50,257 outcomes in float32, timed in turn with
``mobility_norm`` (validation included) in the same process. Accuracy: against plain bisection of
the secular equation in float64 on the same normalised rows. Figure to keep: a ratio of at most 10
and a relative error of at most 1e-5.

    python benchmarks/mobility_norm.py [--repeats 15] [--out benchmarks/results/mobility_norm.json]
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import flowscope
from flowscope.simplex import mobility_norm

ROWS, V, SEED = 1_000, 50_257, 0
# Peaks of real rows run from a first layer that knows nothing to a last that is sure.
GROUPS = {
    "flat": (1e-4, 1e-2),
    "between": (1e-2, 0.9),
    "peaked": (0.9, 0.999999),
    "all": (1e-4, 0.999999),
}
TARGET = {"ratio": 10.0, "relative_error": 1e-5}


def logits(low: float, high: float) -> Tensor:
    """Gaussian logits of spread 1 to 3 under one that holds the mass p_max, from low to high."""
    generator = torch.Generator().manual_seed(SEED)
    peak = torch.logit(torch.tensor([low, high], dtype=torch.float64))
    peak = torch.linspace(float(peak[0]), float(peak[1]), ROWS, dtype=torch.float64)
    # A spread of 3 alone would already give a peak above 1e-4.
    spread = torch.where(peak < -3, 0.5, 1 + 2 * torch.rand(ROWS, generator=generator))
    z = spread[:, None] * torch.randn(ROWS, V, generator=generator)
    place = torch.randint(V, (ROWS, 1), generator=generator)
    z.scatter_(-1, place, -torch.inf)
    return z.scatter_(-1, place, (peak + z.double().logsumexp(-1)).float()[:, None])


def bisected(p: Tensor) -> Tensor:
    """λ_max of each row by bisection in float64."""
    p = p.double() / p.double().sum(-1, keepdim=True)
    peak, place = p.max(-1)
    tail = p.scatter(-1, place[:, None], 0.0)
    low, high = tail.amax(-1), peak.clone()
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = peak / (peak - middle) < (tail / (middle[:, None] - tail)).sum(-1)
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def quartiles(values: list[float]) -> dict[str, float]:
    q1, median, q3 = torch.tensor(values, dtype=torch.float64).quantile(
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    ).tolist()  # fmt: skip
    return {"median": median, "iqr": q3 - q1, "worst": max(values)}


def figures(name: str, threads: int, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    z = logits(*GROUPS[name])
    p = torch.softmax(z, -1)
    norm = mobility_norm(p)  # warm
    soft, ours = [], []
    for _ in range(repeats):
        soft.append(seconds(lambda: torch.softmax(z, -1)))
        ours.append(seconds(lambda: mobility_norm(p)))
    sample = torch.arange(0, ROWS, ROWS // 50)
    error = norm[sample].double() / bisected(p[sample]) - 1
    return {
        "rows": name,
        "threads": threads,
        "p_max": [p.amax(-1).min().item(), p.amax(-1).max().item()],
        "softmax_ms": quartiles([1e3 * s for s in soft]),
        "mobility_norm_ms": quartiles([1e3 * s for s in ours]),
        "ratio": quartiles([a / b for a, b in zip(ours, soft, strict=True)]),
        "relative_error": error.abs().max().item(),
        "error_rows": len(sample),
        "repeats": repeats,
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def manifest() -> dict[str, Any]:
    return {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "dtype": "float32",
        "rows": ROWS,
        "outcomes": V,
        "seed": SEED,
        "target": TARGET,
        "versions": {
            "flowscope": flowscope.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=15)
    default = Path(__file__).parent / "results" / "mobility_norm.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    record = manifest()
    threads = sorted({1, torch.get_num_threads()})
    record["figures"] = [figures(name, n, options.repeats) for n in threads for name in GROUPS]
    print(f"{'rows':8} threads   p_max              softmax   norm      ratio (IQR)   error")
    for f in record["figures"]:
        low, high = f["p_max"]
        print(
            f"{f['rows']:8} {f['threads']:7d}   {low:.0e} – {high:<9.6f} "
            f"{f['softmax_ms']['median']:6.0f} ms {f['mobility_norm_ms']['median']:6.0f} ms "
            f"{f['ratio']['median']:6.2f} ({f['ratio']['iqr']:.2f})   {f['relative_error']:.1e}"
        )
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
