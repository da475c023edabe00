"""Whether the null of the parity test holds its level, on a mixture with its exact score.

The probability flow and the SDE of the mixture share their marginals up to the error of their
steps, which is below what so few images can see. Many repeats with other seeds: how often the p
value over all times is at most .05, and how often that of a single time is.

Run: ``python -m benchmarks.image_null --out FILE``.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from flowscope.flows.sampling import MarginalParity
from flowscope.instruments.image.config import ImageConfig
from flowscope.instruments.image.models import MixtureModel
from flowscope.instruments.image.parity.paths import Axes, path_runs
from flowscope.instruments.image.parity.tables import parity_of
from flowscope.instruments.image.stage import ImageStage
from flowscope.records import Manifest, Run, Shards


def parity(seed: int, *, images: int, steps: int, integrator: str = "ddim") -> MarginalParity:
    """The flow of the mixture against its SDE, for one seed."""
    model = MixtureModel()
    eye = torch.eye(4, dtype=torch.float64)
    axes = Axes(centre=torch.zeros(4, dtype=torch.float64), axes=eye[:, :2])
    config = ImageConfig.resolved(
        {"images": images, "steps": steps, "bins": 32 if images < 4096 else 64, "seed": seed,
         "batch": min(images, 4096), "rotation_times": 0, "uturn_images": 0,
         "information_images": 0, "draws": 199, "integrator": integrator}
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        stage = ImageStage(
            model=model,
            reader=model.read,
            config=config,
            shards=Shards(
                run=Run.create(Path(folder) / "run", Manifest(seeds={"all": seed})),
                fingerprint="0" * 16,
            ),
            advance=lambda more: None,
            asked=False,
        )
        return parity_of(path_runs(stage, axes), config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    overall, single = [], []
    for seed in range(options.repeats):
        found = parity(seed, images=options.images, steps=options.steps)
        overall.append((found.tv_p_overall, found.ks_p_overall))
        single.append((found.tv_p[:, -1].numpy(), found.ks_p[:, -1].numpy()))
    whole, each = np.asarray(overall) <= 0.05, np.asarray(single) <= 0.05
    lines = [
        f"{options.repeats} repeats, {options.images} images of 2 x 2, {options.steps} steps, "
        "nominal level .05",
        f"{'':<22}{'TV':>8}{'KS':>8}",
        f"{'over all times':<22}{whole[:, 0].mean():8.3f}{whole[:, 1].mean():8.3f}",
        f"{'one time, mean':<22}{each[:, 0].mean():8.3f}{each[:, 1].mean():8.3f}",
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
