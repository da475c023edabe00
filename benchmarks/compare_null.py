"""How often ``flowscope compare`` reports a change where there is none, and whether it finds one.

Null data: per-prompt medians of an audit of the bundled model (64 prompts of 32 tokens), split into
random halves of the same run; and Gaussian or lognormal arrays with the correlations of those
medians. Equal means with unequal spreads are a null too: two models may differ in spread alone.
"Paired" takes differences of two random prompts. Planted: a shift of one standard deviation in one
statistic at three neighbouring depths.

Peers on the same data: every depth judged by itself with the percentile bootstrap (the
earlier rule of ``compare``), and the maximal t with run labels permuted among prompts.

Run: ``python -m benchmarks.compare_null``; writes ``benchmarks/results/compare_null.json``.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import flowscope as fs
from benchmarks.machine import described
from flowscope.evidence import (
    Simultaneous,
    resampled_counts,
    simultaneous,
    simultaneous_difference,
)
from flowscope.instruments.audit.comparison import prompts_at_depths
from flowscope.records import Interval

RESULT = Path(__file__).parent / "results" / "compare_null.json"
STATISTICS = (
    "relative_step",
    "total_variation",
    "entropy",
    "mobility_frobenius",
    "tail_mass",
    "oscillation",
)
SIZES = ((8, 8), (16, 16), (32, 32), (8, 32))
SHIFTED = slice(26, 29)  # entropy at depths 0.4 to 0.6
LAWS = ("Gauss", "lognormal")

Table = NDArray[np.float64]
Pair = tuple[Table, Table]


def medians_of_a_run() -> Table:
    """Per-prompt medians of the bundled model, 66 columns."""
    with tempfile.TemporaryDirectory() as folder:
        audit = fs.audit(
            prompts=64,
            tokens=32,
            controls=False,
            curvature_pairs=0,
            evi_positions=0,
            flow_positions=0,
            out=folder,
        )
        arrays = audit.run.read_arrays("prompts")
    return prompts_at_depths({name: arrays[name] for name in STATISTICS})


class Law:
    """Columns of a law whose scores have given correlations; mean 0 and standard deviation 1."""

    def __init__(self, name: str, correlations: Table) -> None:
        values, vectors = np.linalg.eigh(correlations)
        self.name, self.root = name, vectors * np.sqrt(values.clip(0))

    def draw(self, prompts: int, rng: np.random.Generator) -> Table:
        """Values of so many prompts."""
        z = rng.standard_normal((prompts, len(self.root))) @ self.root.T
        if self.name == "Gauss":
            return z
        return (np.exp(z) - np.e**0.5) / np.sqrt((np.e - 1) * np.e)


def leaves_zero_out(result: Simultaneous) -> NDArray[np.bool_]:
    """Columns whose joint interval lies on one side of zero: what ``compare`` calls changed."""
    assert isinstance(result.joint, Interval)
    return (np.asarray(result.joint.low) > 0) | (np.asarray(result.joint.high) < 0)


def pointwise_percentiles(first: Table, second: Table, seed: int) -> NDArray[np.bool_]:
    """Peer: the percentile bootstrap of each column by itself."""
    draws = [
        resampled_counts(len(x), resamples=999, seed=seed + side) @ x / len(x)
        for side, x in enumerate((first, second))
    ]
    low, high = np.quantile(draws[1] - draws[0], [0.025, 0.975], axis=0)
    return np.asarray((low > 0) | (high < 0))


def permuted_labels(first: Table, second: Table, seed: int) -> NDArray[np.bool_]:
    """Peer: the maximal Welch t against the same with prompts exchanged between the runs."""
    x, m = np.concatenate([first, second]), len(first)
    x = x - x.mean(0)
    rng = np.random.default_rng(seed)
    labels = np.zeros((1000, len(x)))
    labels[0, :m] = 1
    for row in labels[1:]:
        row[rng.permutation(len(x))[:m]] = 1
    n = len(x) - m
    sums, squares = labels @ x, labels @ x**2
    means = sums / m, -sums / n
    variances = (
        (squares / m - means[0] ** 2) / (m - 1),
        ((x**2).sum(0) - squares) / n / (n - 1) - means[1] ** 2 / (n - 1),
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.nan_to_num(np.abs(means[1] - means[0]) / np.sqrt(sum(variances)), posinf=0.0)
    return np.asarray(t[0] > np.quantile(t.max(1), 0.95, method="higher"))


def rates(draw: Callable[[np.random.Generator], Pair], repeats: int) -> dict[str, float]:
    """Share of repeats in which each rule reports any change, unpaired."""
    flagged = {"simultaneous": 0, "pointwise percentile": 0, "labels permuted": 0}
    for repeat in range(repeats):
        first, second = draw(np.random.default_rng([repeat, len(flagged)]))
        result = simultaneous_difference(first, second, seed=repeat)
        flagged["simultaneous"] += bool(leaves_zero_out(result).any())
        flagged["pointwise percentile"] += bool(pointwise_percentiles(first, second, repeat).any())
        flagged["labels permuted"] += bool(permuted_labels(first, second, repeat).any())
    return {name: count / repeats for name, count in flagged.items()}


def paired_rates(draw: Callable[[np.random.Generator], Table], repeats: int) -> float:
    """Share of repeats in which paired differences with mean zero are called a change."""
    flagged = 0
    for repeat in range(repeats):
        differences = draw(np.random.default_rng([repeat, 7]))
        flagged += bool(leaves_zero_out(simultaneous(differences, seed=repeat)).any())
    return flagged / repeats


def power(law: Law, prompts: int, repeats: int) -> dict[str, float]:
    """Share of repeats in which a shift of one standard deviation is found where it is."""
    unpaired = paired = elsewhere = 0
    for repeat in range(repeats):
        rng = np.random.default_rng([repeat, 11])
        first, second = law.draw(prompts, rng), law.draw(prompts, rng)
        second[:, SHIFTED] += 1
        changed = leaves_zero_out(simultaneous_difference(first, second, seed=repeat))
        unpaired += bool(changed[SHIFTED].any())
        elsewhere += bool(np.delete(changed, range(SHIFTED.start, SHIFTED.stop)).any())
        shift = 0.5 * law.draw(prompts, rng)
        shift[:, SHIFTED] += 1
        paired += bool(leaves_zero_out(simultaneous(shift, seed=repeat))[SHIFTED].any())
    counts = {"unpaired": unpaired, "unpaired, elsewhere": elsewhere, "paired": paired}
    return {name: count / repeats for name, count in counts.items()}


def measured(repeats: int) -> dict[str, object]:
    """All cells."""
    real = medians_of_a_run()
    correlations = np.corrcoef(real.T)
    laws = [Law(name, correlations) for name in LAWS]

    def halves(m: int, n: int) -> Callable[[np.random.Generator], Pair]:
        def draw(rng: np.random.Generator) -> Pair:
            order = rng.permutation(len(real))
            return real[order[:m]], real[order[m : m + n]]

        return draw

    def drawn(law: Law, m: int, n: int, spread: float) -> Callable[[np.random.Generator], Pair]:
        return lambda rng: (spread * law.draw(m, rng), law.draw(n, rng))

    def prompt_pairs(n: int) -> Callable[[np.random.Generator], Table]:
        def draw(rng: np.random.Generator) -> Table:
            order = rng.permutation(len(real))
            return real[order[:n]] - real[order[n : 2 * n]]

        return draw

    null = {f"bundled model, {m} and {n}": rates(halves(m, n), repeats) for m, n in SIZES}
    for law in laws:
        for m, n in SIZES:
            null[f"{law.name}, {m} and {n}"] = rates(drawn(law, m, n, 1.0), repeats)
    spreads = {
        f"{law.name}, {m} and {n}, spread 3 and 1": rates(drawn(law, m, n, 3.0), repeats)
        for law in laws
        for m, n in ((16, 16), (8, 32))
    }
    pairs = {f"bundled model, {n}": paired_rates(prompt_pairs(n), repeats) for n in (8, 16, 32)}
    for law in laws:
        for n in (8, 16, 32):
            pairs[f"{law.name}, {n}"] = paired_rates(
                lambda rng, w=law, k=n: w.draw(k, rng), repeats
            )
    found = {
        f"{law.name}, {n}": power(law, n, max(repeats // 4, 1))
        for law in laws
        for n in (16, 32, 64)
    }
    return {
        "unpaired, share of splits with a change": null,
        "unpaired, equal means and unequal spreads": spreads,
        "paired, share with a change": pairs,
        "power, one standard deviation at three depths": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    start = time.perf_counter()
    record = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "repeats": options.repeats,
        "comparisons": 66,
        "figures": measured(options.repeats),
        "seconds": time.perf_counter() - start,
    }
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(record["figures"], indent=1, ensure_ascii=False))
    print(f"written: {options.out} ({record['seconds']:.0f} s)")


if __name__ == "__main__":
    main()
