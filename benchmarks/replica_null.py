"""Level and power of the interval and of the exchange null of the internal gap.

Differences of 32 pairs, bands of 8 modes, V_s of the law of V_0 (nothing has changed): white and
with spectrum 1/k, in 64 and 4096 dimensions, independent of V_0 and with correlation .9. Questions:
how often does the interval of the split-half log ratio hold 0 and the exchange null accept, of 200
repeats at a nominal 95 %; how far is the naive ratio of source 004 from 1?

Then with a gap: modes from the ninth on keep twice the energy, or half of it. Questions: how often
is it found, is it larger than the smallest gap that the null draws call detectable, how often does
the interval hold the mean of the statistic? Peer: a permutation of all rows in place of the
exchange within pairs.

    python benchmarks/replica_null.py [--repeats 200] [--out benchmarks/results/replica_null.json]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import described
from flowscope.replica import (
    exchange_null,
    naive_gap,
    smallest_detectable_gap,
    split_half_gap,
)

PAIRS, BAND, DRAWS, SEED = 32, 8, 199, 0
Array = NDArray[np.float64]


def gram_of(
    rng: np.random.Generator, D: int, power: float, correlation: float, factor: float = 1.0
) -> Array:
    """Gram matrix of pairs, variances k^{-2 power}; later modes keep ``factor`` times theirs."""
    scale = np.arange(1, D + 1.0) ** -power
    first, fresh = rng.standard_normal((2, PAIRS, D)) * scale
    kept = np.where(np.arange(D) < BAND, 1.0, np.sqrt(factor))
    later = (correlation * first + np.sqrt(1 - correlation**2) * fresh) * kept
    rows = np.vstack([first, later])
    return np.asarray(rows @ rows.T)


def permutation_p(gram: Array, rng: np.random.Generator, draws: int = 99) -> float:
    """Two-sided p value of the split-half log ratio when all rows are permuted."""
    observed = split_half_gap(gram, BAND, BAND).value
    null = []
    for _ in range(draws):
        order = rng.permutation(len(gram))
        null.append(split_half_gap(gram[np.ix_(order, order)], BAND, BAND).value)
    tails = np.sum(np.array(null) <= observed), np.sum(np.array(null) >= observed)
    return float(min(1.0, 2 * (1 + min(tails)) / (1 + draws)))


def figures(repeats: int, *, permuted: int = 0, **law: float) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    gaps, nulls, naive, permutations = [], [], [], []
    for k in range(repeats):
        gram = gram_of(rng, **law)  # type: ignore[arg-type]
        gaps.append(split_half_gap(gram, BAND, BAND, seed=k))
        nulls.append(exchange_null(gram, BAND, BAND, draws=DRAWS, seed=k))
        naive.append(naive_gap(gram, BAND, BAND))
        if k < permuted:
            permutations.append(permutation_p(gram, rng))
    values = np.array([gap.value for gap in gaps])
    ends = np.array([gap.interval for gap in gaps])
    smallest = [smallest_detectable_gap(null.draws) for null in nulls]
    found = {
        "law": law,
        "log_ratio_mean": values.mean(),
        "log_ratio_sd": values.std(ddof=1),
        "standard_error_mean": np.mean([gap.error for gap in gaps]),
        "interval_holds_zero": np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0)),
        "interval_holds_mean": np.mean(
            (ends[:, 0] <= values.mean()) & (ends[:, 1] >= values.mean())
        ),
        "exchange_accepts": np.mean([null.p_value > 0.05 for null in nulls]),
        "exchange_sd_mean": np.mean([null.draws.std() for null in nulls]),
        "smallest_detectable_mean": np.mean(smallest),
        "naive_ratio_mean": np.mean(naive),
        "naive_ratio_sd": np.std(naive, ddof=1),
    }
    if permutations:
        found["permutation_accepts"] = np.mean([p > 0.05 for p in permutations])
    return {k: v if isinstance(v, dict) else round(float(v), 4) for k, v in found.items()}


def summary(record: dict[str, Any]) -> str:
    lines = ["    D power corr factor |  T: mean     sd    se | 0 held, null accepts, seen | naive"]
    for found in record["unchanged"] + record["gap"]:
        law = found["law"]
        lines.append(
            f"{law['D']:5d}   {law['power']:.1f} {law['correlation']:.2f}   "
            f"{law.get('factor', 1):.2f} | {found['log_ratio_mean']:+9.3f} "
            f"{found['log_ratio_sd']:6.3f} "
            f"{found['standard_error_mean']:.3f} | {found['interval_holds_zero']:6.3f} "
            f"{found['exchange_accepts']:13.3f} {found['smallest_detectable_mean']:6.3f} | "
            f"{found['naive_ratio_mean']:.3f} ± {found['naive_ratio_sd']:.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=200)
    default = Path(__file__).parent / "results" / "replica_null.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    began = time.perf_counter()
    unchanged = [
        figures(options.repeats, D=D, power=power, correlation=correlation)
        for D in (64, 4096)
        for power in (0.0, 0.5)
        for correlation in (0.0, 0.9)
    ]
    gap = [
        figures(
            options.repeats, permuted=20, D=64, power=1.0, correlation=correlation, factor=factor
        )
        for correlation, factor in ((0.0, 2.0), (0.9, 2.0), (0.9, 0.5), (0.99, 2.0))
    ]
    record = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "seed": SEED,
        "pairs": PAIRS,
        "band": BAND,
        "repeats": options.repeats,
        "draws": DRAWS,
        "nominal": 0.95,
        "unchanged": unchanged,
        "gap": gap,
    }
    record["seconds"] = round(time.perf_counter() - began, 1)
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(summary(record))
    print(f"{record['seconds']} s; written: {options.out}")


if __name__ == "__main__":
    main()
