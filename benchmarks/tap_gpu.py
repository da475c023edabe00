"""What listening, coupling and reading modes cost on DiT-XL/2 shapes, beside a function mode.

256 tokens, batch 64, bfloat16, random weights. Every arm runs in interleaved rounds, each divided
by the bare passes of its own round; the median over rounds is printed. *host* is what an arm adds
to a pass with two rows, whose kernels are shorter than the work of the host. *by mode* listens to
the same events through a torch function mode, as every pass did before attention was heard by its
name. For `couple` the bound is 1 + 1.15 f, with f the share of attention in the bare pass.

Protocol II: coupled sampling of 32 pairs, bare and with the modes of the difference read at a
quarter of the steps, and at every step.

Run by hand where there is a CUDA device: ``python -m benchmarks.tap_gpu --out FILE``; ``--tiny``
runs everything on small sizes, on the CPU too. The file is written again after every table, and
``--seconds`` ends rounds early.
"""

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, DiTTransformer2DModel
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.replica_modes_gpu import bare as sampled
from benchmarks.replica_modes_gpu import read as sampled_and_read
from flowscope.instruments.sync.config import SyncConfig
from flowscope.levers import couple
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load
from flowscope.tap import Tap
from flowscope.tap import tap as tap_module

KERNELS = ("flash", "fmha", "sdpa", "attention", "cudnn")  # in the names of attention kernels
Batch = dict[str, Tensor]


class EmptyMode(TorchFunctionMode):
    """Lets everything through."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def by_mode() -> Iterator[None]:
    """Have models probed in the block listened to through a function mode."""
    probe = tap_module.probe
    tap_module.probe = lambda *given: replace(probe(*given), listening="mode")
    try:
        yield
    finally:
        tap_module.probe = probe


@contextmanager
def arm(name: str, model: nn.Module) -> Iterator[None]:
    """One way to run the model."""
    if name == "bare":
        yield
    elif name == "empty mode":
        with EmptyMode():
            yield
    elif name == "couple":
        with couple(model, 0.5):
            yield
    else:
        with Tap(model) as tap:
            if "attention" in name:
                tap.on_attention(lambda call: None)
            if "blocks" in name:
                tap.on_block(lambda event: None, writes="writes" in name)
            yield


ARMS = ("bare", "empty mode", "attention", "blocks", "attention + blocks", "blocks + writes")
MODE_ARMS = ("attention by mode", "attention + blocks by mode")  # of a copy that was probed so


def built(options: argparse.Namespace) -> DiTTransformer2DModel:
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
        with torch.no_grad():  # zero gates would hide what attention says
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
    return model.to(torch.float32 if small else torch.bfloat16).eval()


def batch_of(model: nn.Module, rows: int) -> Batch:
    first = next(model.parameters())
    size = model.config.sample_size
    return {
        "hidden_states": torch.randn(rows, 4, size, size, device=first.device, dtype=first.dtype),
        "timestep": torch.full((rows,), 500, device=first.device),
        "class_labels": torch.arange(rows, device=first.device) % 7,
    }


def milliseconds(run: Callable[[], object], steps: int, device: torch.device) -> float:
    """Wall time of a step, from an idle device to an idle device."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / steps


def timed(
    models: dict[str, nn.Module], batch: Batch, options: argparse.Namespace, until: float
) -> dict[str, list[float]]:
    """Milliseconds of a step of each arm, round by round, until a share of the time is gone."""
    times: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for round_ in range(options.rounds):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            model = models[name]
            with arm(name, model):
                model(**batch)
                run = lambda model=model: model(**batch)  # noqa: E731
                times[name].append(milliseconds(run, options.steps, options.device))
        if options.over(until):
            break
    return times


def ratios(times: list[float], base: list[float]) -> list[float]:
    return sorted(x / y for x, y in zip(times, base, strict=True))


def attention_share(options: argparse.Namespace, bare: float) -> float:
    """Share of the attention kernels in a bare step: timed alone, on other tensors each time."""
    heads, layers, tokens, width = (2, 3, 16, 8) if options.tiny else (16, 28, 256, 72)
    dtype = torch.float32 if options.tiny else torch.bfloat16
    shape = (options.rows, tokens, heads, width)
    sets = [
        [torch.randn(shape, device=options.device, dtype=dtype).transpose(1, 2) for _ in "qkv"]
        for _ in range(min(layers, 4))
    ]

    def calls() -> None:
        for qkv in itertools.islice(itertools.cycle(sets), layers):
            F.scaled_dot_product_attention(*qkv)

    calls()
    return statistics.median(milliseconds(calls, 1, options.device) for _ in range(9)) / bare


def kernels(name: str, model: nn.Module, batch: Batch) -> tuple[float, float]:
    """Milliseconds of all kernels of one step of an arm, and of its attention kernels."""
    if not next(model.parameters()).is_cuda:
        return float("nan"), float("nan")
    with arm(name, model):
        model(**batch)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            model(**batch)
            torch.cuda.synchronize()
    events = profile.key_averages()
    found = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    own = [e for e in found if any(word in e.key.lower() for word in KERNELS)]
    total = sum(e.self_device_time_total for e in found)
    return total / 1e3, sum(e.self_device_time_total for e in own) / 1e3


def probed(model: nn.Module, batch: Batch) -> str:
    """How attention is heard, and whether reading leaves the output as it was, bit for bit."""
    expected = model(**batch).sample
    with Tap(model) as tap:
        tap.on_attention(lambda call: None)
        same = torch.equal(model(**batch).sample, expected)
        return f"{tap.anatomy.listening} (output equal bit for bit: {same})"


def table(times: dict[str, list[float]], unit: str) -> list[str]:
    """Median of each arm, beside the bare one of the same rounds."""
    lines = [f"{unit:<28}{'ms':>8}{'+ ms':>8}{'x bare':>8}{'from':>8}{'to':>8}{'rounds':>8}"]
    for name, found in times.items():
        over = ratios(found, times["bare"])
        more = statistics.median(x - y for x, y in zip(found, times["bare"], strict=True))
        lines.append(
            f"{name:<28}{statistics.median(found):8.2f}{more:8.2f}{statistics.median(over):8.3f}"
            f"{over[0]:8.3f}{over[-1]:8.3f}{len(found):8d}"
        )
    return lines


@torch.inference_mode()
def listening(model: DiTTransformer2DModel, options: argparse.Namespace) -> Iterator[list[str]]:
    """Tables of the arms: wall time, work of the host, kernels."""
    batch, two = batch_of(model, options.rows), batch_of(model, 2)
    twin = copy.deepcopy(model)
    heard = probed(model, batch)
    with by_mode():
        heard_twin = probed(twin, batch)
    yield [f"heard by {heard}; in the arms by mode by {heard_twin}"]
    models = dict.fromkeys((*ARMS, "couple"), model) | dict.fromkeys(MODE_ARMS, twin)
    wall = timed(models, batch, options, 0.45)
    base = statistics.median(wall["bare"])
    share = attention_share(options, base)
    yield table(wall, "wall, 64 rows")
    yield [f"attention {share:.4f} of a bare step; bound of couple {1 + 1.15 * share:.3f}"]
    yield ["", *sampling(model, options)]
    yield ["", *table(timed(models, two, options, 0.9), "host: 2 rows")]
    total, own = kernels("bare", model, batch)
    coupled, _ = kernels("couple", model, batch)
    yield [
        f"kernels of a bare step {total:.2f} ms, attention {own / total:.4f} of them; of couple "
        f"{coupled / total:.3f} x, bound {1 + 1.15 * own / total:.3f}"
    ]


@torch.no_grad()
def sampling(model: DiTTransformer2DModel, options: argparse.Namespace) -> list[str]:
    """Protocol II: coupled sampling, bare and read."""
    denoiser = denoiser_of(model, load(model), scheduler=DDIMScheduler(beta_end=0.02))
    pairs, steps = options.rows // 2, options.sampling_steps
    configs = {
        kept: SyncConfig.resolved({"pairs": pairs, "steps": steps, "kept": kept})
        for kept in (round(0.26 * steps), steps)
    }
    times: dict[str, list[float]] = {}
    sampled_and_read(denoiser, configs[steps])
    for _ in range(options.sampling_rounds):
        jobs = {"bare": (sampled, configs[steps])}
        jobs |= {f"read, {k} of {steps}": (sampled_and_read, c) for k, c in configs.items()}
        for name, (job, config) in jobs.items():
            run = lambda job=job, config=config: job(denoiser, config)  # noqa: E731
            times.setdefault(name, []).append(milliseconds(run, 1, options.device) / steps)
        if options.over(0.75):
            break
    return table(times, "coupled sampling, a step")


def main() -> None:
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the tables")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=600, help="end rounds early")
    options = parser.parse_args()
    options.over = lambda share: time.perf_counter() - start > share * options.seconds
    options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    options.rows, options.steps = (8, 1) if options.tiny else (64, 2)
    options.sampling_steps, options.sampling_rounds = (6, 2) if options.tiny else (20, 4)
    name = torch.cuda.get_device_name() if options.device.type == "cuda" else "cpu"
    model = built(options)
    lines = [
        f"torch {torch.__version__}, diffusers {diffusers.__version__}, {name}; {options.rows} "
        f"rows, {len(model.transformer_blocks)} blocks, rounds of {options.steps} steps",
    ]
    for more in listening(model, options):
        lines += more
        print("\n".join(more), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(lines) + "\n")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
