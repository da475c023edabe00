"""How often a field is said to turn, and how much of it, where the answer is known.

Subjects: gradients of log-sum-exp potentials on ten clusters in six coordinates; a linear rotation
of small share in eight coordinates with noise of the energy of the signal; rough fields in two
coordinates whose rotation has a share of .6 to .9; rough rotation in eight coordinates.

Figures to keep: log-sum-exp gradients are called rotation in at most 5 % at n = 2,000 and 5,000;
a linear rotation of share .05 (n = 5,000) is found in at least 95 %; rough fields in two
coordinates are never said to be mostly transport; ten layers of 32 × 32 tokens in eight
coordinates take at most 10 s of one processor. Rough rotation in eight coordinates cannot be
found: the row says how often it is. The former test (``rotation`` with its p-value) runs on the
first seeds of the first subject for comparison.

    python -m benchmarks.rotation_panel [--seeds 20] [--out benchmarks/results/rotation_panel.json]
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows.hodge import (
    RotationReading,
    Settings,
    rotation,
    rotation_amount,
    rotation_presence,
    rotation_reading,
)

LEVEL = 0.05
FORMER_SEEDS = 4
Field = tuple[Tensor, Tensor]


class Draws:
    """Random numbers of one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers between 0 and 1."""
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)


def with_energy(u: Tensor, energy: float) -> Tensor:
    return u * math.sqrt(energy / float(u.square().sum(1).mean()))


def log_sum_exp(seed: int, n: int, d: int = 6, clusters: int = 10) -> Field:
    """Gradient of a log-sum-exp potential; noise of the energy of the signal.

    Over seeds the clusters have widths of .3 to 1 of their distances, the temperature is .1 to 1,
    keys are the cluster centres or others, and logits are plain products or negative distances.
    """
    g = Draws(seed)
    width, temperature = (0.3, 0.6, 1.0)[seed % 3], (0.1, 0.3, 1.0)[seed // 3 % 3]
    centres = g.normal(clusters, d)
    x = centres[torch.randint(clusters, (n,), generator=g.generator)] + width * g.normal(n, d)
    keys = centres if seed % 2 == 0 else g.normal(clusters, d)
    offset = 0.5 * keys.square().sum(1) * (seed % 4 == 3)
    u = ((x @ keys.mT - offset) / temperature).softmax(1) @ keys
    return x, with_energy(u, d) + g.normal(n, d)


def linear(seed: int, n: int, share: float, d: int = 8) -> Field:
    """−x under N(0, I) with a share of rotation; noise of the energy of the signal."""
    g = Draws(seed)
    x = g.normal(n, d)
    spin = torch.kron(torch.eye(d // 2), torch.tensor([[0.0, -1.0], [1.0, 0.0]])).double()
    u = math.sqrt(1 - share) * -x + math.sqrt(share) * x @ spin.mT
    return x, u + g.normal(n, d)


def quiet_linear(seed: int, n: int, share: float, d: int = 4) -> Field:
    """The same in few coordinates, with noise of a tenth of the energy of the signal."""
    x, u = linear(seed, n, share, d)
    g = Draws(seed)
    g.normal(n, d)
    return x, u - (1 - math.sqrt(0.1)) * g.normal(n, d)


def rough_plane(seed: int, n: int, smooth: bool) -> Field:
    """Field in a square with rotation of share .6 to .9: stream functions sin kx · sin ly, k ≥ 4.

    Points are uniform and the stream functions vanish on the border, so the share is exact up to
    sampling. The gradient part is as rough, or smooth; noise has a tenth of the energy.
    """
    g = Draws(seed)
    share = 0.6 + 0.3 * (seed % 7) / 6
    x = math.pi * g.uniform(n, 2)
    turning, rising = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(4, 9):
        for m in range(4, 9):
            a, b = g.normal(2).tolist()
            s, c = (x * torch.tensor([k, m])).sin(), (x * torch.tensor([k, m])).cos()
            turning += a * torch.stack([m * s[:, 0] * c[:, 1], -k * c[:, 0] * s[:, 1]], 1)
            rising -= b * torch.stack([k * s[:, 0] * c[:, 1], m * c[:, 0] * s[:, 1]], 1)
    if smooth:
        rising = x - x.mean(0)
    u = with_energy(turning, share) + with_energy(rising, 1 - share)
    return x, u + math.sqrt(0.05) * g.normal(n, 2)


def rough_many(seed: int, n: int, d: int = 8, share: float = 0.5) -> Field:
    """Rotation S∇ψ − ψSx of waves ψ under N(0, I), which no potential has a part of, beside −x."""
    g = Draws(seed)
    x = g.normal(n, d)
    turning = torch.zeros_like(x)
    for _ in range(20):
        skew = g.normal(d, d)
        skew = skew - skew.mT
        omega = 1.5 * g.normal(d)
        phase = x @ omega + 6.3 * g.uniform(1)
        slope = -phase.sin()[:, None] * omega
        turning += (slope - phase.cos()[:, None] * x) @ skew.mT
    u = with_energy(turning, share * d) - math.sqrt(1 - share) * x
    return x, u + g.normal(n, d)


def read(field: Field, seed: int) -> RotationReading:
    return rotation_reading(*field, groups=None, seed=seed)


def panel(made: Callable[[int], Field], seeds: int) -> dict[str, Any]:
    """Share of seeds with a presence, and outcomes of the amount."""
    rows = []
    for seed in range(seeds):
        one = read(made(seed), seed)
        there, much = rotation_presence([one]), rotation_amount([one])
        rows.append(
            {
                "p": there.p,
                "normalised": one.normalised.value,
                "control": one.control,
                "effect": [there.effect.value, there.effect.low, there.effect.high],
                "represented": one.represented.value,
                "bounds": [much.lower, much.upper],
                "outcome": much.outcome,
            }
        )
    outcomes = [row["outcome"] for row in rows]
    return {
        "seeds": seeds,
        "called_rotation": float(np.mean([row["p"] < LEVEL for row in rows])),
        "outcomes": {name: outcomes.count(name) for name in ("holds", "abstains", "fails")},
        "mean_normalised": float(np.mean([row["normalised"] for row in rows])),
        "largest_normalised": float(np.max([row["normalised"] for row in rows])),
        "mean_represented": float(np.mean([row["represented"] for row in rows])),
        "rows": rows,
    }


def former(made: Callable[[int], Field], seeds: int) -> dict[str, Any]:
    """The test by the p-value of ``rotation`` alone."""
    found = []
    for seed in range(seeds):
        x, u = made(seed)
        g = torch.Generator().manual_seed(seed)
        found.append(rotation(x, u, diffusion=1.0, generator=g, settings=Settings(draws=400)))
    return {
        "seeds": seeds,
        "called_rotation": float(np.mean([one.p_value < LEVEL for one in found])),
        "normalised": [one.normalised for one in found],
    }


def layers_time() -> dict[str, float]:
    """Processor seconds for ten layers of 32 prompts of 32 tokens in eight coordinates."""
    groups = torch.arange(1024) // 32
    start = time.process_time()
    for layer in range(10):
        x, u = linear(layer, 1024, 0.1)
        rotation_reading(x, u, groups=groups, seed=0)
    return {"layers": 10, "processor_seconds": time.process_time() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rotation_panel.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    few = max(1, asked.seeds // 2)
    subjects: dict[str, tuple[Callable[[int], Field], int]] = {
        "log_sum_exp_2000": (lambda s: log_sum_exp(s, 2000), asked.seeds),
        "log_sum_exp_5000": (lambda s: log_sum_exp(s, 5000), asked.seeds),
        "linear_.05_5000": (lambda s: linear(s, 5000, 0.05), asked.seeds),
        "linear_.02_5000": (lambda s: linear(s, 5000, 0.02), few),
        "rough_plane": (lambda s: rough_plane(s, 5000, smooth=False), asked.seeds),
        "rough_plane_smooth_gradient": (lambda s: rough_plane(s, 5000, smooth=True), asked.seeds),
        "rough_eight": (lambda s: rough_many(s, 5000), few),
    }
    found: dict[str, Any] = {"machine": described(), "level": LEVEL, "time": layers_time()}
    print(found["time"], flush=True)
    for name, (made, seeds) in subjects.items():
        found[name] = panel(made, seeds)
        print(name, {k: v for k, v in found[name].items() if k != "rows"}, flush=True)
    made = subjects["log_sum_exp_5000"][0]
    found["former_log_sum_exp_5000"] = former(made, min(FORMER_SEEDS, asked.seeds))
    print("former", found["former_log_sum_exp_5000"], flush=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
