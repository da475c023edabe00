"""What recording every pass costs beside the passes themselves.

``python -m benchmarks.decode_overhead`` fills the same puzzles with the reference, in turns with
and without the record of all laws, and writes ``benchmarks/results/decode_overhead.json``. Times
are seconds of the processor, so that other programs do not count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from flowscope.instruments.decode.filling.loop import filled
from flowscope.instruments.decode.filling.steps import Plan
from flowscope.instruments.decode.filling.trace import Recorder
from flowscope.instruments.decode.policies.catalogue import policy_named
from flowscope.models.infilling.loading import infiller
from flowscope.models.infilling.templates import Canvas, Template, canvas_of
from flowscope.models.loading import load
from flowscope.nets import bundled_path
from flowscope.nets.sudoku import puzzles

ROUNDS = 5
PROMPTS, TASKS = 16, ("sudoku-6x6",)


def main() -> None:
    """Time both, in turns."""
    made = infiller(load(bundled_path("denoiser"), dtype=torch.float32))
    plan, reference = Plan(), policy_named("reference")
    found = {}

    def seconds(canvas: Canvas, recording: bool) -> float:
        start = time.process_time()
        recorder = Recorder(canvas) if recording else None
        filled(made, canvas, reference, plan, listener=recorder, recording=recording)
        return time.process_time() - start

    for task in TASKS:
        some = puzzles(task, PROMPTS, seed=0)
        pairs = zip(some.prompts.astype(np.int64), some.region, strict=True)
        canvas = canvas_of(made, [Template(ids=ids, blank=blank) for ids, blank in pairs])
        seconds(canvas, True)
        times = np.array(
            [[seconds(canvas, recording) for recording in (False, True)] for _ in range(ROUNDS)]
        )
        ratios = times[:, 1] / times[:, 0]
        found[task] = {
            "prompts": PROMPTS, "rounds": ROUNDS, "seconds": times.tolist(),
            "overhead": float(np.median(ratios) - 1), "least": float(ratios.min() - 1),
            "most": float(ratios.max() - 1),
        }  # fmt: skip
    place = Path(__file__).parent / "results" / "decode_overhead.json"
    place.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write("\n".join(f"{t}: {r['overhead']:+.1%}" for t, r in found.items()) + "\n")


if __name__ == "__main__":
    main()
