"""Quadratic variation through the Gram matrix, against the logits.

Question: how much faster is ‖UΔx‖² (U centred over the vocabulary) from a cached d × d Gram matrix
than from the logits themselves, at d = 768, V = 50,257, 256 tokens and 12 steps; do they agree?

Run: ``python -m benchmarks.quadratic_variation``; writes ``results/quadratic_variation.json``.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.machine import described
from flowscope.flows import centred_gram, quadratic_variation_gram

RESULT = Path(__file__).parent / "results" / "quadratic_variation.json"
WIDTH, VOCABULARY, TOKENS, STATES, REPETITIONS = 768, 50_257, 256, 13, 7


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@torch.no_grad()
def main() -> None:
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(VOCABULARY, WIDTH, generator=generator) / WIDTH**0.5
    states = torch.randn(TOKENS, STATES, WIDTH, generator=generator).cumsum(1)

    moves = (states[:, 1:] - states[:, :-1]).flatten(0, 1)

    def through_logits() -> torch.Tensor:
        steps = moves @ output.mT
        return (steps - steps.mean(-1, keepdim=True)).square().sum(-1)

    formation = seconds(lambda: centred_gram(output))
    gram = centred_gram(output)

    def through_gram() -> torch.Tensor:
        return quadratic_variation_gram(moves, gram)

    exact, found = through_logits().double(), through_gram().double()
    times = [(seconds(through_logits), seconds(through_gram)) for _ in range(REPETITIONS)]
    ratios = np.array([slow / fast for slow, fast in times])
    figures = {
        "machine": described(),
        "shapes": {"width": WIDTH, "vocabulary": VOCABULARY, "tokens": TOKENS, "steps": STATES - 1},
        "gram_formation_seconds": formation,
        "faster_by": {
            "median": float(np.median(ratios)),
            "q25": float(np.quantile(ratios, 0.25)),
            "q75": float(np.quantile(ratios, 0.75)),
        },
        "largest_relative_difference": float(((exact - found).abs() / exact).max()),
    }
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps({k: v for k, v in figures.items() if k != "machine"}, indent=2))


if __name__ == "__main__":
    main()
