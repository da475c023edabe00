"""How right the rotation of a velocity is, by samples and by grid, and what it costs.

Peers: the closed form for linear fields, the grid against the samples. Figures to keep: linear
fields from 20,000 samples within 3 % (d = 2 and 8) and on a grid within 1 %; samples and grid
within 3 % on a cubic field under a mixture; a planted share of .05 with noise = signal (d = 8,
n = 5,000) detected at p < .05 in at least 80 % of 50 seeds, a pure gradient in at most 10 %; the
whole answer with 1,000 resamples at N = 4,096, d = 8 and 64 groups in at most 3 s on one thread.

    python -m benchmarks.rotation [--seeds 50] [--out benchmarks/results/rotation.json]
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows.hodge import Settings, gradient_null, grid_rotation, planted_rotation, rotation

SPIN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
CENTRES, WIDTHS = np.array([[-1, 0], [1, 0.5]]), np.array([0.6, 0.9])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def closed_form(A: np.ndarray, Sigma: np.ndarray, a: np.ndarray) -> float:
    lhs = np.kron(a, Sigma) + np.kron(Sigma, a)
    S = solve(lhs, (A @ Sigma + Sigma @ A.T).ravel()).reshape(A.shape)
    W = A - a @ (0.5 * (S + S.T))
    return float(np.trace(np.linalg.inv(a) @ W @ Sigma @ W.T))


def linear_case(d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(1000 * d + seed)
    A, M, N = rng.standard_normal((d, d)), *(rng.standard_normal((2, d, 2 * d)))
    return A, M @ M.T / d, N @ N.T / d, rng


def linear_samples(d: int) -> dict[str, Any]:
    errors = []
    for seed in range(10):
        A, Sigma, a, rng = linear_case(d, seed)
        x = torch.from_numpy(rng.multivariate_normal(np.zeros(d), Sigma, 20_000))
        found = rotation(
            x, x @ torch.from_numpy(A).mT, diffusion=torch.from_numpy(a), generator=seeded(seed)
        )
        errors.append(found.energy / closed_form(A, Sigma, a) - 1)
    return {"relative_error": errors, "worst": float(np.abs(errors).max())}


def nodes(n: int, reach: tuple[float, ...]) -> tuple[np.ndarray, tuple[float, ...]]:
    lines = [np.linspace(-r, r, n) for r in reach]
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1), tuple(x[1] - x[0] for x in lines)


def linear_grid() -> dict[str, Any]:
    errors = []
    for seed in range(10):
        A, Sigma, a, _ = linear_case(2, seed)
        x, h = nodes(201, tuple(6 * np.sqrt(np.diag(Sigma))))
        mu = np.exp(-0.5 * np.einsum("...i,ij,...j", x, np.linalg.inv(Sigma), x))
        found = grid_rotation(mu, x @ A.T, h, diffusion=a)
        errors.append(found.energy / closed_form(A, Sigma, a) - 1)
    return {"nodes": 201, "relative_error": errors, "worst": float(np.abs(errors).max())}


def weighted() -> dict[str, float]:
    """The case of errata E44: 3.2; the unweighted problem gives 5."""
    x, h = nodes(121, (6, 12))
    u = np.stack([-x[..., 1], x[..., 0]], -1)
    grid = grid_rotation(np.exp(-(x[..., 0] ** 2) / 2 - x[..., 1] ** 2 / 8), u, h, diffusion=1.0)
    g = seeded(0)
    y = torch.randn(20_000, 2, generator=g, dtype=torch.float64) * torch.tensor([1.0, 2.0])
    samples = rotation(y, y @ SPIN.mT, diffusion=1.0, generator=g)
    return {"truth": 3.2, "unweighted": 5.0, "grid": grid.energy, "samples": samples.energy}


def cubic(x: np.ndarray) -> np.ndarray:
    X, Y = x[..., 0], x[..., 1]
    return np.stack([-Y + X * (1 - X**2), X - Y**3], -1)


def mixture() -> dict[str, Any]:
    grids = {}
    for n in (101, 201, 401):
        x, h = nodes(n, (5, 6))
        mu = sum(np.exp(-0.5 * (((x - c) / WIDTHS) ** 2).sum(-1)) for c in CENTRES)
        found = grid_rotation(mu, cubic(x), h, diffusion=1.0)
        grids[n] = {"energy": found.energy, "gamma": found.gamma, "condition": found.condition}
    truth = grids[401]["energy"] + (grids[401]["energy"] - grids[201]["energy"]) / 3
    rows = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = CENTRES[rng.integers(2, size=20_000)] + WIDTHS * rng.standard_normal((20_000, 2))
        field = torch.from_numpy(cubic(x))
        noisy = field + torch.from_numpy(rng.standard_normal(x.shape))
        one, two = (
            rotation(torch.from_numpy(x), u, diffusion=1.0, generator=seeded(seed))
            for u in (field, noisy)
        )
        rows.append([one.energy / truth - 1, two.energy / truth - 1])
    means = np.mean(rows, 0)
    return {
        "truth_by_grid": truth,
        "grids": grids,
        "relative_error_of_samples": [r[0] for r in rows],
        "relative_error_of_noisy_samples": [r[1] for r in rows],
        "mean_error_of_samples": float(means[0]),
        "mean_error_of_noisy_samples": float(means[1]),
    }


def field(seed: int, share: float) -> tuple[Tensor, Tensor, torch.Generator]:
    """Gradient −x of N(0, I₈) with a share of rotation; noise of the energy of the signal."""
    g = seeded(seed)
    x = torch.randn(5000, 8, generator=g, dtype=torch.float64)
    spin = torch.kron(torch.eye(4, dtype=torch.float64), SPIN)
    u = (1 - share) ** 0.5 * -x + share**0.5 * x @ spin.mT
    return x, u + torch.randn(5000, 8, generator=g, dtype=torch.float64), g


def detection(seeds: int) -> dict[str, Any]:
    found = {}
    for share in (0.05, 0.0):
        answers = [
            rotation(x, u, diffusion=1.0, generator=g)
            for x, u, g in (field(seed, share) for seed in range(seeds))
        ]
        shares = np.array([r.normalised for r in answers])
        found[str(share)] = {
            "detected": float(np.mean([r.p_value < 0.05 for r in answers])),
            "mean": float(shares.mean()),
            "sd": float(shares.std()),
            "covered_at_.95": float(np.mean([share in r.interval for r in answers])),
        }
    return {"seeds": seeds, **found}


def leaks() -> dict[str, Any]:
    """Largest share read into gradients outside the dictionary, on Gaussian and bent laws."""
    potentials = {
        "quartic": lambda x: x[:, 0] ** 4 / 4 + x[:, 0] ** 2 * x[:, 1] ** 2,
        "log cosh 3x": lambda x: torch.log(torch.cosh(3 * x[:, 0])),
        "cos(2x + y)": lambda x: torch.cos(2 * x[:, 0] + x[:, 1]),
    }
    found = {}
    for d in (2, 8):
        for law in ("gaussian", "two bent lumps"):
            g = seeded(0)
            x = torch.randn(10_000, d, generator=g, dtype=torch.float64)
            if law != "gaussian":
                x[:, :2] = 0.5 * x[:, :2] + 2.0 * torch.randint(2, (10_000, 1), generator=g) - 1
                x[:, 1] += 0.3 * x[:, 0] ** 2
            for name, potential in potentials.items():
                y = x.clone().requires_grad_()
                u = torch.autograd.grad(potential(y).sum(), y)[0]
                share = rotation(x, u, diffusion=1.0, generator=g).normalised
                found[f"d={d}, {law}, {name}"] = share
    return found


def controls() -> dict[str, float]:
    x, u, g = field(0, 0.0)
    null = gradient_null(x, u, diffusion=1.0, generator=g).measured
    planted = planted_rotation(x, u, 0.05, diffusion=1.0, generator=g).measured
    return {
        "null": null.normalised, "null_p": null.p_value,
        "planted": planted.normalised, "planted_p": planted.p_value,
    }  # fmt: skip


def cost() -> dict[str, Any]:
    x, u, g = field(0, 0.05)
    groups = torch.arange(4096) % 64
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        found = rotation(x[:4096], u[:4096], diffusion=1.0, generator=g, groups=groups)
        seconds.append(time.perf_counter() - start)
    return {
        "seconds_of_5": seconds,
        "draws": Settings().draws,
        "splits": Settings().splits,
        "regressors": found.regressors,
        "potentials": found.potentials,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=50)
    default = Path(__file__).parent / "results" / "rotation.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {"machine": described()}
    for name, measure in (
        ("cost", cost),
        ("linear_samples_d2", lambda: linear_samples(2)),
        ("linear_samples_d8", lambda: linear_samples(8)),
        ("linear_grid_d2", linear_grid),
        ("weighted_or_not", weighted),
        ("mixture", mixture),
        ("leaks", leaks),
        ("controls", controls),
        ("detection", lambda: detection(options.seeds)),
    ):
        record[name] = measure()
        print(name, json.dumps(record[name]))
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
