"""How often the grouped Stein check calls the true score wrong, and when it finds a wrong one.

Law: a mixture of two Gaussians in the plane. A group has 8 points of one component whose noises
share half of their variance, so that groups are the units. Null: the exact score. Planted: 1.2
times the exact score. No tolerance, level 5 %. Peers: the same check with points as units, which
ignores the groups; and the largest z against Student's quantile with Bonferroni's division.

Run: ``python -m benchmarks.stein_null``; writes ``benchmarks/results/stein_null.json``.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import torch
from scipy.special import stdtrit
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows.score import mixture_score, stein_identities

RESULT = Path(__file__).parent / "results" / "stein_null.json"
GROUPS, SIZE = (8, 16, 32, 64, 256, 1024), 8
WEIGHTS, MEANS = torch.tensor([0.3, 0.7]), torch.tensor([[2.0, 0.0], [-1.0, 1.0]])
COVARIANCES = torch.stack([torch.eye(2) * 0.25, torch.tensor([[1.0, 0.5], [0.5, 1.0]])])

IDENTITIES, PEER = 6, "wrong by Bonferroni's quantile"


def drawn(groups: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points, their exact scores and their groups."""
    generator = torch.Generator().manual_seed(seed)
    component = torch.multinomial(WEIGHTS, groups, replacement=True, generator=generator)
    component = component.repeat_interleave(SIZE)
    shared = torch.randn(groups, 2, generator=generator).repeat_interleave(SIZE, 0)
    noise = (shared + torch.randn(groups * SIZE, 2, generator=generator)) / 2**0.5
    roots = torch.linalg.cholesky(COVARIANCES)[component]
    points = MEANS[component] + (roots @ noise[..., None])[..., 0]
    scores = mixture_score(points, WEIGHTS, MEANS, COVARIANCES)
    return points, scores, torch.arange(groups).repeat_interleave(SIZE)


def shares(groups: int, repeats: int, factor: float, *, grouped: bool = True) -> dict[str, float]:
    """Share of each outcome."""
    outcomes: Counter[str] = Counter()
    for seed in range(repeats):
        points, scores, owner = drawn(groups, seed)
        check = stein_identities(
            factor * scores, points, groups=owner if grouped else None, tolerance=0.0
        )
        outcomes[check.outcome] += 1
        outcomes[PEER] += check.largest_z > stdtrit(groups - 1, 1 - 0.05 / (2 * IDENTITIES))
    return {name: outcomes[name] / repeats for name in ("ok", "wrong", "too few points", PEER)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    record = {
        "question": __doc__.splitlines()[0] if __doc__ else "",
        "machine": described(),
        "repeats": options.repeats,
        "exact score": {str(g): shares(g, options.repeats, 1.0) for g in GROUPS},
        "exact score, groups ignored": {
            str(g): shares(g, options.repeats // 4, 1.0, grouped=False) for g in GROUPS[2:5]
        },
        "1.2 times the score": {str(g): shares(g, options.repeats // 4, 1.2) for g in GROUPS},
        "seconds": time.perf_counter() - start,
    }
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(record, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
