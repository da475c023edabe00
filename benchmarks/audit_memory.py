"""What an audit of 100,000 tokens needs beyond the model.

Question: how much does the memory of the process grow from the loaded model to the peak of the
audit, at 8,192 and at 100,096 tokens of the bundled model? Streaming means: hardly with tokens.

Run: ``python -m benchmarks.audit_memory``; writes ``benchmarks/results/audit_memory.json``.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.machine import described

RESULT = Path(__file__).parent / "results" / "audit_memory.json"


def peak_growth(prompts: int) -> dict[str, float]:
    """Megabytes from after loading to the peak, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit_memory", str(prompts)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(prompts: int) -> dict[str, float]:
    import time

    import flowscope as fs
    from flowscope.models.prompts import packaged_texts
    from flowscope.nets import bundled_path

    loaded = fs.load(bundled_path())
    texts = packaged_texts()
    fs.audit(loaded, texts[:2], resamples=5, controls=False)  # libraries are warm
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    repeated = [texts[i % len(texts)][i % 97 :] for i in range(prompts)]
    fs.audit(loaded, repeated, prompts=prompts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "prompts": prompts,
        "tokens": prompts * 128,
        "extra_megabytes": (peak - before) / 1024,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measured(int(sys.argv[1]))))
        return
    figures = {"machine": described(), "runs": [peak_growth(64), peak_growth(782)]}
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    for run in figures["runs"]:
        print(
            f"{run['tokens']:>8,} tokens: {run['extra_megabytes']:.0f} MB beyond the loaded model"
        )


if __name__ == "__main__":
    main()
