"""What squared logit steps cost through the Gram matrix of the output, against through the logits.

Question: how much faster is ‖UΔx‖² (U centred over the vocabulary) from the d × d Gram matrix than
from the logits themselves, at GPT-2-small shapes (width 768, 50,257 outcomes, float32, CPU), and
after how many tokens has forming the matrix paid for itself?

Peer: the product with U, in chunks of rows, centred and squared. Repetitions are interleaved; a
ratio is taken within a repetition. Accuracy: the largest relative difference of both to float64.

Run: ``python -m benchmarks.quadratic_variation``; writes
``benchmarks/results/quadratic_variation.json``.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import described
from flowscope.flows import centred_gram, quadratic_variation_gram

RESULT = Path(__file__).parent / "results" / "quadratic_variation.json"
CHUNK = 256


def through_logits(steps: Tensor, output: Tensor) -> Tensor:
    buffer, found = torch.empty(CHUNK, len(output)), []
    for rows in steps.split(CHUNK):
        logits = torch.mm(rows, output.T, out=buffer[: len(rows)])
        logits.sub_(logits.mean(-1, keepdim=True))
        found.append(torch.linalg.vector_norm(logits, dim=-1).square())
    return torch.cat(found)


def exact(steps: Tensor, output: Tensor) -> Tensor:
    logits = steps.double() @ output.double().T
    return (logits - logits.mean(-1, keepdim=True)).square().sum(-1)


def trained_like(vocabulary: int, width: int) -> Tensor:
    """An output matrix with a mean and a spectrum over three decades, as trained ones have."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(0, -1.5, width)
    mixing = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    weight = torch.randn(vocabulary, width, generator=generator) * scale @ mixing
    return weight + torch.randn(width, generator=generator) * 0.3


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def quartiles(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(middle), "q25": float(low), "q75": float(high)}


@torch.no_grad()
def measured(options: argparse.Namespace) -> dict[str, object]:
    output = trained_like(options.vocabulary, options.width)
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(options.steps, options.width, generator=generator)
    gram = centred_gram(output)
    runs = {
        "logits": lambda: through_logits(steps, output),
        "gram": lambda: quadratic_variation_gram(steps, gram),
        "forming": lambda: centred_gram(output),
    }
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repetitions):
        for name, run in runs.items():
            times[name].append(seconds(run))
    logits, through, forming = (np.array(times[name]) for name in ("logits", "gram", "forming"))
    few = steps[:128]
    truth = exact(few, output)
    return {
        "shapes": {k: getattr(options, k) for k in ("steps", "width", "vocabulary")},
        "repetitions": options.repetitions,
        "logits_seconds": quartiles(logits),
        "gram_seconds": quartiles(through),
        "forming_seconds": quartiles(forming),
        "logits_over_gram": quartiles(logits / through),
        "steps_until_forming_is_paid": quartiles(forming / (logits - through) * options.steps),
        "relative_error": {
            "gram": float((runs["gram"]()[:128] / truth - 1).abs().max()),
            "logits": float((through_logits(few, output) / truth - 1).abs().max()),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in [("steps", 1024), ("width", 768), ("vocabulary", 50257)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = {"machine": described(), **measured(options)}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    ratio, forming = figures["logits_over_gram"], figures["forming_seconds"]
    print(f"through logits over Gram: {ratio['median']:.1f} ({ratio['q25']:.1f} to "
          f"{ratio['q75']:.1f})")  # fmt: skip
    print(f"forming the Gram matrix: {forming['median']:.2f} s, paid for after "
          f"{figures['steps_until_forming_is_paid']['median']:.0f} steps")  # fmt: skip
    for name, error in figures["relative_error"].items():
        print(f"{name}: largest relative error {error:.1e}")


if __name__ == "__main__":
    main()
