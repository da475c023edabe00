r"""A coupled step of DiT-XL/2 against an uncoupled one, and against the share of attention in it.

The bound is $1 + 1.15 f$: with $f$ the share of attention in the uncoupled step, the inter part
costs $f$ once more, and the mix may cost $.15 f$. A plain version with copied keys stands beside
the lever; *tap only* and *kernels only* (no mix) say where the time goes.

Run by hand where there is a CUDA device: ``python -m benchmarks.coupling_gpu --out FILE``;
``--tiny`` runs everything on small sizes, on the CPU too.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import diffusers
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowscope.levers import couple
from flowscope.tap import AttentionCall, Tap

G = 0.5
WEIGHT = G / (1 + G)
HEADS, WIDTH, LAYERS = 16, 72, 28
KERNELS = ("flash", "fmha", "sdpa", "attention")  # in the names of attention kernels
Arm = Callable[[], Tensor]


def attention(call: AttentionCall, own: slice, other: slice) -> Tensor:
    """Some rows over the keys of others, on views."""
    return F.scaled_dot_product_attention(call.q[own], call.k[other], call.v[other])


def replicas(call: AttentionCall) -> tuple[slice, slice]:
    half = len(call.q) // 2
    return slice(0, half), slice(half, 2 * half)


def plain(call: AttentionCall) -> Tensor:
    """As one would write it first: keys and values copied into the other order."""
    a, b = replicas(call)
    k, v = (torch.cat([x[b], x[a]]) for x in (call.k, call.v))
    inter = F.scaled_dot_product_attention(call.q, k, v)
    return (call.output() + G * inter) / (1 + G)


def kernels_only(call: AttentionCall) -> Tensor:
    """Both parts and no mix: what no version on these kernels can be faster than."""
    a, b = replicas(call)
    attention(call, a, b)
    attention(call, b, a)
    return call.output()


LISTENERS: dict[str, Callable[[AttentionCall], Tensor | None]] = {
    "tap only": lambda call: None,
    "kernels only": kernels_only,
    "plain (copies)": plain,
}
COUPLED = [name for name in LISTENERS if name not in ("tap only", "kernels only")]


class Clock:
    """Milliseconds a call takes, the device's own where there is one."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def __call__(self, run: Callable[[], object], steps: int) -> float:
        """Mean over some calls; one before them fills the device's queue."""
        if not self._cuda:
            start = time.perf_counter()
            for _ in range(steps):
                run()
            return 1e3 * (time.perf_counter() - start) / steps
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        run()
        first.record()
        for _ in range(steps):
            run()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / steps


def built(size: int, options: argparse.Namespace) -> tuple[nn.Module, dict[str, Tensor]]:
    """DiT-XL/2 with random weights and a batch of pairs."""
    torch.manual_seed(0)
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2 if options.tiny else HEADS,
        attention_head_dim=WIDTH,
        in_channels=4,
        out_channels=8,
        num_layers=2 if options.tiny else LAYERS,
        sample_size=size,
        patch_size=2,
        num_embeds_ada_norm=1000,
    )
    model = model.to(options.device).eval()
    with torch.no_grad():  # zero gates would hide what attention says
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    rows = 2 * options.pairs
    labels = torch.arange(options.pairs, device=options.device).repeat(2)
    batch = {
        "hidden_states": torch.randn(rows, 4, size, size, device=options.device),
        "timestep": torch.full((rows,), 500, device=options.device),
        "class_labels": labels,
    }
    return model, batch


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**batch).sample
    return found


def measured_arm(name: str, model: nn.Module, batch: dict[str, Tensor], time_of: Callable) -> float:
    """One round of one arm, its lever entered for the round and warmed by one step."""
    with ExitStack() as levers:
        _enter(levers, name, model)
        step(model, batch)
        return float(time_of(partial(step, model, batch)))


def _enter(levers: ExitStack, name: str, model: nn.Module) -> None:
    if name == "lever":
        levers.enter_context(couple(model, G))
    elif name in LISTENERS:
        levers.enter_context(Tap(model)).on_attention(LISTENERS[name])


def kernel_time(size: int, options: argparse.Namespace, time_of: Callable) -> float:
    """The attention calls of one step alone, on other tensors each time than the cache holds."""
    heads, layers = (2, 2) if options.tiny else (HEADS, LAYERS)
    shape = (2 * options.pairs, (size // 2) ** 2, heads, WIDTH)
    sets = [
        [torch.randn(shape, device=options.device).to(options.dtype).transpose(1, 2) for _ in "qkv"]
        for _ in range(min(layers, 4))
    ]

    def calls() -> None:
        for qkv in itertools.islice(itertools.cycle(sets), layers):
            F.scaled_dot_product_attention(*qkv)

    calls()
    return statistics.median(time_of(calls) for _ in range(options.rounds))


def profiled(name: str, model: nn.Module, batch: dict[str, Tensor]) -> tuple[float, float]:
    """Milliseconds of all kernels of one step of an arm, and of its attention kernels."""
    cuda = next(model.parameters()).is_cuda
    activity = torch.profiler.ProfilerActivity
    kinds = [activity.CPU, activity.CUDA] if cuda else [activity.CPU]
    with ExitStack() as levers:
        _enter(levers, name, model)
        step(model, batch)
        with torch.profiler.profile(activities=kinds) as profile:
            step(model, batch)
            if cuda:
                torch.cuda.synchronize()
    events = profile.key_averages()
    if not cuda:
        own = [e for e in events if e.key == "aten::scaled_dot_product_attention"]
        total = sum(e.self_cpu_time_total for e in events)
        return total / 1e3, sum(e.cpu_time_total for e in own) / 1e3
    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    own = [e for e in kernels if any(word in e.key.lower() for word in KERNELS)]
    total = sum(e.self_device_time_total for e in kernels)
    return total / 1e3, sum(e.self_device_time_total for e in own) / 1e3


def differences(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, float]:
    """How far each coupled arm is from the plain one, relative to what coupling changes."""
    batch = {name: x[: max(len(x) // 8, 4)] for name, x in batch.items()}
    found = {}
    for name in ("", "lever", *COUPLED):
        with ExitStack() as levers:
            _enter(levers, name, model)
            found[name] = step(model, batch).float()
    reference = found["plain (copies)"]
    moved = (reference - found.pop("")).norm()
    return {name: float((x - reference).norm() / moved) for name, x in found.items()}


@torch.inference_mode()
def compared(size: int, options: argparse.Namespace) -> list[str]:
    """The table for one size."""
    model, batch = built(size, options)
    time_of = partial(Clock(options.device), steps=options.steps)
    apart = differences(model, batch)  # in single precision: half would hide a mistake
    model = model.to(options.dtype)
    batch["hidden_states"] = batch["hidden_states"].to(options.dtype)
    arms = ["uncoupled", "lever", *LISTENERS]
    times: dict[str, list[float]] = {name: [] for name in arms}
    for round_ in range(options.rounds):
        turned = arms[round_ % len(arms) :] + arms[: round_ % len(arms)]
        for name in turned:
            times[name].append(measured_arm(name, model, batch, time_of))
    base = statistics.median(times["uncoupled"])
    kernels = kernel_time(size, options, time_of)
    share = kernels / base
    busy = {name: profiled(name, model, batch) for name in arms}
    floor, own = busy["uncoupled"]
    lines = [
        f"{(size // 2) ** 2} tokens, {options.pairs} pairs, {options.dtype}, g = {G}: f = "
        f"{share:.3f} by events ({kernels:.2f} ms of {base:.2f}), {own / floor:.3f} by the "
        f"profiler; bound {1 + 1.15 * share:.3f} and {1 + 1.15 * own / floor:.3f}",
        f"{'arm':<16}{'ms':>9}{'ratio':>8}{'from':>8}{'to':>8}{'kernels':>9}{'ratio':>8}"
        f"{'apart':>10}",
    ]
    for name in arms:
        ratios = sorted(x / y for x, y in zip(times[name], times["uncoupled"], strict=True))
        lines.append(
            f"{name:<16}{statistics.median(times[name]):9.3f}{statistics.median(ratios):8.3f}"
            f"{ratios[0]:8.3f}{ratios[-1]:8.3f}{busy[name][0]:9.3f}{busy[name][0] / floor:8.3f}"
            + (f"{apart[name]:10.1e}" if name in apart else "")
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the table")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--pairs", type=int, default=0, help="32, or 2 when tiny")
    parser.add_argument("--rounds", type=int, default=0, help="6, or 3 when tiny")
    parser.add_argument("--steps", type=int, default=0, help="steps a round: 5, or 1 when tiny")
    options = parser.parse_args()
    options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    options.dtype = torch.bfloat16
    options.pairs = options.pairs or (2 if options.tiny else 32)
    options.rounds = options.rounds or (3 if options.tiny else 6)
    options.steps = options.steps or (1 if options.tiny else 5)
    name = torch.cuda.get_device_name() if options.device.type == "cuda" else "cpu"
    lines = [f"torch {torch.__version__}, diffusers {diffusers.__version__}, {name}"]
    lines += [
        "ms: wall time of a step, the host included; ratio: to the uncoupled step, median over "
        "interleaved rounds, with the smallest and largest; kernels: time of all kernels of one "
        "step; apart: distance from the plain arm relative to what coupling changes"
    ]
    for size in (8, 16) if options.tiny else (32, 64):
        lines += ["", *compared(size, options)]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
