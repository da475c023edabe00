"""How often the intervals and tests of the product decide wrongly where the truth is known.

Question: with a nominal error of 5 %, in how many of several thousand simulated runs does an
interval miss the true value, or a test reject a true null? Each cell calls the functions of
``flowscope.evidence`` that the product calls.

Data: every prompt has 6 to 18 tokens whose Gaussian scores share half of their variance with the
other tokens of the prompt; the scores become Gaussian, t3 or lognormal values by their quantiles.
"One value per prompt" is the hardest case for a mean: nothing is averaged inside a prompt. Peer for
means: the percentile bootstrap on the same draws. Peer for layers: permutation. The fast weighted
medians are timed beside the plain ones on the same draws, 16,384 tokens in 64 prompts.

Run: ``python -m benchmarks.calibration``; writes ``benchmarks/results/calibration.json`` and the
tables of ``docs/theory/calibration.md``. ``--repeats`` changes the number of simulated runs.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from benchmarks.machine import described
from flowscope.evidence import (
    Counts,
    mean_over_prompts,
    median_over_prompts,
    resampled_counts,
    simultaneous,
)
from flowscope.evidence.bootstrap import percentile_interval, resampled_medians
from flowscope.evidence.layer_shifts import shifted_correlations
from flowscope.evidence.weighted_medians import weighted_medians
from flowscope.records import Interval

RESULT = Path(__file__).parent / "results" / "calibration.json"
PAGE = Path(__file__).parents[1] / "docs" / "theory" / "calibration.md"
PROMPTS = (8, 16, 64)
UNITS = (8, 16, 32)
COLUMNS = 20
LAYERS = (10, 16, 30)
BATCH = 250
LAWS = ("Gauss", "t3", "lognormal")

Rates = dict[str, dict[str, float]]


def values_of(law: str, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard Gaussian scores as values of a law."""
    if law == "t3":
        return np.asarray(stdtrit(3, np.clip(ndtr(scores), 1e-15, 1 - 1e-15)))
    return np.exp(scores) if law == "lognormal" else scores


def mean_of(law: str) -> float:
    """The true mean."""
    return float(np.exp(0.5)) if law == "lognormal" else 0.0


def median_of(law: str) -> float:
    """The true median."""
    return 1.0 if law == "lognormal" else 0.0


def missed(interval: object, truth: float) -> NDArray[np.bool_]:
    """Whether the interval of each column misses the truth."""
    assert isinstance(interval, Interval)
    return (np.asarray(interval.low) > truth) | (np.asarray(interval.high) < truth)


def clustered(
    rng: np.random.Generator, prompts: int, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores of tokens in columns, half of their variance shared in a prompt, and the prompts."""
    owner = np.repeat(np.arange(prompts), rng.integers(6, 19, size=prompts))
    shared, alone = rng.normal(size=(prompts, columns)), rng.normal(size=(len(owner), columns))
    return np.sqrt(0.5) * (shared[owner] + alone), owner


def percentile_misses(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], counts: Counts, truth: float
) -> NDArray[np.bool_]:
    """Peer: the plain percentile bootstrap of the mean."""
    low, high = np.quantile((counts @ sums) / (counts @ sizes), [0.025, 0.975], axis=0)
    return np.asarray((low > truth) | (high < truth))


def batches(repeats: int, run: Callable[[int], dict[str, NDArray[np.bool_]]]) -> dict[str, float]:
    """Share of wrong decisions by name over all batches."""
    parts = [run(seed) for seed in range(-(-repeats // BATCH))]
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}


def means(law: str, prompts: int, repeats: int) -> dict[str, float]:
    """Misses of the interval of a mean, one value per prompt and tokens in prompts."""

    def run(seed: int) -> dict[str, NDArray[np.bool_]]:
        rng = np.random.default_rng([1, seed])
        counts, truth = resampled_counts(prompts, resamples=999, seed=seed), mean_of(law)
        single = values_of(law, rng.normal(size=(prompts, BATCH)))
        scores, owner = clustered(rng, prompts, BATCH)
        sums = np.zeros((prompts, BATCH))
        np.add.at(sums, owner, values_of(law, scores))
        sizes = np.repeat(np.bincount(owner)[:, None], BATCH, axis=1).astype(float)
        ones = np.ones_like(single)
        return {
            "one value per prompt": missed(mean_over_prompts(single, ones, counts)[1], truth),
            "tokens in prompts": missed(mean_over_prompts(sums, sizes, counts)[1], truth),
            "peer: percentile, one value": percentile_misses(single, ones, counts, truth),
        }

    return batches(repeats, run)


def medians(law: str, prompts: int, repeats: int) -> dict[str, float]:
    """Misses of the interval of a median, one value per prompt and tokens in prompts."""

    def run(seed: int) -> dict[str, NDArray[np.bool_]]:
        rng = np.random.default_rng([2, seed])
        counts, truth = resampled_counts(prompts, resamples=1), median_of(law)
        single = values_of(law, rng.normal(size=(prompts, BATCH)))
        scores, owner = clustered(rng, prompts, BATCH)
        _, alone = median_over_prompts(single, np.arange(prompts), counts)
        _, tokens = median_over_prompts(values_of(law, scores), owner, counts)
        return {
            "one value per prompt": missed(alone, truth),
            "tokens in prompts": missed(tokens, truth),
        }

    return batches(repeats, run)


def medians_together(law: str, prompts: int, repeats: int) -> dict[str, float]:
    """Misses of the interval of a difference of two medians and of the median of three."""

    def run(seed: int) -> dict[str, NDArray[np.bool_]]:
        rng = np.random.default_rng([3, seed])
        counts = resampled_counts(prompts, resamples=1000, seed=seed)
        scores, owner = clustered(rng, prompts, 3 * BATCH)
        points, draws = resampled_medians(values_of(law, scores), owner, counts)
        three, drawn = points.reshape(BATCH, 3), draws.reshape(-1, BATCH, 3)
        gap = percentile_interval(three[:, 0] - three[:, 1], drawn[..., 0] - drawn[..., 1], counts)
        middle = percentile_interval(np.median(three, 1), np.median(drawn, 2), counts)
        return {
            "difference of medians": missed(gap, 0.0),
            "median of medians": missed(middle, median_of(law)),
        }

    return batches(repeats, run)


def maxima(law: str, units: int, repeats: int) -> dict[str, float]:
    """Families of columns with a false rejection, by both nulls and without correction."""
    rng = np.random.default_rng([4, units])
    wrong: dict[str, list[bool]] = {}
    for repeat in range(repeats):
        shared, alone = rng.normal(size=(units, 1)), rng.normal(size=(units, COLUMNS))
        values = values_of(law, np.sqrt(0.5) * (shared + alone)) - mean_of(law)
        for name, symmetric in (("resamples", False), ("signs", True)):
            result = simultaneous(values, symmetric=symmetric, seed=repeat % 32)
            family = {
                f"{name}: p": result.p_any <= 0.05,
                f"{name}: joint intervals": bool(missed(result.joint, 0.0).any()),
            }
            for part, decision in family.items():
                wrong.setdefault(part, []).append(decision)
        uncorrected = bool(missed(result.pointwise, 0.0).any())
        wrong.setdefault("peer: pointwise intervals", []).append(uncorrected)
    return {name: float(np.mean(decisions)) for name, decisions in wrong.items()}


def autoregressive(
    rng: np.random.Generator, repeats: int, layers: int, factor: float
) -> NDArray[np.float64]:
    """Stationary series with this autocorrelation of neighbours."""
    noise = rng.normal(size=(repeats, layers + 60))
    for k in range(1, layers + 60):
        noise[:, k] += factor * noise[:, k - 1]
    return noise[:, 60:]


def layer_series(factor: float, layers: int, repeats: int) -> dict[str, float]:
    """Rejections of independent series by mirrored shifts and by permutation."""
    rng = np.random.default_rng([5, layers])
    first, second = (autoregressive(rng, repeats, layers, factor) for _ in range(2))
    orders = np.argsort(rng.random((199, layers)), axis=1)
    shifted, permuted = [], []
    for x, y in zip(first, second, strict=True):
        result = shifted_correlations(x, y)
        shifted.append(result.p <= 0.05)
        a, b = x - x.mean(), (y - y.mean())[orders]
        null = np.abs(b @ a) / np.sqrt((a @ a) * (b[0] @ b[0]))
        permuted.append((1 + np.sum(null >= abs(result.value))) / (1 + len(orders)) <= 0.05)
    return {
        "mirrored shifts": float(np.mean(shifted)),
        "peer: permutation": float(np.mean(permuted)),
    }


def plain_medians(
    ordered: NDArray[np.float64], owner: NDArray[np.int64], counts: Counts
) -> NDArray[np.float64]:
    """Peer: cumulate the weight of every token in every resample."""
    cumulative = np.cumsum(counts.astype(np.int32)[:, owner], axis=1, dtype=np.int64)
    total = cumulative[:, -1:]
    lower = (2 * cumulative >= total).argmax(1)
    upper = (2 * cumulative > total).argmax(1)
    return np.asarray((ordered[lower] + ordered[upper]) / 2)


def median_speed(repeats: int = 5) -> dict[str, float | bool]:
    """Time of the fast weighted medians against the plain ones, interleaved."""
    rng = np.random.default_rng(6)
    ordered, owner = np.sort(rng.normal(size=16_384)), rng.integers(64, size=16_384)
    counts, ratios, fastest = resampled_counts(64, resamples=1000), [], []
    for _ in range(repeats):
        start = time.perf_counter()
        plain = plain_medians(ordered, owner, counts)
        middle = time.perf_counter()
        fast = weighted_medians(ordered, owner, counts)
        fastest.append(time.perf_counter() - middle)
        ratios.append((middle - start) / fastest[-1])
    return {
        "ratio": float(np.median(ratios)),
        "milliseconds": 1000 * float(np.median(fastest)),
        "bit_equal": fast.tobytes() == plain.tobytes(),
    }


def rates(
    cell: Callable[[str, int, int], dict[str, float]], sizes: tuple[int, ...], n: int
) -> Rates:
    """One row per law and kind of number, one column per number of units."""
    table: Rates = {}
    for law in LAWS:
        for size in sizes:
            for name, rate in cell(law, size, n).items():
                table.setdefault(f"{law}: {name}", {})[str(size)] = rate
    return table


def measured(repeats: int) -> dict[str, Rates]:
    """All tables."""
    layers: Rates = {}
    for factor in (0.0, 0.8):
        for size in LAYERS:
            for name, rate in layer_series(factor, size, repeats).items():
                layers.setdefault(f"autocorrelation {factor:g}: {name}", {})[str(size)] = rate
    return {
        "means": rates(means, PROMPTS, repeats),
        "medians": rates(medians, PROMPTS, repeats),
        "medians together": rates(medians_together, PROMPTS, repeats),
        "many columns": rates(maxima, UNITS, repeats),
        "layers": layers,
    }


def table_text(table: Rates, over: str) -> str:
    """Rates in percent as a table of a page."""
    sizes = list(next(iter(table.values())))
    lines = [f"| wrong decisions in % | {' | '.join(f'{size} {over}' for size in sizes)} |"]
    lines += ["|---" * (1 + len(sizes)) + "|"]
    for name, row in table.items():
        lines += [f"| {name} | {' | '.join(f'{100 * rate:.1f}' for rate in row.values())} |"]
    return "\n".join(lines)


def written(page: str, name: str, text: str) -> str:
    """The page with the part between its two marks replaced."""
    first, last = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, _, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not rest or not end:
        raise SystemExit(f"{PAGE} has no place marked {first!r}.")
    return before + first + text + last + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    repeats = parser.parse_args().repeats
    start = time.process_time()
    tables, speed = measured(repeats), median_speed()
    seconds = time.process_time() - start
    document = {
        "repeats": repeats,
        "nominal": 0.05,
        "standard_error": float(np.sqrt(0.05 * 0.95 / repeats)),
        "seconds_of_one_core": seconds,
        "tables": tables,
        "weighted_medians": speed,
        "machine": described(),
    }
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    units = {"many columns": "units", "layers": "layers"}
    for name, table in tables.items():
        page = written(page, name, table_text(table, units.get(name, "prompts")))
    PAGE.write_text(page, encoding="utf-8")
    print(json.dumps(document, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
