"""Time and memory of the entropies of a deep model, beside a tree of neighbours for every subset.

Question: do the entropies of 1,500 points × 31 layers × two numbers of coordinates × two samples,
each with an interval from 48 halves of the prompts, take at most 60 s on two cores and 300 MB, and
are they three times as fast as a k-d tree (scipy) and scikit-dimension for every layer and subset?
Points are correlated Gaussians; the peers are timed on a few clouds, in turn with ours, and scaled.
Times are those of the processor, because other programs may run.

    python -m benchmarks.latent_time
    python -m benchmarks.latent_time --command          # the whole command instead

scikit-dimension has dimensions and no entropy: it is compared with our two dimensions, in all
coordinates, on the sample and every half. It is timed only where it is installed; it need not be
installed in the environment of flowscope:

    pip install --target FOLDER scikit-dimension
    PYTHONPATH=FOLDER python -m benchmarks.latent_time
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import digamma

from benchmarks.machine import described
from flowscope.flows.entropy import half_samples
from flowscope.instruments.latent.clouds import Sample
from flowscope.instruments.latent.entropy.reading import (
    ENTROPIES,
    cloud_entropies,
    cloud_shape,
    principal_axes,
)

RESULT = Path(__file__).parent / "results" / "latent_time.json"
POINTS, WIDTH, LAYERS, SAMPLES, RANKS, DRAWS, K = 1500, 576, 31, 2, (8, 16), 48, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--peer-clouds", type=int, default=2)
    parser.add_argument("--command", action="store_true", help="time `flowscope latent` alone")
    options = parser.parse_args()
    before = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    if options.command:
        _write({**before, "default_command": _command()})
        return
    g = torch.Generator().manual_seed(0)
    groups = torch.arange(POINTS) % 24
    halves = half_samples(groups, DRAWS, g)
    sample = Sample(
        name="all", places=torch.arange(POINTS), prompt=groups, kind=torch.arange(POINTS),
        halves=halves,
    )  # fmt: skip
    scale = torch.linspace(1, 0.05, WIDTH, dtype=torch.float64)
    clouds = options.layers * SAMPLES
    peers = Peers()
    start_memory, memory, ours, shapes, tree = _memory(), 0.0, 0.0, 0.0, 0.0
    for cloud in range(clouds):
        x = torch.randn(POINTS, WIDTH, generator=g, dtype=torch.float64) * scale
        start = time.process_time()
        axes = principal_axes(x)
        found, _ = cloud_entropies(axes, sample, RANKS, k=K, surrogates=0, generator=g)
        ours += time.process_time() - start
        start = time.process_time()
        shape = cloud_shape(x, axes, sample)["shape"]
        shapes += time.process_time() - start
        if cloud < clouds - options.peer_clouds:
            memory = _memory() - start_memory  # the peers have not begun
            continue
        y = axes.coordinates.numpy()
        start = time.process_time()
        peer = np.array([_tree(y[:, :rank], groups.numpy(), halves.numpy()) for rank in RANKS])
        tree += time.process_time() - start
        values = found[:, :, ENTROPIES.index("entropy_knn")]
        np.testing.assert_allclose(peer, values, atol=1e-6)
        peers.time(x.numpy(), halves.numpy(), shape[:, :2])
    whole = LAYERS * SAMPLES
    document = {
        "machine": described(),
        "points": POINTS,
        "layers": options.layers,
        "seconds": round(ours / clouds * whole, 2),
        "megabytes_beyond": round(memory, 1),
        "tree_seconds": round(tree / options.peer_clouds * whole, 2),
        "times_faster_than_tree": round(tree / options.peer_clouds * clouds / max(ours, 1e-9), 2),
        "shape_seconds": round(shapes / clouds * whole, 2),
        "scikit_dimension": peers.said(shapes / clouds, whole),
        "default_command": before.get("default_command", "not timed"),
    }
    _write(document)


def _write(document: dict[str, object]) -> None:
    print(document)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _command() -> dict[str, object]:
    """Processor time of the command without arguments, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, "-m", "flowscope", "latent", "--out", folder]
        subprocess.run(call, check=False, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = round(used.ru_utime + used.ru_stime, 1)
    return {"command": "flowscope latent", "processor_seconds": seconds}


def _tree(y: np.ndarray, groups: np.ndarray, halves: np.ndarray) -> list[float]:
    """Entropies with neighbours of other groups, a tree for the sample and every half."""
    return [_one(y, groups), *(_one(y[half], groups[half]) for half in halves)]


def _one(y: np.ndarray, groups: np.ndarray) -> float:
    n, d = y.shape
    largest = int(np.bincount(groups).max())
    distances, indices = cKDTree(y).query(y, largest + K)
    other = groups[indices] != groups[:, None]
    place = (other.cumsum(1) == K).argmax(1)
    radius = distances[np.arange(n), place]
    candidates = n - np.bincount(groups)[groups]
    ball = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
    return float(digamma(candidates + 1).mean() - digamma(K) + ball + d * np.log(radius).mean())


class Peers:
    """Dimensions by scikit-dimension, timed on a sample and a few of its halves."""

    TIMED = 4  # halves, which stand for all

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.dimensions: list[list[float]] = []
        self.ours: list[list[float]] = []
        try:
            from skdim.id import MLE, TwoNN
        except ImportError:
            self.fit = None
            return

        def fit(x: np.ndarray) -> list[float]:
            return [
                float(TwoNN().fit(x).dimension_),
                float(MLE().fit(x, n_neighbors=10).dimension_),
            ]

        self.fit = fit
        fit(np.random.default_rng(0).standard_normal((200, 5)))  # it compiles on first use

    def time(self, x: np.ndarray, halves: np.ndarray, ours: np.ndarray) -> None:
        """Time one cloud with all its halves."""
        if self.fit is None:
            return
        start = time.process_time()
        self.dimensions.append(self.fit(x))
        whole = time.process_time() - start
        start = time.process_time()
        for half in halves[: self.TIMED]:
            self.fit(x[half])
        part = (time.process_time() - start) / self.TIMED
        self.seconds.append(whole + part * len(halves))
        self.ours.append(ours[0].tolist())

    def said(self, ours: float, whole: int) -> object:
        """Seconds of all clouds, and how much faster ours are."""
        if not self.seconds:
            return "not installed"
        mean = sum(self.seconds) / len(self.seconds)
        return {
            "seconds": round(mean * whole, 1),
            "times_faster": round(mean / max(ours, 1e-9), 2),
            "two_nn_and_mle": np.round(np.mean(self.dimensions, 0), 2).tolist(),
            "ours_in_other_prompts": np.round(np.mean(self.ours, 0), 2).tolist(),
        }


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
