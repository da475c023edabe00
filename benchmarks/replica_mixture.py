"""How far the moments of a mixture can be trusted, by the number of pairs.

Of Gaussian projections: how often m² is above 0, and how often the interval of the separation lies
above 0 (it should not). Of a mixture with m² = 4, c = 1: how often it does, and how often the
intervals of m² and c hold the truth at a nominal 95 %.

    python -m benchmarks.replica_mixture

Results are kept in ``results/replica_mixture.json``.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.machine import described
from flowscope.replica import mixture_moments

RESULTS = Path(__file__).parent / "results" / "replica_mixture.json"
REPEATS, RESAMPLES = 400, 400
SEEDS = (8, 16, 32, 64, 256)


def measured(n: int) -> dict[str, float]:
    """Shares over the repeats, for n seeds."""
    generator = np.random.default_rng(n)
    gaussian, mixture = [], []
    for k in range(REPEATS):
        noise, branch = generator.standard_normal(n), generator.choice([-2.0, 2.0], n)
        gaussian.append(mixture_moments(noise, resamples=RESAMPLES, seed=k))
        mixture.append(mixture_moments(branch + generator.standard_normal(n),
                                       resamples=RESAMPLES, seed=k))  # fmt: skip
    return {
        "gaussian_m2_above_0": float(np.mean([x.m2 > 0 for x in gaussian])),
        "gaussian_separated": float(np.mean([x.separation_interval[0] > 0 for x in gaussian])),
        "mixture_separated": float(np.mean([x.separation_interval[0] > 0 for x in mixture])),
        "m2_covered": float(np.mean([x.m2_interval[0] <= 4 <= x.m2_interval[1] for x in mixture])),
        "c_covered": float(np.mean([x.c_interval[0] <= 1 <= x.c_interval[1] for x in mixture])),
    }


def main() -> None:
    found = {str(n): measured(n) for n in SEEDS}
    document = {"repeats": REPEATS, "resamples": RESAMPLES, "seeds": found, "machine": described()}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    for n, shares in found.items():
        print(n, {name: round(share, 3) for name, share in shares.items()})


if __name__ == "__main__":
    main()
