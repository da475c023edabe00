"""What reading every head costs beside the pass itself.

Question: all heads of a real language model on 2,048 tokens in windows of 256: how long does the
reading take against (one plain forward pass + the query–key products alone), and how much memory
does it need beyond the loaded model? Named figures: 60 s on 2 cores, a ratio of 2, 500 MB.

Run: ``FLOWSCOPE_SMOLLM2=model.gguf FLOWSCOPE_WIKITEXT2_TEST=text.gz python -m benchmarks.heads``
(without them the bundled model on its packaged prompts); writes ``benchmarks/results/heads.json``.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import flowscope as fs
from benchmarks.machine import described
from flowscope.instruments.heads.geometry.reading import read_heads
from flowscope.models.prompts import Batch, packaged_texts
from flowscope.nets import bundled_path

RESULT = Path(__file__).parent / "results" / "heads.json"
WINDOWS, LENGTH, BATCH, ROUNDS = 8, 256, 4, 5


def material():
    """The model and its windows."""
    model, text = os.environ.get("FLOWSCOPE_SMOLLM2"), os.environ.get("FLOWSCOPE_WIKITEXT2_TEST")
    if model and text:
        raw = Path(text).read_bytes()
        words = (gzip.decompress(raw) if text.endswith(".gz") else raw).decode()
        loaded = fs.load(model, dtype=torch.float32)
    else:
        words, loaded = "\n".join(packaged_texts()), fs.load(bundled_path(), dtype=torch.float32)
    ids = loaded.tokenizer(words[: 40 * WINDOWS * LENGTH])["input_ids"][: WINDOWS * LENGTH]
    return loaded, torch.tensor(ids).view(WINDOWS, LENGTH)


def batches(ids):
    for start in range(0, WINDOWS, BATCH):
        rows = ids[start : start + BATCH]
        mask = torch.ones(len(rows), LENGTH, dtype=torch.bool)
        numbers = np.arange(start, start + len(rows))
        yield Batch(inputs={"input_ids": rows}, prompts=numbers, mask=mask)


@torch.no_grad()
def forward(loaded, ids):
    for batch in batches(ids):
        loaded.model(**batch.inputs, use_cache=False)


@torch.no_grad()
def products(loaded, ids):
    """The raw scores of every head and layer, formed and dropped: what no reading can avoid."""
    config = loaded.model.config
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    q = torch.randn(BATCH, heads, LENGTH, width)
    for _ in range(config.num_hidden_layers * (WINDOWS // BATCH)):
        q @ q.mT


def reading(loaded, ids):
    return read_heads(loaded.model, batches(ids), walk="unmasked", damping=0.01)[0]


def seconds(job, *arguments):
    start = time.perf_counter()
    job(*arguments)
    return time.perf_counter() - start


def timed() -> dict[str, object]:
    loaded, ids = material()
    for job in (forward, reading):
        job(loaded, ids)
    rounds = [
        {job.__name__: seconds(job, loaded, ids) for job in (forward, products, reading)}
        for _ in range(ROUNDS)
    ]
    ratios = [r["reading"] / (r["forward"] + r["products"]) for r in rounds]
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "model": Path(loaded.source).name,
        "layers": loaded.model.config.num_hidden_layers,
        "heads": loaded.model.config.num_attention_heads,
        "tokens": WINDOWS * LENGTH,
        "rounds": rounds,
        "ratio_median": statistics.median(ratios),
        "ratio_quartiles": [quartiles[0], quartiles[2]],
        "reading_seconds": statistics.median(r["reading"] for r in rounds),
    }


def grown(job) -> float:
    """Megabytes from the loaded model to the peak of a job."""
    loaded, ids = material()
    with torch.no_grad():
        loaded.model(input_ids=ids[:1, :8])
    # Loading peaks above everything after it, so the high-water mark is set back (Linux).
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water()
    job(loaded, ids)
    return (high_water() - before) / 1024


def high_water() -> int:
    """Peak of resident memory since the mark was set back, in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def apart(name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.heads", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    jobs = {"forward": forward, "reading": reading}
    if len(sys.argv) > 1:
        print(grown(jobs[sys.argv[1]]))
        return
    figures = {"machine": described(), **timed()}
    figures |= {f"{name}_extra_megabytes": apart(name) for name in jobs}
    RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    low, high = figures["ratio_quartiles"]
    print(
        f"{figures['model']}: {figures['layers']} x {figures['heads']} heads, {figures['tokens']} "
        f"tokens: {figures['reading_seconds']:.1f} s, {figures['ratio_median']:.2f} x (forward + "
        f"products) (IQR {low:.2f} to {high:.2f}); extra memory "
        f"{figures['reading_extra_megabytes']:.0f} MB (plain forward "
        f"{figures['forward_extra_megabytes']:.0f} MB)"
    )


if __name__ == "__main__":
    main()
