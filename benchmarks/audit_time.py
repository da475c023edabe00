"""Where the time of a complete audit goes.

Every stage of an audit of P0 to P4 is timed by the progress it reports, for the bundled model and
for any other that is named:

    python -m benchmarks.audit_time
    python -m benchmarks.audit_time SmolLM2.gguf --text wikitext.txt --prompts 157 --tokens 128

Results are kept, one entry per model and size, in ``results/audit_time.json``.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.machine import described
from flowscope.lab import engine, registry

RESULTS = Path(__file__).parent / "results" / "audit_time.json"


class Stages:
    """Seconds of each stage, from the first word of it to the first of the next."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since = "loading", time.perf_counter()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note when another stage begins."""
        if stage != self._stage:
            self.end()
            self._stage = stage

    def end(self) -> None:
        """Close the stage that is running."""
        now = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._since = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--text")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--name", help="what to call the model in the results")
    options = vars(parser.parse_args())
    name = options.pop("name") or Path(options["model"] or "bundled").name
    with tempfile.TemporaryDirectory() as folder:
        stages, start = Stages(), time.perf_counter()
        instrument = registry.instrument("audit")
        settings = instrument.config.resolved({**options, "out": folder})
        found = engine.run(instrument, settings, progress=stages)
        stages("report", 0, 1)
        found.report()
        stages.end()
        total = time.perf_counter() - start
        document = found.to_json()
    entry = {
        "tokens": document["measured"]["tokens"],
        "prompts": document["measured"]["prompts"],
        "seconds": round(total, 1),
        "stages": {stage: round(s, 1) for stage, s in stages.seconds.items()},
        "verdicts": {v["name"]: [v["decision"], v["because"]] for v in document["verdicts"]},
        "machine": described(),
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    kept[f"{name}, {entry['tokens']} tokens"] = entry
    RESULTS.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    print(f"{name}: {entry['tokens']} tokens in {total:.0f} s")
    for stage, seconds in sorted(entry["stages"].items(), key=lambda item: -item[1]):
        print(f"  {stage:<14} {seconds:7.1f} s  {seconds / total:5.0%}")


if __name__ == "__main__":
    main()
