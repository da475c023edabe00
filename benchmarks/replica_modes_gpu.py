"""Protocol II on DiT-XL/2 shapes: what reading the modes of the difference costs.

Coupled sampling of the same pairs, bare and with the modes read at every kept step: wall time in
interleaved rounds, and the peak of allocated memory beyond that of bare sampling. Storing the
differences of every layer and step would need ``layers · steps · pairs · D`` numbers.

Run by hand where there is a CUDA device: ``python -m benchmarks.replica_modes_gpu --out FILE``;
``--tiny`` runs everything on small sizes, on the CPU too.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import diffusers
import torch
from diffusers import DDIMScheduler, DiTTransformer2DModel

from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.mode_reading import ModeReading
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.models.diffusion.denoiser import Denoiser, denoiser_of
from flowscope.models.loading import load
from flowscope.records import Manifest, Run, Shards


def built(options: argparse.Namespace) -> Denoiser:
    torch.manual_seed(0)
    small = options.tiny
    with torch.device(options.device):
        model = DiTTransformer2DModel(
            num_attention_heads=2 if small else 16,
            attention_head_dim=8 if small else 72,
            in_channels=4,
            out_channels=8,
            num_layers=3 if small else 28,
            sample_size=8 if small else 32,
            patch_size=2,
            num_embeds_ada_norm=1000,
        )
    model = model.to(torch.float32 if small else torch.bfloat16).eval()
    return denoiser_of(model, load(model), scheduler=DDIMScheduler(beta_end=0.02))


def bare(denoiser: Denoiser, config: SyncConfig) -> None:
    sampler, noise = pair_sampler(denoiser, config, 0, eta=0.0)
    for _ in sampler.walk(noise.initial(config.mode_sigma), noise, g=0.5):
        pass


def read(denoiser: Denoiser, config: SyncConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", Manifest(seeds={"all": 0}))
        shards = Shards(run=run, fingerprint="0" * 16)
        ModeReading(denoiser, config, shards, lambda more: None).read(0.5, [])


def measured(job, denoiser: Denoiser, config: SyncConfig) -> tuple[float, float]:
    """Seconds, and the peak of allocated memory in GB."""
    cuda = denoiser.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    job(denoiser, config)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated() / 1e9 if cuda else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs, steps = (8, 6) if options.tiny else (32, 100)
    denoiser = built(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    lines = [f"torch {torch.__version__}, diffusers {diffusers.__version__}, {name}"]
    lines.append(f"{pairs} pairs, {steps} steps, {(denoiser.shape[1] // 2) ** 2} tokens; g = .5")
    lines.append(f"{'kept steps':<12}{'bare s':>9}{'read s':>9}{'ratio':>8}{'extra GB':>10}")
    for kept in (steps, 26):
        config = SyncConfig.resolved({"pairs": pairs, "steps": steps, "kept": kept})
        measured(bare, denoiser, config)
        times: list[tuple[float, float]] = []
        extra = []
        for _ in range(options.rounds):
            plain, whole = (measured(job, denoiser, config) for job in (bare, read))
            times.append((plain[0], whole[0]))
            extra.append(whole[1] - plain[1])
        first, second = (statistics.median(t[k] for t in times) for k in (0, 1))
        ratio = statistics.median(t[1] / t[0] for t in times)
        lines.append(f"{kept:<12}{first:9.2f}{second:9.2f}{ratio:8.3f}{max(extra):10.2f}")
    numbers = len(denoiser.loaded.model.transformer_blocks) * steps * pairs
    tokens = (denoiser.shape[1] // 2) ** 2
    width = denoiser.loaded.model.inner_dim
    lines.append(f"storing every difference: {2 * numbers * tokens * width / 1e9:.1f} GB in half")
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
