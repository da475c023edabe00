"""The order of scales in the kept study of the bundled model, beside that of its Gaussian.

Question: is the gap between coarse and fine that the study measured (64 pairs, 100 steps, six
couplings) more than Gaussian images with the same covariance give? The study kept medians over
pairs and not the pairs, so that its gaps have no interval here; the control is run with 32 pairs
at three of the couplings, and medians are taken of it too. The covariance is that of 200 images
of the model, made in 16 steps.

    python -m benchmarks.sync_order --finals FILE.npy

``--finals`` keeps the images, which take minutes to make. The result is
``benchmarks/results/sync_order.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.machine import described
from flowscope.instruments.sync.commitment.control import best_rank, released_distances
from flowscope.instruments.sync.commitment.gaussian import GaussianDenoiser, gaussian_images
from flowscope.instruments.sync.commitment.order_rule import decision_steps
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.instruments.sync.subject import prepare

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "studies" / "results" / "synchronization_gap_agreement_bundled.csv"
RESULT = ROOT / "benchmarks" / "results" / "sync_order.json"
COUPLINGS = (0.1, 0.5, 1.0)
LABEL = 0  # T-shirts


def finals_of(denoiser: Any, file: Path) -> torch.Tensor:
    """Images of the class, from the file or made."""
    if not file.is_file():
        config = SyncConfig(pairs=100, steps=16, seed=77)
        sampler, noise = pair_sampler(denoiser, config, LABEL, eta=1.0)
        ended = sampler.finished({0: noise.initial(1.0)}, noise)[0]
        np.save(file, ended.numpy())
    return torch.from_numpy(np.load(file))


def gap_of(steps: NDArray[np.float64], coarse: Any, fine: Any) -> float:
    """Steps from the coarse to the fine decision, from distances by the step of letting go."""
    times = [decision_steps(steps, np.asarray(values, float)) for values in (coarse, fine)]
    return round(float(times[1] - times[0]), 2)


def kept_gaps() -> dict[str, float]:
    """Gaps of the study, from its medians."""
    table = pd.read_csv(KEPT)
    table = table[table["label"] == LABEL]
    gaps = {}
    for (control, g), rows in table.groupby(["control", "g"]):
        curves = rows.pivot(index="step", columns="measure", values="value")
        steps = curves.index.to_numpy(float)
        name = "shared noise" if control else f"g = {g:g}"
        gaps[name] = gap_of(steps, -curves["coarse"], -curves["fine"])
    return gaps


def control_gaps(
    denoiser: Any, finals: torch.Tensor, rank: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Gaps of the Gaussian in the protocol of the study, from medians and from means over pairs."""
    config = SyncConfig(pairs=32, steps=100, interventions=21)
    exact = GaussianDenoiser(gaussian_images(finals, rank), denoiser)
    keys = [*((g, False) for g in COUPLINGS), (0.0, True)]
    steps = np.linspace(0, 100, 21)
    found = released_distances(exact, config, LABEL, keys)
    medians, means = {}, {}
    for g, shared in keys:
        name = "shared noise" if shared else f"g = {g:g}"
        coarse, fine = found[g, shared]
        medians[name] = gap_of(steps, np.median(coarse, 0), np.median(fine, 0))
        means[name] = gap_of(steps, coarse.mean(0), fine.mean(0))
    return medians, means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--finals", type=Path, default=Path("finals.npy"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    _, subject = prepare(SyncConfig(), {})
    finals = finals_of(subject.denoiser, options.finals)
    best = best_rank(subject.denoiser, {LABEL: finals}, SyncConfig(steps=100))
    entry: dict[str, Any] = {"machine": described(), "rank": best, "study": kept_gaps()}
    entry["gaussian"], entry["gaussian, means"] = control_gaps(subject.denoiser, finals, best)
    print(json.dumps(entry, indent=1, ensure_ascii=False))
    RESULT.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
