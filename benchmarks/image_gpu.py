"""The image track at the size of source 000 on a device: seconds by stage, and peak memory.

The bundled diffusion transformer, 10,000 images, 50 steps. Memory is what was allocated at the peak
beyond the model itself. Products of float32 run in TF32.

Run by hand where there is a CUDA device: ``python -m benchmarks.image_gpu --out FILE``; ``--tiny``
runs everything on small sizes, on the CPU too.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from flowscope.instruments.image.config import ImageConfig
from flowscope.lab import engine, registry

FULL = {
    "images": 10000, "steps": 50, "bins": 256, "batch": 500, "doubling": (25, 50, 100),
    "family_images": 1000, "lams": (0.0, 0.25, 0.5, 0.75, 1.0), "rank": 8, "rotation_times": 20,
    "information_images": 2000, "uturn_images": 1000, "uturn_times": 12,
}  # fmt: skip
TINY = {
    "images": 16, "steps": 4, "bins": 16, "batch": 8, "doubling": (2, 4), "family_images": 8,
    "rotation_times": 0, "information_images": 0, "uturn_images": 0, "resamples": 20, "draws": 39,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    spans: dict[str, list[float]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        spans.setdefault(stage, [now, now])[1] = now

    with tempfile.TemporaryDirectory() as folder:
        settings = (TINY if options.tiny else FULL) | {"out": folder, "dtype": "float32"}
        config = ImageConfig.resolved(settings | ({"device": "cuda"} if cuda else {}))
        start = time.perf_counter()
        found = engine.run(registry.instrument("image"), config, progress=progress)
        seconds = time.perf_counter() - start
        verdicts = [f"{v.name} {v.decision}: {v.because}" for v in found.verdicts]
    peak = torch.cuda.max_memory_allocated() / 1e9 if cuda else float("nan")
    name = torch.cuda.get_device_name() if cuda else "cpu"
    lines = [
        f"torch {torch.__version__}, {name}; {config.images} images, {config.steps} steps",
        f"{seconds:.0f} s in all; peak {peak:.2f} GB, the model counted",
        "; ".join(f"{stage} {last - first:.0f} s" for stage, (first, last) in spans.items()),
        *verdicts,
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
