"""What the depth statistics cost beside the products that make the logits.

Question: how much longer than the bare output products h Uᵀ of every layer does it take to also
read every statistic of every state and step, at GPT-2-small shapes (width 768, 50,257 outcomes,
256 tokens, 12 layers, float32, CPU, two threads)?

Peers: the products alone, in whichever chunk of rows suits them best, and a naive reading that
takes each statistic from its formula over all rows at once. Repetitions are interleaved so that
drift of the machine hits all alike; a ratio is taken within a repetition. Accuracy: the largest
relative difference of any statistic to the float64 reference on the same logits.

Run: ``python -m benchmarks.depth_statistics``; writes ``benchmarks/results/depth_statistics.json``.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows import DepthMeter, joined, state_statistics, step_statistics

RESULT = Path(__file__).parent / "results" / "depth_statistics.json"
CHUNKS = (64, 128, 256)


@dataclass(frozen=True)
class Walk:
    """Hidden states of each layer, and the output matrix."""

    states: Tensor
    output: Tensor
    logits: Tensor  # where products are written: reused, since fresh pages cost as much as a pass

    def product(self, layer: int, rows: slice) -> Tensor:
        """Logits of some rows at a layer, in the one buffer."""
        hidden = self.states[layer, rows]
        return torch.mm(hidden, self.output.T, out=self.logits[: len(hidden)])


def walked(tokens: int, layers: int, width: int, vocabulary: int) -> Walk:
    """A walk on the sphere whose logits range from flat to peaked, with relative steps of 1/20."""
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(tokens, width, generator=generator)]
    for _ in range(layers):
        step = states[-1] + 0.22 * torch.randn(tokens, width, generator=generator)
        states.append(step * (width**0.5 / step.norm(dim=-1, keepdim=True)))
    sharpness = torch.linspace(1.0, 9.0, tokens)[:, None] / width**0.5
    output = torch.randn(vocabulary, width, generator=generator)
    return Walk(torch.stack(states) * sharpness, output, torch.empty(max(CHUNKS), vocabulary))


def slices(tokens: int, chunk: int) -> list[slice]:
    return [slice(i, min(i + chunk, tokens)) for i in range(0, tokens, chunk)]


def bare(walk: Walk, chunk: int) -> None:
    for layer in range(len(walk.states)):
        for rows in slices(walk.states.shape[1], chunk):
            walk.product(layer, rows)


def metered(walk: Walk, meter: DepthMeter, chunk: int) -> list[tuple[object, ...]]:
    found = []
    for layer in range(len(walk.states)):
        parts = []
        for rows in slices(walk.states.shape[1], chunk):
            logits = walk.product(layer, rows)
            parts.append(meter.advance(rows, logits) if layer else (meter.start(rows, logits),))
        found.append(tuple(joined(part) for part in zip(*parts, strict=True)))
    return found


def naive(walk: Walk) -> None:
    before = None
    for hidden in walk.states:
        z = hidden @ walk.output.T
        p, log_p = torch.softmax(z, -1), torch.log_softmax(z, -1)
        top = p.topk(2).values
        (z - z.mean(-1, keepdim=True)).square().sum(-1)
        -(p * log_p).sum(-1)
        p.max(-1), 1 - p.max(-1).values, top[:, 0] - top[:, 1], p.argmax(-1)
        squares = p.square().sum(-1)
        (squares + squares.square() - 2 * p.pow(3).sum(-1)).clamp_min(0).sqrt(), 1 - squares
        if before is not None:
            x, q, log_q = before
            step = z - x
            (step - step.mean(-1, keepdim=True)).square().sum(-1)
            step.max(-1).values - step.min(-1).values
            0.5 * (p - q).abs().sum(-1)
            (p * (log_p - log_q)).sum(-1)
            0.5 * (q * (step - (q * step).sum(-1, keepdim=True)).abs()).sum(-1)
        before = (z, p, log_p)


def difference(found: Tensor, exact: Tensor) -> float:
    """Largest relative difference; of places, whether any differs."""
    if not exact.is_floating_point():
        return float((found != exact).any())
    return float(((found - exact).abs() / exact.abs()).max())


def worst_errors(walk: Walk, meter: DepthMeter, rows: int) -> dict[str, float]:
    """Largest relative difference to float64 of each statistic, over some rows and all layers."""
    chosen = torch.linspace(0, walk.states.shape[1] - 1, rows).long()
    few = Walk(walk.states[:, chosen].contiguous(), walk.output, walk.logits)
    logits = [few.product(layer, slice(None)).clone() for layer in range(len(few.states))]
    errors: dict[str, float] = {}
    for layer, found in enumerate(metered(few, meter, rows)):
        exact: list[object] = [state_statistics(logits[layer])]
        if layer:
            exact.append(step_statistics(logits[layer - 1], logits[layer]))
        for mine, reference in zip(found, exact, strict=True):
            for name, value in vars(reference).items():
                worst = difference(vars(mine)[name], value)
                errors[name] = max(errors.get(name, 0.0), worst)
    return errors


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def quartiles(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(middle), "q25": float(low), "q75": float(high)}


@torch.no_grad()
def measured(options: argparse.Namespace) -> dict[str, object]:
    walk = walked(options.tokens, options.layers, options.width, options.vocabulary)
    shape = (options.tokens, options.vocabulary)
    compiling = time.perf_counter()
    meters = {mode: DepthMeter(*shape, mode=mode) for mode in ("eager", "compiled")}
    compiling = time.perf_counter() - compiling
    runs: dict[str, Callable[[], object]] = {
        f"bare, {chunk} rows": lambda chunk=chunk: bare(walk, chunk) for chunk in CHUNKS
    }
    runs |= {mode: lambda m=m: metered(walk, m, max(CHUNKS)) for mode, m in meters.items()}
    runs["naive"] = lambda: naive(walk)
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repetitions):
        for name, run in runs.items():
            times[name].append(seconds(run))
    best = min((n for n in times if n.startswith("bare")), key=lambda n: np.median(times[n]))
    base = np.array(times[best])
    return {
        "shapes": {k: getattr(options, k) for k in ("tokens", "layers", "width", "vocabulary")},
        "repetitions": options.repetitions,
        "ran": {mode: meter.mode for mode, meter in meters.items()},
        "fallback": meters["compiled"].fallback,
        "compilation_seconds": compiling,
        "base": best,
        "base_seconds": quartiles(base),
        "over_base": {name: quartiles(np.array(t) / base) for name, t in times.items()},
        "relative_error": {
            mode: worst_errors(walk, DepthMeter(32, options.vocabulary, mode=mode), 32)
            for mode in meters
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in [("tokens", 256), ("layers", 12), ("width", 768), ("vocabulary", 50257)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = {"machine": described(), **measured(options)}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"base: {figures['base']}, {figures['base_seconds']['median']:.2f} s")
    print(f"{'':<16}{'× base':>8}   interquartile range")
    for name, ratio in figures["over_base"].items():
        print(f"{name:<16}{ratio['median']:>8.3f}   {ratio['q25']:.3f} to {ratio['q75']:.3f}")
    for mode, errors in figures["relative_error"].items():
        worst = max(errors, key=lambda name: errors[name])
        print(f"{mode}: largest relative error {errors[worst]:.1e} ({worst})")


if __name__ == "__main__":
    main()
