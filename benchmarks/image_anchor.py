"""Is it the step? The parity test on a mixture with its exact score, at several numbers of steps.

The probability flow and the SDE share their marginals exactly; what 20,000 images tell apart is the
error of their steps. p over all times for five seeds, and the total variation after the last step.

Run: ``python -m benchmarks.image_anchor --out FILE``.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.image_null import parity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"{options.images} images of 2 x 2, 64 bins, seeds 0 to {options.seeds - 1}; p over all "
        "times by TV, 199 swaps",
        f"{'step':<8}{'K':>5}  {'p':<36}{'TV at the end':<36}{'null':>7}",
    ]
    for integrator in ("ddim", "euler"):
        for steps in (50, 100, 200):
            found = [
                parity(seed, images=options.images, steps=steps, integrator=integrator)
                for seed in range(options.seeds)
            ]
            p = " ".join(f"{one.tv_p_overall:.3f}" for one in found)
            tv = " ".join(f"{float(one.tv[-1, -1]):.4f}" for one in found)
            null = float(found[0].tv_null[-1, -1])
            lines.append(f"{integrator:<8}{steps:>5}  {p:<36}{tv:<36}{null:7.4f}")
            print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
