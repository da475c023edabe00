"""A whole audit on one GPU, beside its floor: the forward pass and the bare output products.

Question: how long does an audit take at the shapes of a 135M and of an 8B model, in multiples of
the forward pass with the bare output product of every layer, and where does it go? Random weights,
bfloat16, P3 left out, controls off and on. Peer: the same audit by an earlier commit, whose source
tree is named with ``--before`` and which runs in a process of its own, with a limit.

Run by hand where there is a GPU; every row is written as soon as it is there:

    git archive d097631 src | tar x -C before
    python -m benchmarks.audit_gpu --out audit_gpu.json --before before --seconds 290
    python -m benchmarks.audit_gpu --device cpu --shapes tiny --out try.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import described
from benchmarks.random_models import SHAPES, Shape, built, random_texts, tokenizer

LESS = {"curvature_pairs": 0, "evi_positions": 0, "temperatures": (), "key_norms": ()}
ROWS = {
    "exact, first": {"controls": False},
    "exact": {"controls": False},
    "model": {"controls": False, "readout": "model"},
    "exact, controls": {"controls": True},
}
"""Audits of a shape; the first meets kernels that are not compiled and libraries not loaded."""

EARLIER = """
import json, sys, time, types
for name in ("plotly", "plotly.graph_objects", "plotly.io", "plotly.offline", "plotly.subplots"):
    sys.modules.setdefault(name, types.ModuleType(name))
sys.modules["plotly.offline"].get_plotlyjs = str  # no report is written, and it may be missing
began = time.perf_counter()
import torch
from benchmarks.audit_gpu import LESS
from benchmarks.random_models import SHAPES, built, random_texts
import flowscope as fs
from transformers import AutoTokenizer
name, device, folder, words = sys.argv[1:5]
shape = SHAPES[name]
tokens = AutoTokenizer.from_pretrained(words)
known = sorted(w for w in tokens.get_vocab() if w.isalpha() and len(w) > 2)
model = built(shape, device, torch.bfloat16 if device == "cuda" else torch.float32)
started, seen = time.perf_counter(), ""
def told(stage, done, total):
    global seen
    if stage != seen:
        seen = stage
        at = round(time.perf_counter() - started, 2)
        print(json.dumps({"stage": stage, "at": at}), flush=True)
fs.audit(model, texts=random_texts(shape, known), tokenizer=tokens, out=folder + "/run",
         prompts=shape.prompts, tokens=shape.tokens, controls=False, progress=told, **LESS)
print(json.dumps({"stage": "end", "at": round(time.perf_counter() - started, 2)}), flush=True)
"""


class Rows:
    """Figures by shape, written to a file after every one."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._until = path, time.perf_counter() + seconds
        self.figures: dict[str, Any] = {"machine": described()}

    def left(self) -> float:
        """Seconds until no further row is begun."""
        return self._until - time.perf_counter()

    def put(self, shape: str, name: str, figures: Any) -> None:
        """Keep the figures of a row."""
        self.figures.setdefault(shape, {})[name] = figures
        self._path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
        print(f"{shape:<6} {name:<18} {figures}", flush=True)


def synchronised() -> float:
    """Time now, with an idle GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(run: Callable[[], object], repeats: int = 3) -> float:
    """Median seconds of a function, after one call that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = synchronised()
        run()
        times.append(synchronised() - start)
    return statistics.median(times)


@torch.no_grad()
def floor(model: Any, shape: Shape, batch: int) -> dict[str, float]:
    """Seconds of the forward passes, and of these with the bare products of every layer."""
    device = next(model.parameters()).device
    weight = model.lm_head.weight
    ids = torch.randint(shape.vocabulary, (batch, shape.tokens), device=device)
    hidden = torch.randn(batch * shape.tokens, shape.width, device=device).to(weight.dtype)
    out = torch.empty(len(hidden), shape.vocabulary, device=device, dtype=weight.dtype)
    batches = -(-shape.prompts // batch)

    def forward() -> None:
        for _ in range(batches):
            model(input_ids=ids)

    def products() -> None:
        for _ in range(batches * (shape.layers + 1)):
            torch.mm(hidden, weight.mT, out=out)

    alone, bare = seconds_of(forward), seconds_of(products)
    return {"forward": round(alone, 4), "floor": round(alone + bare, 4)}


def audited(model: Any, shape: Shape, tokens: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Seconds of an audit: in all, measuring, and everything after it."""
    import flowscope as fs

    words = sorted(w for w in tokens.get_vocab() if w.isalpha() and len(w) > 2)
    with tempfile.TemporaryDirectory() as folder:
        start = synchronised()
        fs.audit(
            model, texts=random_texts(shape, words), tokenizer=tokens, out=f"{folder}/run",
            prompts=shape.prompts, tokens=shape.tokens, **LESS, **settings,
        )  # fmt: skip
        total = synchronised() - start
        manifest = json.loads((Path(folder) / "run" / "manifest.json").read_text())
    stages = {name: round(part["seconds"], 3) for name, part in manifest["stages"].items()}
    before = stages.get("loading", 0.0) + stages.get("measuring", 0.0)
    return {
        "total": round(total, 3),
        "measuring": stages.get("measuring"),
        "after": round(sum(stages.values()) - before, 3),
        "stages": stages,
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2)
        if torch.cuda.is_available()
        else None,
    }


def earlier(name: str, device: str, tree: Path, limit: float) -> dict[str, Any]:
    """When each stage of the audit of another source tree began; cut at a limit."""
    from flowscope.nets import bundled_path

    here = Path(__file__).parents[1]
    environment = {**os.environ}
    paths = [str(tree / "src"), str(here), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", EARLIER, name, device, folder, str(bundled_path())]
        log = Path(folder) / "log.txt"
        cut = False
        with log.open("w") as stream, (Path(folder) / "errors.txt").open("w+") as errors:
            try:
                subprocess.run(
                    command, env=environment, stdout=stream, stderr=errors, timeout=limit, cwd=here
                )
            except subprocess.TimeoutExpired:
                cut = True
            errors.seek(0)
            said = errors.read()[-600:]
        stages = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    ended = bool(stages) and stages[-1]["stage"] == "end"
    return {
        "began": {row["stage"]: row["at"] for row in stages},
        "total": stages[-1]["at"] if ended else None,
        "cut_after": round(limit, 1) if cut else None,
        "error": "" if ended or cut else said,
    }


def table(figures: dict[str, Any]) -> None:
    """Print what is asked for, beside what was reached."""
    print(f"\n{'':<26}{'total':>8}{'measuring':>11}{'× floor':>9}{'after':>8}")
    for shape, rows in figures.items():
        if "floor" not in rows:
            print(f"{shape}: {rows}")
            continue
        base = rows["floor"]["floor"]
        print(f"{shape}: forward {rows['floor']['forward']:.3f} s, floor {base:.3f} s")
        for name, row in rows.items():
            if isinstance(row, dict) and row.get("measuring"):
                ratio = row["measuring"] / base
                print(f"  {name:<24}{row['total']:>8.2f}{row['measuring']:>11.3f}"
                      f"{ratio:>9.2f}{row['after']:>8.2f}")  # fmt: skip
        if "before" in rows:
            print(f"  before: {rows['before']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("audit_gpu.json"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", default="8B,135M", help="separated by commas")
    parser.add_argument("--before", type=Path, help="folder with the src of an earlier commit")
    parser.add_argument("--seconds", type=float, default=400, help="no row begins after these")
    parser.add_argument("--audits", default=";".join(ROWS), help="separated by semicolons")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    rows = Rows(options.out, options.seconds)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    tokens = tokenizer()
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        wanted = [label for label in ROWS if label in options.audits.split(";")]
        if not wanted:
            continue
        model = built(shape, options.device, dtype)
        rows.put(name, "floor", floor(model, shape, options.batch))
        for label in wanted:
            if rows.left() > 0:
                try:
                    rows.put(name, label, audited(model, shape, tokens, ROWS[label]))
                except Exception as error:  # the other rows are worth having
                    rows.put(name, label, {"error": f"{type(error).__name__}: {error}"[:600]})
        del model
        if options.device == "cuda":
            torch.cuda.empty_cache()
    for name in options.shapes.split(",") if options.before else ():
        if rows.left() > 15:
            limit = rows.left() - 5
            rows.put(name, "before", earlier(name, options.device, options.before, limit))
    table(rows.figures)


if __name__ == "__main__":
    main()
