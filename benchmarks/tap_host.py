"""What listening adds to the work of the host: 28 blocks as in DiT-XL/2, too narrow to count.

Processor milliseconds of a pass on the CPU with one thread, in interleaved rounds; what an arm adds
is taken within a round. *by mode* listens to the same events through a torch function mode, as
every pass did at commit d097631. A GPU hides this work only where its kernels take longer.

    OMP_NUM_THREADS=1 python -m benchmarks.tap_host
"""

import argparse
import copy
import json
import statistics
import time
from pathlib import Path

import torch
from diffusers import DiTTransformer2DModel

from benchmarks.machine import described
from benchmarks.tap_gpu import ARMS, MODE_ARMS, arm, batch_of, by_mode
from flowscope.tap import Tap

RESULT = Path(__file__).parent / "results" / "tap_host.json"


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=28,
        sample_size=4, patch_size=2, num_embeds_ada_norm=1000,
    ).eval()  # fmt: skip
    batch, twin = batch_of(model, 2), copy.deepcopy(model)
    with by_mode(), Tap(twin) as tap:
        tap.on_attention(lambda call: None)
        twin(**batch)
    models = dict.fromkeys((*ARMS, "couple"), model) | dict.fromkeys(MODE_ARMS, twin)
    times: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for round_ in range(options.rounds):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            with arm(name, models[name]):
                models[name](**batch)
                start = time.process_time()
                for _ in range(options.steps):
                    models[name](**batch)
                times[name].append(1e3 * (time.process_time() - start) / options.steps)
    rows = {}
    for name, taken in times.items():
        more = [one - bare for one, bare in zip(taken, times["bare"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        rows[name] = {
            "ms": round(statistics.median(taken), 2),
            "added_ms": round(middle, 2),
            "added_q25": round(low, 2),
            "added_q75": round(high, 2),
        }
        print(f"{name:<28}{rows[name]['ms']:8.2f}{middle:8.2f} ({low:.2f} to {high:.2f})")
    document = {"machine": described(), "rounds": options.rounds, "blocks": 28, "arms": rows}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
