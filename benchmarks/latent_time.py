"""Time and memory of the entropies of a deep model, beside a tree of neighbours for every subset.

Question: do the entropies of 1,500 points × 31 layers × two numbers of coordinates × two samples,
each with an interval from 48 halves of the prompts, take at most 60 s on two cores and 300 MB, and
are they three times as fast as a k-d tree (scipy) and scikit-dimension for every layer and subset?
Points are correlated Gaussians; the peers are timed on a few layers and scaled.

    python -m benchmarks.latent_time

scikit-dimension is timed only where it is installed.
"""

import argparse
import json
import math
import resource
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
    principal_axes,
)

RESULT = Path(__file__).parent / "results" / "latent_time.json"
POINTS, WIDTH, LAYERS, SAMPLES, RANKS, DRAWS, K = 1500, 576, 31, 2, (8, 16), 48, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--peer-layers", type=int, default=1)
    options = parser.parse_args()
    g = torch.Generator().manual_seed(0)
    groups = torch.arange(POINTS) % 24
    halves = half_samples(groups, DRAWS, g)
    sample = Sample(
        name="all", places=torch.arange(POINTS), prompt=groups, kind=torch.arange(POINTS),
        halves=halves,
    )  # fmt: skip
    scale = torch.linspace(1, 0.05, WIDTH, dtype=torch.float64)
    clouds = options.layers * SAMPLES
    before, ours, values = _memory(), 0.0, []
    for _ in range(clouds):
        x = torch.randn(POINTS, WIDTH, generator=g, dtype=torch.float64) * scale
        start = time.perf_counter()
        found, _ = cloud_entropies(principal_axes(x), sample, RANKS, k=K, surrogates=0, generator=g)
        ours += time.perf_counter() - start
        values.append(found[:, :, ENTROPIES.index("entropy_knn")])
    memory = _memory() - before
    tree = 0.0
    for _ in range(options.peer_layers):
        y = principal_axes(x).coordinates.numpy()
        start = time.perf_counter()
        peer = np.array([_tree(y[:, :rank], groups.numpy(), halves.numpy()) for rank in RANKS])
        tree += time.perf_counter() - start
    np.testing.assert_allclose(peer, values[-1], atol=1e-6)
    document = {
        "machine": described(),
        "points": POINTS,
        "layers": options.layers,
        "seconds": round(ours * LAYERS / options.layers, 2),
        "megabytes_beyond": round(memory, 1),
        "tree_seconds": round(tree / options.peer_layers * SAMPLES * LAYERS, 2),
        "times_faster_than_tree": round(tree / options.peer_layers * clouds / max(ours, 1e-9), 2),
        "scikit_dimension": _skdim(x.numpy()),
    }
    print(document)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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


def _skdim(x: np.ndarray) -> object:
    """Seconds of two dimensions of one layer, by scikit-dimension and by us."""
    try:
        from skdim.id import MLE, TwoNN
    except ImportError:
        return "not installed"
    start = time.perf_counter()
    TwoNN().fit(x), MLE(K=10).fit(x)
    return {"seconds_per_layer": round(time.perf_counter() - start, 3)}


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
