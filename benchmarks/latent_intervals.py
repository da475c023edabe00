"""How often the intervals of the cloud of tokens hold the truth.

Question: do intervals by halves of the prompts hold the true number in 90 % of repeats or more, at
a nominal 95 %? Clouds are drawn from laws whose entropy is known: a Gaussian and a mixture of two,
points independent or with a part that all points of a prompt share; and one step of a noisy linear
flow of them. Entropies by nearest neighbours have a bias that a spread over halves cannot see, so
that their cover is given for the truth and for the mean of the estimator.

    python -m benchmarks.latent_intervals --repeats 200

The result is ``benchmarks/results/latent_intervals.json``.
"""

import argparse
import json
import math
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.evidence import half_ends
from flowscope.flows.entropy import half_samples
from flowscope.flows.potential import TERMS, entropy_change, mean_flow
from flowscope.instruments.latent.clouds import Sample
from flowscope.instruments.latent.entropy.reading import (
    ENTROPIES,
    cloud_entropies,
    principal_axes,
)
from flowscope.instruments.latent.rate.steps import COLUMNS, PLAIN, step_curvatures

RESULT = Path(__file__).parent / "results" / "latent_intervals.json"
PROMPTS, EACH, RANK, DRAWS = 24, 62, 8, 48
SHARED = 0.2
"""Share of the variance that all points of a prompt have in common."""

CURVED = 50
"""Repeats in which the curvature of the step is read, which takes longest."""

APART = 4.0
"""Distance of the two Gaussians of the mixture, along the first coordinate."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--step", action="store_true", help="the step alone; other rows are kept")
    options = parser.parse_args()
    start = time.process_time()
    rows, laws = [], () if options.step else ("Gaussian", "mixture of two")
    if options.step:
        before = json.loads(RESULT.read_text(encoding="utf-8"))
        rows = [row for row in before["rows"] if not row["law"].startswith("step")]
        start -= before["processor_seconds"]
    for law in laws:
        for shared in (0.0, SHARED):
            for rank in (2, RANK):
                rows += _cloud(law, shared, rank, options.repeats)
    for shared in (0.0, SHARED):
        rows += _step(shared, options.repeats)
    document = {
        "machine": described(),
        "prompts": PROMPTS,
        "points": PROMPTS * EACH,
        "repeats": options.repeats,
        "processor_seconds": round(time.process_time() - start, 1),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _points(law: str, shared: float, rank: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of unit variance about their centre, and the prompt of each."""
    groups = torch.arange(PROMPTS).repeat_interleave(EACH)
    own = torch.randn(len(groups), rank, generator=g, dtype=torch.float64)
    common = torch.randn(PROMPTS, rank, generator=g, dtype=torch.float64)[groups]
    x = math.sqrt(1 - shared) * own + math.sqrt(shared) * common
    if law != "Gaussian":
        side = torch.randint(2, (len(groups),), generator=g).double() * 2 - 1
        x[:, 0] += 0.5 * APART * side
    return x, groups


def _truth(law: str, rank: int) -> dict[str, float]:
    """Exact entropies of the law that points of many prompts have."""
    normal = 0.5 * math.log(2 * math.pi * math.e)
    if law == "Gaussian":
        exact = rank * normal
        return {"entropy_knn": exact, "entropy_gaussian": exact, "negentropy": 0.0}
    gaussian = rank * normal + 0.5 * math.log(1 + APART**2 / 4)
    y = np.linspace(-12, 12, 48001)
    p = sum(np.exp(-0.5 * (y - c) ** 2) for c in (-0.5 * APART, 0.5 * APART))
    p = p / (2 * math.sqrt(2 * math.pi))
    exact = (rank - 1) * normal - float((p * np.log(p)).sum() * (y[1] - y[0]))
    return {"entropy_knn": exact, "entropy_gaussian": gaussian, "negentropy": gaussian - exact}


def _cloud(law: str, shared: float, rank: int, repeats: int) -> list[dict[str, object]]:
    truth, found = _truth(law, rank), defaultdict(list)
    for seed in range(repeats):
        g = torch.Generator().manual_seed(seed)
        x, groups = _points(law, shared, rank, g)
        sample = Sample(
            name="all", places=torch.arange(len(x)), prompt=groups,
            kind=torch.full((len(x),), -1), halves=half_samples(groups, DRAWS, g),
        )  # fmt: skip
        values, (reason,) = cloud_entropies(
            principal_axes(x), sample, (rank,), k=3, surrogates=3, generator=g
        )
        assert not reason, reason
        for name in truth:
            found[name].append(values[0, :, ENTROPIES.index(name)])
    case = {"law": law, "shared": shared, "coordinates": rank}
    return [case | _row(name, np.stack(found[name]), truth[name]) for name in truth]


def _step(shared: float, repeats: int) -> list[dict[str, object]]:
    """One step of a noisy linear flow of a Gaussian cloud."""
    move = torch.eye(RANK, dtype=torch.float64) * 1.1
    move[0, 1], move[1, 0], noise = 0.3, -0.3, 0.1
    after = move @ move.mT + noise**2 * torch.eye(RANK, dtype=torch.float64)
    change = 0.5 * float(torch.logdet(after))
    turned = 2 * 0.3**2
    truth = {
        "difference": change, "gaussian": change, "flow": float(torch.logdet(move)),
        "lambda_min": -0.1, "turning": turned / (turned + RANK * 0.1**2),
    }  # fmt: skip
    found = defaultdict(list)
    for seed in range(repeats):
        g = torch.Generator().manual_seed(seed)
        y, groups = _points("Gaussian", shared, RANK, g)
        jump = noise * torch.randn(y.shape, generator=g, dtype=torch.float64)
        flow = mean_flow(y, y @ move.mT + jump, groups)
        halves = half_samples(groups, DRAWS, g)
        made = entropy_change(flow, groups, halves)
        terms = torch.cat([made.values[None], made.halves]).numpy()
        for name, column in zip(TERMS, terms.T, strict=True):
            found[name].append(column)
        if seed < CURVED:
            bent = np.array([step_curvatures(flow, half) for half in (None, *halves)])
            for name, column in zip(COLUMNS[len(TERMS) :], bent.T, strict=True):
                found[name].append(column)
    case = {"law": "step of a linear flow", "shared": shared, "coordinates": RANK}
    values = {name: np.stack(rows) for name, rows in found.items()}
    return [
        case | _row(name, values[name], truth[name], values.get(PLAIN.get(name, "")))
        for name in truth
    ]


def _row(
    name: str, values: np.ndarray, truth: float, plain: np.ndarray | None = None
) -> dict[str, object]:
    """Cover of one number; ``values`` are [repeats, 1 + draws], the whole sample first.

    ``plain`` are those of one fit, whose lower end counts where it is lower.
    """
    low, high = _ends(values)
    if plain is not None:
        low = np.minimum(low, _ends(plain)[0])
    middle = float(values[:, 0].mean())
    row = {
        "number": name,
        "repeats": len(values),
        "truth": round(truth, 4),
        "mean": round(middle, 4),
        "spread": round(float(values[:, 0].std()), 4),
        "half_width": round(float((high - low).mean() / 2), 4),
        "cover_of_truth": float(((low <= truth) & (truth <= high)).mean()),
        "cover_of_mean": float(((low <= middle) & (middle <= high)).mean()),
    }
    print(row, flush=True)
    return row


def _ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = [half_ends(one[:1], one[1:, None], PROMPTS) for one in values]
    return tuple(np.array([float(getattr(e, side)[0]) for e in ends]) for side in ("low", "high"))


if __name__ == "__main__":
    main()
