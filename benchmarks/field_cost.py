"""What the field costs: its budget pass, its products with Jacobians, and runs on other families.

Questions: how long is the budget pass against one plain forward pass and the score products alone,
and how much memory does it need beyond the loaded model? How many forward passes of a block is one
product with its Jacobian? How long is ``flowscope field``, with and without Jacobians, and the
study ``pde_view``? Does it run on a vision transformer, a diffusion transformer and a post-norm
encoder?

    python -m benchmarks.field_cost
    python -m benchmarks.field_cost --model FOLDER --text FILE.gz --parts budget
    python -m benchmarks.field_cost --encoder FOLDER --model FOLDER --parts families

Processor seconds of one thread count, because others may use the machine. Each part goes to
``results/field_cost.json``.
"""

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flowscope as fs
from benchmarks.machine import described
from flowscope.models.loading import Loaded
from flowscope.models.prompts import packaged_texts
from flowscope.nets import bundled_path
from flowscope.pde import jacobian_bounds
from flowscope.probes import PlainBatch, tap_pass
from flowscope.probes.block_visit import block_visits
from flowscope.probes.field.field_probe import FieldProbe
from flowscope.records import Run

RESULT = Path(__file__).parent / "results" / "field_cost.json"
WINDOWS, LENGTH, BATCH, ROUNDS = 16, 128, 4, 2


def material(options: argparse.Namespace) -> tuple[Loaded, torch.Tensor]:
    """The model in single precision, and windows of a text."""
    loaded = fs.load(options.model or bundled_path(), dtype=torch.float32)
    text = "\n".join(packaged_texts())
    if options.text:
        text = gzip.decompress(options.text.read_bytes()).decode("utf-8")
    ids = loaded.tokenizer(text[: 40 * WINDOWS * LENGTH])["input_ids"][: WINDOWS * LENGTH]
    return loaded, torch.tensor(ids).view(WINDOWS, LENGTH)


def batches(ids: torch.Tensor) -> list[PlainBatch]:
    return [
        PlainBatch(
            inputs={"input_ids": rows, "use_cache": False},
            prompts=np.arange(len(rows)) + start,
            mask=torch.ones(rows.shape, dtype=torch.bool),
        )
        for start, rows in zip(range(0, len(ids), BATCH), ids.split(BATCH), strict=True)
    ]


def seconds(job: Callable[[], object]) -> float:
    """Processor seconds, median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        job()
        found.append(time.process_time() - began)
    return statistics.median(found)


def budget(options: argparse.Namespace) -> dict[str, Any]:
    """The budget pass against the forward pass and the score products."""
    loaded, ids = material(options)
    config, given = loaded.model.config, batches(ids)
    heads = config.num_attention_heads
    q = torch.randn(BATCH, heads, LENGTH, config.hidden_size // heads)

    @torch.no_grad()
    def forward() -> None:
        for batch in given:
            loaded.model(**batch.inputs)

    def products() -> None:
        for _ in range(config.num_hidden_layers * len(given)):
            q @ q.mT

    def reading() -> None:
        tap_pass(loaded.model, given, {"field": FieldProbe(loaded.model)})

    began = time.process_time()
    tap_pass(loaded.model, batches(ids[:, :8])[:1], {"field": FieldProbe(loaded.model)})
    probing = time.process_time() - began  # once for each model: where its blocks and writes are
    forward()
    plain, scores = seconds(forward), seconds(products)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = seconds(reading)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "model": loaded.source.rsplit("/", 1)[-1], "tokens": int(ids.numel()),
        "forward_seconds": round(plain, 2), "score_products_seconds": round(scores, 2),
        "budget_seconds": round(whole, 2), "ratio": round(whole / (plain + scores), 2),
        "extra_megabytes": round(extra / 1024), "probing_seconds": round(probing, 2),
    }  # fmt: skip


def products(options: argparse.Namespace) -> dict[str, Any]:
    """A product with a Jacobian, or with its transpose, against the forward pass of its block."""
    loaded, ids = material(options)
    ratios = []
    for visit in block_visits(loaded.model, {"input_ids": ids[:1, :64], "use_cache": False}):
        with torch.no_grad():
            forward = seconds(lambda visit=visit: [visit.write(visit.H0) for _ in range(20)]) / 20
        began = time.process_time()
        found = jacobian_bounds(visit.write, visit.H0, products=10)
        ratios.append((time.process_time() - began) / found.products / forward)
    return {
        "model": loaded.source.rsplit("/", 1)[-1], "tokens": 64,
        "product_over_forward": round(statistics.median(ratios), 2),
        "largest": round(max(ratios), 2),
    }  # fmt: skip


def command(options: argparse.Namespace) -> dict[str, Any]:
    """``flowscope field`` with its defaults, and without Jacobians."""
    more = {"default": [], "without Jacobians": ["--set", "jacobians=false"]}
    return {name: spent_by("field", *words) for name, words in more.items()}


def study(options: argparse.Namespace) -> dict[str, Any]:
    """``flowscope reproduce pde_view`` with its defaults."""
    return spent_by("reproduce", "pde_view")


def spent_by(*words: str) -> dict[str, Any]:
    """Seconds of the processor of a command, and seconds of its stages on the clock."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [sys.executable, "-m", "flowscope", *words, "--json", "--out", folder],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert ended.returncode in (0, 3), ended.stderr
        stages = Run.open(json.loads(ended.stdout)["run"]).read_manifest().stages
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {
        "processor_seconds": round(spent, 1),
        "clock_seconds_by_stage": {name: round(s["seconds"], 1) for name, s in stages.items()},
    }
    print(words, found, flush=True)
    return found


def vision() -> tuple[Any, list[dict[str, Any]]]:
    """A vision transformer with random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=96, num_hidden_layers=8, num_attention_heads=4, intermediate_size=192,
        image_size=32, patch_size=4, num_labels=10,
    )  # fmt: skip
    model = ViTForImageClassification(config).eval()
    return model, [{"pixel_values": torch.randn(4, 3, 32, 32)} for _ in range(4)]


def diffusion() -> tuple[Any, list[dict[str, Any]]]:
    """The transformer of the bundled diffusion model, on noise at four levels."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel.from_pretrained(bundled_path("image") / "transformer")
    model = model.float().eval()
    size, channels = model.config.sample_size, model.config.in_channels
    torch.manual_seed(0)
    return model, [
        {
            "hidden_states": torch.randn(4, channels, size, size),
            "timestep": torch.full((4,), level),
            "class_labels": torch.arange(4),
        }
        for level in (50, 300, 600, 900)
    ]


def families(options: argparse.Namespace) -> dict[str, Any]:
    """Verdicts, reasons and what is measured on other families."""
    made: dict[str, Callable[[], tuple[Any, list[dict[str, Any]]]]] = {
        "vision transformer, random weights": vision,
        "bundled diffusion transformer": diffusion,
    }
    small = {"draws": 16, "jacobian_tokens": 32, "products": 15, "twins": 1, "progress": False}
    found: dict[str, Any] = {}
    if RESULT.is_file():
        found |= json.loads(RESULT.read_text()).get("families", {})
    for name, make in made.items():
        if options.given_only:
            continue
        model, inputs = make()
        found[name] = described_run(lambda out, m=model, i=inputs: fs.field(
            m, inputs=i, out=out, **small))  # fmt: skip
        print(name, found[name], flush=True)
    if options.encoder:
        found["post-norm encoder"] = described_run(
            lambda out: fs.field(options.encoder, out=out, tokens=32, **small)
        )
    if options.model:  # its Jacobians and interventions are in field_smollm2.json
        name = f"{fs.load(options.model).source.rsplit('/', 1)[-1]}, 16 prompts of 32 tokens"
        found[name] = described_run(
            lambda out: fs.field(
                options.model, out=out, tokens=32, jacobians=False, interventions=False, **small
            )
        )
    return found


def described_run(run: Callable[[str], Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = run(folder)
        spent = time.process_time() - began
        table = result.table
        absent = [name for name in table if table[name].isna().all() and not name.endswith("w")]
        return {
            "processor_seconds": round(spent, 1),
            "verdicts": {v.name: f"{v.outcome}: {v.because}" for v in result.verdicts},
            "blocks": len(table),
            "columns_without_numbers": [n for n in absent if not n.endswith(("_low", "_high"))],
            "not_measured": [f"{m.name}: {m.because}" for m in result.run.read_measurements()],
        }


PARTS = {"budget": budget, "products": products, "families": families, "command": command,
         "study": study}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--text", type=Path)
    parser.add_argument(
        "--given-only", action="store_true", help="of the families, only --model and --encoder"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.parts.split(","):
        found = PARTS[name](options)
        key = f"{name}, {found['model']}" if "model" in found else name
        kept = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
        kept |= {"machine": described(), key: found}
        RESULT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(key, found, flush=True)


if __name__ == "__main__":
    main()
