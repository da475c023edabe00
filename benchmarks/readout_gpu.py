"""The readout and all statistics of a layer, beside the bare output product, on a GPU.

Question: how long do the readout of 2,048 states and every statistic of states and steps take, in
multiples of the bare bfloat16 product of the same states with the output matrix, and how far are
the statistics from float64 of the same states? Shapes: width 4096 with 128,256 outcomes, width 576
with 49,152. Rounds are interleaved; a ratio is taken within a round. Peer: the float32 product with
the eager meter of an earlier commit (``--before``), in a process of its own.

    python -m benchmarks.readout_gpu --out readout_gpu.json --before before
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import described
from benchmarks.random_models import Shape, built
from flowscope import Tap
from flowscope.flows import DepthMeter, state_statistics, step_statistics, swept
from flowscope.flows.lent import lent_steps
from flowscope.probes import Readout, positions_readout

SHAPES = {
    "4096": Shape(2, 4096, 256, 32, 8, 128_256, prompts=8, tokens=256),
    "576": Shape(2, 576, 256, 9, 3, 49_152, prompts=8, tokens=256),
    "tiny": Shape(2, 64, 64, 4, 2, 1000, prompts=2, tokens=24),
}
CONFIGURATIONS = ((512, 4), (512, 8), (1024, 4), (1024, 8), (2048, 16))
CHECKED = 48
LAYERS = 8  # read without a wait between them, as the blocks of a pass are
SPREADS = {"usual": 4, "wide": 20}
"""Factors of the output matrix: logits of standard deviation 5 and 26 nats at width 4096."""

EARLIER = """
import sys, time, torch
from flowscope.flows import DepthMeter
d, V, rows = map(int, sys.argv[1:4])
x = torch.randn(2, rows, d, device="cuda")
U = torch.randn(V, d, device="cuda")
chunk = max(2**24 // V, 16)
meter = DepthMeter(rows, V, device="cuda")
def layer(k):
    for start in range(0, rows, chunk):
        piece = slice(start, min(start + chunk, rows))
        z = torch.nn.functional.linear(x[k, piece], U)
        meter.advance(piece, z) if k else meter.start(piece, z)
layer(0); layer(1); torch.cuda.synchronize()
times = []
for _ in range(3):
    t = time.perf_counter()
    layer(1)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - t)
print(sorted(times)[1])
"""


def states(shape: Shape, device: str, dtype: torch.dtype) -> Tensor:
    """Two states of each row, a step of a fifth of their size apart, in the model's dtype."""
    generator = torch.Generator(device).manual_seed(0)
    rows = shape.prompts * shape.tokens
    noise = torch.randn(2, rows, shape.width, generator=generator, device=device)
    return torch.stack([noise[0], noise[0] + 0.22 * noise[1]]).to(dtype)


def readouts(
    shape: Shape, device: str, dtype: torch.dtype, spread: int
) -> tuple[dict[str, Readout], Tensor]:
    """Readouts of a model's tail, and its output matrix, scaled so that logits spread out."""
    model = built(shape, device, dtype)
    with torch.no_grad(), Tap(model) as tap:
        model.lm_head.weight.mul_(spread)
        tap.on_block(lambda event: None)
        model(input_ids=torch.zeros(1, 4, dtype=torch.int64, device=device))
        tail = tap.anatomy.tail
    return {
        name: positions_readout(tail, name) for name in ("exact", "model")
    }, model.lm_head.weight


def synchronised() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def rounds(
    runs: dict[str, Callable[[], object]], repeats: int, layers: int = 1
) -> dict[str, list[float]]:
    """Seconds of each function, all in turn in every round, each ``layers`` times in a row."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            start = synchronised()
            for _ in range(layers):
                run()
            times[name].append((synchronised() - start) / layers)
    return times


@torch.no_grad()
def timed(shape: Shape, device: str, dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    """Milliseconds and ratios to the bare product of readouts alone and with all statistics."""
    made, weight = readouts(shape, device, dtype, SPREADS["usual"])
    pair = states(shape, device, dtype)
    wide, rows = pair.float(), pair.shape[1]
    bare = torch.empty(rows, shape.vocabulary, device=device, dtype=dtype)
    out = torch.empty(rows, shape.vocabulary, device=device)
    runs: dict[str, Callable[[], object]] = {
        "bare product": lambda: torch.mm(pair[1], weight.mT, out=bare)
    }
    meters = {}
    for name, readout in made.items():
        runs[f"{name}: readout"] = lambda readout=readout: readout(wide[1], out)
        meter = DepthMeter(rows, shape.vocabulary, device=device)
        meter.start(slice(None), readout(wide[0]))
        meters[name] = meter

        def whole(readout: Readout = readout, meter: DepthMeter = meter) -> None:
            every = slice(0, rows)
            meter.record(every, readout(wide[1], meter.room(every)))
            meter._path.clear()  # the numbers of a layer would be read with those of all others
            meter._reached[:] = 1

        meter._reached[:] = 1
        runs[f"{name}: all statistics"] = whole
    times = rounds(runs, repeats, LAYERS)
    base = times["bare product"]
    figures: dict[str, Any] = {
        name: {
            "ms": round(1e3 * statistics.median(t), 4),
            "ratio": round(statistics.median(a / b for a, b in zip(t, base, strict=True)), 3),
        }
        for name, t in times.items()
    }
    figures["meter"] = {name: [meter.mode, meter.fallback] for name, meter in meters.items()}
    return figures


@torch.no_grad()
def errors(
    shape: Shape, device: str, dtype: torch.dtype, spread: int
) -> dict[str, dict[str, float]]:
    """Largest error of each statistic to float64 of the same states, relative and absolute.

    A probability, or a difference of two, is of the order of 1 at most: `absolute` is their error
    in that unit. A margin of two equal outcomes has no relative error.
    """
    made, weight = readouts(shape, device, dtype, spread)
    pair = states(shape, device, dtype)[:, :CHECKED].float()
    found: dict[str, dict[str, float]] = {}
    for name, readout in made.items():
        x = [readout._tail.linear_output().states(rows).double() for rows in pair]
        if name == "model":
            x = [rows.to(dtype).double() for rows in x]
        z = [rows @ weight.double().mT for rows in x]
        meter = DepthMeter(pair.shape[1], shape.vocabulary, device=device)
        read = [(meter.start(slice(None), readout(pair[0])),)]
        read.append(meter.advance(slice(None), readout(pair[1])))
        exact = [(state_statistics(z[0]),), (state_statistics(z[1]), step_statistics(*z))]
        worst: dict[str, float] = {}
        absolute: dict[str, float] = {}
        for mine, reference in zip(read, exact, strict=True):
            for ours, theirs in zip(mine, reference, strict=True):
                for field, value in vars(theirs).items():
                    if value.is_floating_point():
                        off = (vars(ours)[field] - value).abs()
                        most = float((off / value.abs()).max())
                        worst[field] = max(worst.get(field, 0.0), most)
                        absolute[field] = max(absolute.get(field, 0.0), float(off.max()))
        for kind, numbers in (("relative", worst), ("absolute", absolute)):
            rounded = {field: float(f"{value:.2e}") for field, value in numbers.items()}
            found[f"{name}, {kind}"] = rounded
    return found


@torch.no_grad()
def kernels(shape: Shape, device: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of both sweeps by block and warps, and of lent steps of 192 rows."""
    rows = shape.prompts * shape.tokens
    z = torch.randn(2, rows, shape.vocabulary, device=device)
    raw = [swept.raw_sums(z[0]) for _ in range(2)]
    found: dict[str, Any] = {}
    for block, warps in CONFIGURATIONS:
        swept._BLOCK, swept._WARPS = block, warps
        passes = swept.SweptPasses(shape.vocabulary, torch.float32, z.device)
        passes.state(z[0], raw[0])
        times = rounds({"step": lambda p=passes: p.step(z[0], z[1], *raw)}, repeats)
        found[f"{block}, {warps} warps"] = round(1e3 * statistics.median(times["step"]), 4)
    best = min(CONFIGURATIONS, key=lambda pair: found[f"{pair[0]}, {pair[1]} warps"])
    swept._BLOCK, swept._WARPS = best
    passes = swept.SweptPasses(shape.vocabulary, torch.float32, z.device)
    few = min(192, rows)
    donors = torch.randint(few, (few, 2), device=device)
    runs: dict[str, Callable[[], object]] = {
        f"sort of {n} rows": lambda n=n: z[0, :n].sort(dim=-1, descending=True, stable=True)
        for n in (96, 127, 192)
        if n <= rows
    }
    runs[f"lent steps of {few} rows"] = lambda: lent_steps(z[0, :few], z[1, :few], donors, passes)
    times = rounds(runs, max(3, repeats // 3))
    return found | {name: round(1e3 * statistics.median(t), 3) for name, t in times.items()}


def earlier(shape: Shape, tree: Path, limit: float) -> dict[str, Any]:
    """Milliseconds of a layer with the float32 readout and the eager meter of another tree."""
    rows = shape.prompts * shape.tokens
    environment = {**os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    )
    command = [sys.executable, "-c", EARLIER, str(shape.width), str(shape.vocabulary), str(rows)]
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"cut_after": limit}
    if ended.returncode:
        return {"error": ended.stderr[-400:]}
    return {"ms": round(1e3 * float(ended.stdout), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("readout_gpu.json"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", default="4096,576", help="separated by commas")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--before", type=Path, help="folder with the src of an earlier commit")
    options = parser.parse_args()
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    figures: dict[str, Any] = {"machine": described()}
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        rows: dict[str, Any] = {}
        figures[name] = rows
        parts: dict[str, Callable[[], Any]] = {
            "times": lambda s=shape: timed(s, options.device, dtype, options.repeats),
            **{
                f"errors, {spread}": lambda s=shape, f=factor: errors(s, options.device, dtype, f)
                for spread, factor in SPREADS.items()
            },
            "kernels": lambda s=shape: kernels(s, options.device, options.repeats),
        }
        if options.before:
            parts["before"] = lambda s=shape: earlier(s, options.before, 25.0)
        for part, run in parts.items():
            try:
                rows[part] = run()
            except Exception as error:  # the other figures are worth having
                rows[part] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(name, part, json.dumps(rows[part]), flush=True)
            options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
