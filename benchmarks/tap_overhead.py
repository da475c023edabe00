"""What listening costs.

Question: how much slower is a forward pass of GPT-2-small shapes (12 layers, width 768, 128 tokens,
float32, CPU) with a reading listener, against the bare forward pass, measured in one run?

Peer: the bare model itself. Repetitions are interleaved so that drift of the machine hits all
alike. The one probing pass of a new model is timed apart.

Run: ``python benchmarks/tap_overhead.py``; writes ``benchmarks/results/tap_overhead.json``.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.machine import described
from flowscope import Tap

RESULT = Path(__file__).parent / "results" / "tap_overhead.json"


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def quartiles(ratios: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {"median": float(middle), "q25": float(low), "q75": float(high)}


@torch.no_grad()
def measured(tokens: int, repetitions: int) -> dict[str, object]:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    batch = {"input_ids": torch.randint(0, 50257, (1, tokens)), "use_cache": False}

    def bare() -> object:
        return model(**batch)

    def listening(kind: str) -> Callable[[], object]:
        def run() -> object:
            with Tap(model) as tap:
                seen: list[object] = []
                if kind == "attention":
                    tap.on_attention(lambda call: seen.append(call.q.shape))
                if kind == "block":
                    tap.on_block(lambda event: seen.append(event.hidden_out.shape))
                if kind == "entropy":
                    tap.on_attention(
                        lambda call: seen.append(
                            torch.special.entr(call.probabilities()).sum(-1).mean()
                        )
                    )
                return model(**batch)

        return run

    first = seconds(listening("attention"))
    runs = {"bare": bare} | {k: listening(k) for k in ("none", "attention", "block", "entropy")}
    for run in runs.values():
        run()
    times = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            times[name].append(seconds(run))
    base = np.array(times.pop("bare"))
    return {
        "tokens": tokens,
        "repetitions": repetitions,
        "bare_seconds": quartiles(base),
        "first_pass_with_probing_over_bare": first / float(np.median(base)),
        "over_bare": {name: quartiles(np.array(t) / base) for name, t in times.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=40)
    options = parser.parse_args()
    figures = {"machine": described(), **measured(options.tokens, options.repetitions)}
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"{'listener':<12}{'× bare forward':>16}   interquartile range")
    for name, ratio in figures["over_bare"].items():
        print(f"{name:<12}{ratio['median']:>16.3f}   {ratio['q25']:.3f} to {ratio['q75']:.3f}")


if __name__ == "__main__":
    main()
