"""Order of a sampler as step doubling finds it, for an exact and for a learned score.

Exact score: Gaussian data of variance ¼, reverse SDE of dx = −x dt + √2 dW from T = 3, where the
slope of the doubled differences is known without sampling (−1.0214 for K = 200…1600; −1 is its
limit for K → ∞). Question: does the interval hold the known slope, and does it hold −1?

Learned score: two arms ±2 of variance ¼, the score fitted by ridge regression on noised samples
(radial functions and a line in x, polynomials in t). Questions: do the reverse SDE and the
probability flow still end in one law, and what slope does doubling show? Peers: the exact score of
the same mixture, and two independent samples of one law (the floor of both distances).

    python benchmarks/weak_error.py [--samples 1000000] [--out benchmarks/results/weak_error.json]
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ks_2samp, wasserstein_distance
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows.sampling import (
    Doubling,
    family_drift,
    linear_weak_error,
    sde_path,
    step_doubling,
    weak_error_slope,
)

HORIZON, S2, MU, SEED, BLOCKS = 3.0, 0.25, 2.0, 0, 20
GAUSSIAN_STEPS, MIXTURE_STEPS = (200, 400, 800, 1600), (100, 200, 400)
FITTED, RIDGE, DEGREE = 200_000, 1e-4, 5
CENTRES = torch.linspace(-3.5, 3.5, 13)
WIDTH = 0.7
Score = Callable[[Tensor, Tensor], Tensor]


def variance(t: Tensor) -> Tensor:
    """Variance at t of one arm."""
    return 1 - (1 - S2) * torch.exp(-2 * t)


def gaussian_score(t: Tensor, x: Tensor) -> Tensor:
    return -x / variance(t)


def mixture_score(t: Tensor, x: Tensor) -> Tensor:
    slope = torch.exp(-t) * MU / variance(t)
    return slope * torch.tanh(slope * x) - x / variance(t)


def mixture(n: int, generator: torch.Generator) -> Tensor:
    sign = torch.randint(2, (n, 1), generator=generator) * 2.0 - 1
    return MU * sign + S2**0.5 * torch.randn(n, 1, generator=generator)


def noised_mixture(n: int, generator: torch.Generator) -> Tensor:
    alpha = math.exp(-HORIZON)
    noise = torch.randn(n, 1, generator=generator)
    return alpha * mixture(n, generator) + math.sqrt(1 - alpha**2) * noise


def features(x: Tensor) -> Tensor:
    bumps = torch.exp(-0.5 * ((x - CENTRES.to(x)) / WIDTH) ** 2)
    return torch.cat([torch.ones_like(x), x, bumps], -1)


def clock(t: Tensor) -> Tensor:
    """Polynomials in e^{−t}, in which the score is smooth."""
    return torch.stack([torch.exp(-k * t) for k in range(DEGREE + 1)], -1)


def learned_score(generator: torch.Generator) -> Score:
    """Ridge regression of −noise/σ on noised samples, weighted by σ² (denoising score matching)."""
    t = HORIZON * torch.rand(FITTED, 1, generator=generator) ** 2
    alpha, noise = torch.exp(-t), torch.randn(FITTED, 1, generator=generator)
    sigma = (1 - alpha**2).sqrt()
    x = alpha * mixture(FITTED, generator) + sigma * noise
    design = (features(x)[:, :, None] * clock(t)).reshape(FITTED, -1)
    weighted = (sigma * design).double()
    gram = weighted.mT @ weighted / FITTED
    gram += RIDGE * gram.diag().mean() * torch.eye(len(gram), dtype=torch.float64)
    found = torch.linalg.solve(gram, weighted.mT @ -noise.double() / FITTED)
    coefficients = found.reshape(-1, DEGREE + 1).float()

    def score(at: Tensor, y: Tensor) -> Tensor:
        return features(y) @ (coefficients @ clock(at).float())[:, None]

    return score


def sampler(score: Score, lam: float) -> Callable[[Tensor, Tensor], Tensor]:
    member = family_drift(
        lambda t, x: -x, score, 2.0, lam=lam, direction="reverse", horizon=HORIZON
    )

    def ends(x0: Tensor, dw: Tensor) -> Tensor:
        path = sde_path(
            member.drift,
            member.noise,
            x0,
            [0.0, HORIZON],
            substeps=len(dw),
            increments=dw,
            generator=torch.Generator(),
        )
        return path.states[-1]

    return ends


def doubled(score: Score, lam: float, samples: int, steps: tuple[int, ...], start: Any) -> Doubling:
    return step_doubling(
        sampler(score, lam),
        {"square": lambda x: x[:, 0] ** 2},
        steps,
        start=start,
        horizon=HORIZON,
        samples=samples,
        blocks=BLOCKS,
        generator=torch.Generator().manual_seed(SEED),
    )["square"]


def within(found: Doubling, value: float) -> bool:
    return found.slope.interval[0] <= value <= found.slope.interval[1]


def gaussian_figures(samples: int) -> dict[str, Any]:
    exact = linear_weak_error(
        [*GAUSSIAN_STEPS, 2 * GAUSSIAN_STEPS[-1]],
        mean=[0.0],
        covariance=[[S2]],
        linear=[[-1.0]],
        diffusion=[[2.0]],
        horizon=HORIZON,
        lam=1.0,
    ).covariance_error.flatten()
    known = weak_error_slope(GAUSSIAN_STEPS, exact[:-1] - exact[1:]).slope
    deviation = math.sqrt(float(variance(torch.tensor(HORIZON))))
    found = doubled(
        gaussian_score,
        1.0,
        samples,
        GAUSSIAN_STEPS,
        lambda n, g: deviation * torch.randn(n, 1, generator=g),
    )
    return {
        "doubling": asdict(found),
        "known_differences": (exact[:-1] - exact[1:]).tolist(),
        "known_doubling_slope": known,
        "known_error_slope": weak_error_slope(GAUSSIAN_STEPS, exact[:-1]).slope,
        "interval_holds_known_slope": within(found, known),
        "interval_holds_minus_one": within(found, -1.0),
    }


def distances(a: Tensor, b: Tensor) -> dict[str, float]:
    x, y = a[:, 0].numpy(), b[:, 0].numpy()
    return {"w1": float(wasserstein_distance(x, y)), "ks": float(ks_2samp(x, y).statistic)}


def mixture_figures(score: Score, samples: int, steps: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(SEED + 1)
    n = samples // 5
    ends = {}
    for name, lam in (("sde", 1.0), ("flow", 0.0)):
        dw = math.sqrt(HORIZON / steps) * torch.randn(steps, n, 1, generator=generator)
        ends[name] = sampler(score, lam)(noised_mixture(n, generator), dw)
    data = mixture(n, generator)
    slopes = {
        name: doubled(score, lam, samples // 5, MIXTURE_STEPS, noised_mixture)
        for name, lam in (("sde", 1.0), ("flow", 0.0))
    }
    return {
        "samples": n,
        "steps": steps,
        "sde_against_flow": distances(ends["sde"], ends["flow"]),
        "sde_against_data": distances(ends["sde"], data),
        "flow_against_data": distances(ends["flow"], data),
        "two_samples_of_the_data": distances(mixture(n, generator), data),
        "doubling": {name: asdict(found) for name, found in slopes.items()},
        "interval_holds_minus_one": {name: within(found, -1.0) for name, found in slopes.items()},
    }


def score_error(score: Score) -> float:
    """Root mean square error of a score over the noised mixture, t uniform, over that of zero."""
    generator = torch.Generator().manual_seed(SEED + 2)
    missed, whole = 0.0, 0.0
    for t in torch.linspace(0.05, HORIZON, 20):
        alpha = torch.exp(-t)
        noise = torch.randn(20_000, 1, generator=generator)
        x = alpha * mixture(20_000, generator) + (1 - alpha**2).sqrt() * noise
        true = mixture_score(t, x)
        missed += float((score(t, x) - true).square().mean())
        whole += float(true.square().mean())
    return float(np.sqrt(missed / whole))


def summary(record: dict[str, Any]) -> str:
    exact = record["gaussian"]
    slope = exact["doubling"]["slope"]
    low, high = slope["interval"]
    verdict = {True: "inside", False: "outside"}
    lines = [
        f"Gaussian, K = {GAUSSIAN_STEPS}: slope {slope['slope']:.4f} [{low:.4f}, {high:.4f}]",
        f"  known slope {exact['known_doubling_slope']:.4f} "
        f"{verdict[exact['interval_holds_known_slope']]}, "
        f"-1 {verdict[exact['interval_holds_minus_one']]}",
    ]
    for name in ("exact", "learned"):
        found = record["mixture"][name]
        lines.append(f"mixture, {name} score: " + ", ".join(
            f"{pair} W1 {found[pair]['w1']:.4f} KS {found[pair]['ks']:.4f}"
            for pair in ("sde_against_flow", "sde_against_data", "flow_against_data",
                         "two_samples_of_the_data")
        ))  # fmt: skip
        for kind, one in found["doubling"].items():
            low, high = one["slope"]["interval"]
            lines.append(f"  {kind}: slope {one['slope']['slope']:.4f} [{low:.4f}, {high:.4f}]")
    lines.append(f"relative error of the learned score: {record['learned_score_error']:.4f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=1_000_000)
    default = Path(__file__).parent / "results" / "weak_error.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    began = time.perf_counter()
    learned = learned_score(torch.Generator().manual_seed(SEED))
    record = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "seed": SEED,
        "samples": options.samples,
        "blocks": BLOCKS,
        "dtype": "float32",
        "test_function": "square",
        "gaussian": gaussian_figures(options.samples),
        "learned_score_error": score_error(learned),
        "mixture": {
            name: mixture_figures(score, options.samples, 800)
            for name, score in (("exact", mixture_score), ("learned", learned))
        },
    }
    record["seconds"] = round(time.perf_counter() - began, 1)
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(summary(record))
    print(f"{record['seconds']} s; written: {options.out}")


if __name__ == "__main__":
    main()
