"""What a consensus of two models costs.

Question: how much longer than the two passes apart does a paired consensus of two models take, all
blocks at full strength?

Peer: the two models called one after the other in the same process; rounds alternate. Processor
time of all threads is taken, because other programs share the machine.

Run: ``python -m benchmarks.consensus_time``; writes ``benchmarks/results/consensus_time.json``.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import described
from flowscope.levers import consensus
from flowscope.models.loading import load
from flowscope.models.prompts import batches_of, packaged_texts, prompts_of
from flowscope.nets import bundled_path

RESULT = Path(__file__).parent / "results" / "consensus_time.json"
SIZES = ((1, 32), (8, 128))


def seconds(run: Callable[[], Any]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


@torch.no_grad()
def ratios(rows: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Times of the two models apart and in consensus, round by round."""
    loaded = load(bundled_path(), dtype=torch.float32)
    first = loaded.model.eval()
    second = copy.deepcopy(first)
    for weight in second.parameters():
        weight += 0.05 * weight.std() * torch.randn_like(weight)
    prompts = prompts_of(loaded, packaged_texts(), count=rows, length=tokens)
    inputs = {**next(batches_of(loaded, prompts, rows)).inputs, "use_cache": False}
    apart, together = [], []
    with consensus([first, second]) as both:
        both(**inputs)  # finds the blocks
        for _ in range(rounds):
            apart.append(seconds(lambda: [model(**inputs) for model in (first, second)]))
            together.append(seconds(lambda: both(**inputs)))
    ratio = np.array(together) / np.array(apart)
    draws = np.random.default_rng(0).choice(ratio, (999, len(ratio)))
    low, high = np.quantile(np.median(draws, 1), [0.025, 0.975])
    return {
        "rows": rows, "tokens": tokens, "rounds": rounds,
        "apart_s": float(np.median(apart)), "consensus_s": float(np.median(together)),
        "ratio": float(np.median(ratio)), "ratio_low": float(low), "ratio_high": float(high),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [ratios(rows, tokens, options.rounds) for rows, tokens in SIZES]
    document = {"machine": described(), "threads": 1, "sizes": found}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for each in found:
        print(each)


if __name__ == "__main__":
    main()
