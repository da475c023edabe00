"""How well a denoising score is learned, scale by scale, and which choices of the recipe matter.

Truth: the analytic score of a two-component Gaussian mixture blurred by σ, in 2 and 8 dimensions,
at 4,000 fresh points noised alike. Peers, in the same run and on the same points: the score of the
Gaussian fit, and the recipe of source 000 M.2 piece by piece (its weight, its curriculum, single
noise instead of pairs ±ε). Medians and ranges over seeds. The error is also split into the part
that moves marginals and the part that only turns points.

    python benchmarks/scores.py [--seeds 3] [--out benchmarks/results/scores.json]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows.score import (
    ScoreTraining,
    fit_denoising_score,
    gaussian_score,
    mixture_score,
    noised_stein_identities,
    score_error,
)

POINTS, SCALES = 4_000, (0.1, 0.05, 0.02, 0.01)
SPREADS, DISTANCE = (0.25, 0.5), 1.5
RECIPES = {
    "default": ScoreTraining(),
    "curriculum": ScoreTraining(curriculum=0.3),
    "published weight": ScoreTraining(weight="published"),
    "published weight, curriculum": ScoreTraining(weight="published", curriculum=0.3),
    "single noise": ScoreTraining(paired=False),
    "single noise, published weight": ScoreTraining(paired=False, weight="published"),
}


class Mixture:
    """½N(m, ¼I) + ½N(−m, ½I), m = (1.5, 0, …)."""

    def __init__(self, d: int) -> None:
        self.means = torch.zeros(2, d)
        self.means[0, 0], self.means[1, 0] = DISTANCE, -DISTANCE
        self.variances = torch.tensor(SPREADS)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """N points of the law."""
        k = torch.randint(2, (n,), generator=generator)
        noise = torch.randn(n, self.means.shape[1], generator=generator)
        return self.means[k] + self.variances[k, None].sqrt() * noise

    def score(self, x: Tensor, sigma: float) -> Tensor:
        """Score of the law blurred by σ."""
        C = (self.variances[:, None, None] + sigma**2) * torch.eye(x.shape[1])
        return mixture_score(x, [0.5, 0.5], self.means, C)


def relative(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


def fitted(law: Mixture, recipe: ScoreTraining | None, seed: int) -> dict[str, Any]:
    """Errors per scale of one recipe (None: the Gaussian fit) on one draw of the data."""
    generator = torch.Generator().manual_seed(seed)
    x, fresh = law.draw(POINTS, generator), law.draw(POINTS, generator)
    noise = torch.randn(fresh.shape, generator=generator)
    start = time.perf_counter()
    if recipe is None:
        unit, mean, C = float(x.square().mean().sqrt()), x.mean(0), torch.cov(x.T)
        sigmas = tuple(c * unit for c in SCALES)

        def score(y: Tensor, s: float) -> Tensor:
            return gaussian_score(y, mean, C + s**2 * torch.eye(len(mean)))

        record: dict[str, Any] = {}
    else:
        score = found = fit_denoising_score(x, scales=SCALES, training=recipe, generator=generator)
        sigmas, record = found.sigmas, {"epochs": found.epochs, "status": found.status}
    record["seconds"] = time.perf_counter() - start
    rows = []
    for scale, sigma in zip(SCALES, sigmas, strict=True):
        y = fresh + sigma * noise
        truth, learned = law.score(y, sigma), score(y, sigma)
        check = noised_stein_identities(
            lambda z, s=sigma: score(z, s), fresh, sigma, tolerance=0.05, generator=generator
        )
        row = {"scale": scale, "relative_error": relative(learned, truth)}
        row |= {"stein": check.status, "stein_deviation": check.largest_deviation}
        if scale in (SCALES[0], SCALES[-1]):
            parts = score_error(y, learned, truth, generator=generator)
            row["gradient_share_of_error"] = parts.gradient / parts.total
            row["rotational_share_of_error"] = parts.rotational / parts.total
            row["relative_gradient_error"] = parts.relative_gradient
            row["split"] = parts.status
        rows.append(row)
    return record | {"scales": rows}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and range over seeds, per scale."""

    def spread(values: list[float]) -> dict[str, float]:
        ordered = sorted(values)
        return {"median": ordered[len(ordered) // 2], "low": ordered[0], "high": ordered[-1]}

    rows = []
    for per_scale in zip(*(run["scales"] for run in runs), strict=True):
        row: dict[str, Any] = {"scale": per_scale[0]["scale"]}
        for key, value in per_scale[0].items():
            values = [r[key] for r in per_scale]
            if isinstance(value, str):
                row[f"{key}_ok"] = f"{values.count('ok')} of {len(values)}"
            elif key != "scale":
                row[key] = spread(values)
        rows.append(row)
    found: dict[str, Any] = {"seconds": spread([run["seconds"] for run in runs]), "scales": rows}
    if "epochs" in runs[0]:
        found["epochs"] = [run["epochs"] for run in runs]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    default = Path(__file__).parent / "results" / "scores.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "points": POINTS,
        "seeds": options.seeds,
        "law": {"variances": SPREADS, "distance": DISTANCE, "weights": [0.5, 0.5]},
        "figures": [],
    }
    recipes: dict[str, ScoreTraining | None] = {"gaussian fit": None, **RECIPES}
    start = time.perf_counter()
    print(f"{'d':>2} {'recipe':32} relative error at {SCALES}        Stein ok   seconds")
    for d in (2, 8):
        for name, recipe in recipes.items():
            found = summary([fitted(Mixture(d), recipe, seed) for seed in range(options.seeds)])
            record["figures"].append({"dimension": d, "recipe": name} | found)
            errors = " ".join(f"{r['relative_error']['median']:.3f}" for r in found["scales"])
            stein = " ".join(r["stein_ok"].replace(" of ", "/") for r in found["scales"])
            shares = [r["gradient_share_of_error"]["median"] for r in (found["scales"][0],)]
            print(
                f"{d:2d} {name:32} {errors}   {stein}   {found['seconds']['median']:5.1f}"
                f"   gradient share {shares[0]:.2f}",
                flush=True,
            )
    record["total_seconds"] = time.perf_counter() - start
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {options.out} ({record['total_seconds']:.0f} s)")


if __name__ == "__main__":
    main()
