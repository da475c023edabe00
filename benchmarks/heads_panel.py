"""What the verdicts M1 and M2 say of heads whose answer is known, of random weights, of models.

Question: what makes "directed beyond its sharpness" and "looks are one-way" say *holds*, and what
makes them say something else? Subjects: the heads of ``known_heads`` over 20 seeds; Llamas and
diffusion transformers of two sizes with random weights, as they are, with sharper logits, and small
Llamas with equal queries and keys (a reversible walk); the bundled model and any that is named,
trained and untrained.

    python -m benchmarks.heads_panel --seeds 20
    python -m benchmarks.heads_panel --only real --model NAME=FOLDER --text NAME=STORIES.txt.gz
    python -m benchmarks.heads_panel --calibrate 1000
    python -m benchmarks.heads_panel --joint 1000

Every run is stored at once in ``benchmarks/results/heads_panel.json``, and runs that are stored are
not repeated. ``--calibrate`` counts wrong decisions of both judges on arrays without an effect.
``--page`` writes the tables of ``docs/theory/what-holds-means.md`` and
``docs/theory/calibration.md`` and ends.
"""

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import flowscope
from benchmarks.calibration import table_text, values_of, written
from benchmarks.known_heads import EXPECTED, HEADS, head_arrays, head_table, head_verdicts
from benchmarks.panel_models import Bytes, opened, story_texts, untrained
from benchmarks.panel_runs import Job, PanelRuns
from benchmarks.panel_tables import OUTCOMES, counted
from flowscope.instruments.heads.geometry.judge import judge_one_way, judge_sharpness
from flowscope.models.loading import load
from flowscope.models.prompts import packaged_texts
from flowscope.records import Interval, Verdict

RESULT = Path(__file__).parent / "results" / "heads_panel.json"
THEORY = Path(__file__).parents[1] / "docs" / "theory"
PARTS = ("known", "random", "real")
SIZES = {"4 layers of 64": (4, 64), "8 layers of 128": (8, 128)}
DENOISERS = {"DiT, 2 layers of 32": (2, 32), "DiT, 6 layers of 64": (6, 64)}
PROMPTS, TOKENS = 16, 64
SHARPER = 7.0
Runs = Mapping[str, Mapping[str, Any]]


RUNS = PanelRuns(RESULT, PARTS)


def heads_of(model: object, *texts: Sequence[str], seed: int, **settings: object) -> list[Verdict]:
    """Verdicts of ``flowscope heads``; the twins have other seeds than any model of the panel."""
    with tempfile.TemporaryDirectory() as folder:
        result = flowscope.heads(
            model, *map(list, texts), out=f"{folder}/run", progress=False, prompts=PROMPTS,
            seed=10_000 + 10 * seed, dials=False, **settings,
        )  # fmt: skip
        return list(result.verdicts)


def llama(layers: int, width: int, seed: int) -> nn.Module:
    """A Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=4, vocab_size=256, max_position_embeddings=256,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def denoiser(layers: int, width: int, seed: int) -> nn.Module:
    """A diffusion transformer of 16 × 16 images, 64 tokens, with random weights."""
    from diffusers import DiTTransformer2DModel

    torch.manual_seed(seed)
    return DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=width // 4, in_channels=1, out_channels=1,
        num_layers=layers, sample_size=16, patch_size=2, num_embeds_ada_norm=4,
    ).eval()  # fmt: skip


def changed(model: nn.Module, factor: float, *, symmetric: bool = False) -> nn.Module:
    """The same model with queries and keys larger by a factor, and equal if asked for."""
    other = copy.deepcopy(model)
    names = ("q_proj", "k_proj") if hasattr(other, "lm_head") else ("to_q", "to_k")
    with torch.no_grad():
        for block in other.modules():
            if not hasattr(block, names[0]):
                continue
            query, key = (block.get_submodule(name).weight for name in names)
            query.mul_(factor)
            key.copy_(query) if symmetric else key.mul_(factor)
    return other


STATES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "random weights": lambda model: model,
    "random weights, sharper": partial(changed, factor=SHARPER),
    "symmetric scores": partial(changed, factor=SHARPER, symmetric=True),
}


RANDOM = {
    "4 layers of 64": ("random weights", "random weights, sharper", "symmetric scores"),
    **dict.fromkeys(("8 layers of 128", *DENOISERS), ("random weights", "random weights, sharper")),
}


def random_verdicts(size: str, state: str, seed: int) -> list[Verdict]:
    """M1 and M2 on a network without training."""
    if size in DENOISERS:
        return heads_of(STATES[state](denoiser(*DENOISERS[size], seed)), seed=seed)
    loaded = load(STATES[state](llama(*SIZES[size], seed)), tokenizer=Bytes())
    return heads_of(loaded, list(packaged_texts())[:PROMPTS], tokens=TOKENS, seed=seed)


def real_verdicts(path: str, file: Path | None, *, trained: bool) -> list[Verdict]:
    """M1 and M2 on a model of a folder, at the default data of the command."""
    loaded = opened(path)
    model = loaded if trained else untrained(loaded, 0)
    return heads_of(model, story_texts(file)[:PROMPTS], tokens=128, seed=0)


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Everything that is asked for."""
    wanted = options.only.split(",") if options.only else PARTS
    models = {"bundled": "bundled", **dict(pair.split("=", 1) for pair in options.model)}
    texts = {name: Path(file) for name, file in (pair.split("=", 1) for pair in options.text)}
    if "real" in wanted:
        for name, path in models.items():
            for state in ("trained", "untrained"):
                made = partial(real_verdicts, path, texts.get(name), trained=state == "trained")
                yield Job("real", name, state, made)
    for seed in range(options.seeds):
        for size, states in RANDOM.items() if "random" in wanted else ():
            for state in states:
                made = partial(random_verdicts, size, state, seed)
                yield Job("random", f"{state}; {size}", str(seed), made)
        for kind in HEADS if "known" in wanted else ():
            yield Job("known", kind, str(seed), partial(head_verdicts, kind, seed))


def planted_heads(seeds: int) -> dict[str, int]:
    """How often the one-way head among noise is found, and how many others are."""
    found = others = 0
    for seed in range(seeds):
        low = head_table(head_arrays("one head of 6", 500 + seed))["log_ratio_permuted_joint_low"]
        found += bool(low[0] > 0)
        others += bool((low[1:] > 0).any())
    return {"seeds": seeds, "found": found, "runs with another head": others}


# ----- calibration


def synthetic(
    law: str, prompts: int, heads: int, twins: float, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Entropy production of a model and its references without any effect."""

    def logs(*shape: int) -> NDArray[np.float64]:
        return 0.3 * values_of(law, rng.normal(size=shape))

    level = 0.5 * rng.normal(size=heads)
    own, *others = twins * rng.normal(size=4)  # of single networks
    shift = np.array(others)[:, None, None]
    shared = 0.15 * rng.normal(size=(4, prompts, 1))  # of the heads of a prompt
    return {
        "model": np.exp(level + own + logs(prompts, heads) + shared[0]),
        "keys_permuted": np.exp(level + own + logs(3, prompts, heads) + shared[1:]),
        "as_sharp": np.exp(level + logs(3, prompts, heads) + shared[1:] + shift),
        "as_sharp_permuted": np.exp(level + logs(3, prompts, heads) + shared[1:] + shift),
        "effective_keys": 5 + rng.random((prompts, heads)),
        "tokens": np.full(prompts, 128.0),
    }


def levels(repeats: int) -> dict[str, dict[str, float]]:
    """Share of runs whose interval excludes 0, before the margin of what is negligible."""
    table: dict[str, dict[str, float]] = {}
    for law in ("Gauss", "t3", "lognormal"):
        for heads in (1, 24):
            for prompts in (8, 16):
                rng = np.random.default_rng([heads, prompts])
                names = ["M2", *(f"M1, twins differ by {spread:g}" for spread in (0.0, 0.1, 0.5))]
                wrong = dict.fromkeys(names, 0)
                for _ in range(repeats):
                    for name in names:
                        spread = 0.0 if name == "M2" else float(name.split()[-1])
                        arrays = synthetic(law, prompts, heads, spread, rng)
                        wrong[name] += _excludes_zero(name, arrays)
                for name, number in wrong.items():
                    row = table.setdefault(f"{law}, {heads} heads: {name}", {})
                    row[str(prompts)] = number / repeats
    return table


def joint_levels(repeats: int) -> dict[str, dict[str, float]]:
    """Share of runs in which the joint interval of *any* head excludes 0, without an effect.

    These are the intervals that labels of heads rest on.
    """
    table: dict[str, dict[str, float]] = {}
    for law in ("Gauss", "t3", "lognormal"):
        for prompts in (8, 16):
            rng = np.random.default_rng([3, prompts])
            wrong = {"permuted": 0, "as_sharp": 0}
            for _ in range(repeats):
                heads = head_table(synthetic(law, prompts, 24, 0.0, rng))
                for name in wrong:
                    low, high = (heads[f"log_ratio_{name}_joint_{end}"] for end in ("low", "high"))
                    wrong[name] += bool(((low > 0) | (high < 0)).any())
            for name, number in wrong.items():
                words = {"permuted": "permuted keys", "as_sharp": "twins as sharp"}[name]
                row = table.setdefault(f"{law}, any of 24 heads against {words}", {})
                row[str(prompts)] = number / repeats
    return table


def _excludes_zero(name: str, arrays: dict[str, NDArray[np.float64]]) -> bool:
    options: dict[str, Any] = {"level": 0.05, "chain": "unmasked", "seed": 0}
    if name == "M2":
        import pandas as pd

        verdict = judge_one_way(arrays, pd.DataFrame(), **options)
    else:
        verdict = judge_sharpness(arrays, **options)
    assert isinstance(verdict.interval, Interval)
    return bool(verdict.interval.low > 0 or verdict.interval.high < 0)


# ----- pages


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _by_verdict(runs: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for run in runs.values():
        for name, row in run["verdicts"].items():
            rows.setdefault(name, []).append(row)
    return rows


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    effects = [row["effect"] for row in rows if row["effect"] is not None]
    middle = f"{median(effects):+.3f}" if effects else "–"
    return [*(str(number or "·") for number in counted(rows).values()), middle]


def known_table(runs: Runs, planted: Mapping[str, int]) -> str:
    """Table of the heads whose answer is known."""
    lines = [
        [kind, name, EXPECTED.get((kind, name), "–"), *_counts(rows)]
        for kind in HEADS
        if kind in runs
        for name, rows in _by_verdict(runs[kind]).items()
    ]
    lines.sort(key=lambda line: line[1])
    head = ["subject", "verdict", "right answer", *OUTCOMES, "median effect"]
    words = ""
    if planted:
        words = (
            f"\n\nOne head of 6 looks one way: by the intervals of all heads together it is found "
            f"in {planted['found']} of {planted['seeds']} seeds, another head in "
            f"{planted['runs with another head']}."
        )
    return _table(head, lines) + words


def random_table(runs: Runs) -> str:
    """Table of networks without training."""
    lines = [
        [kind, name, *_counts(rows)]
        for kind in sorted(runs)
        for name, rows in _by_verdict(runs[kind]).items()
    ]
    plain = [
        row
        for kind, states in runs.items()
        if kind.startswith("random weights")
        for rows in _by_verdict(states).values()
        for row in rows
    ]
    green = counted(plain)["holds"]
    share = f"{green} of {len(plain)} ({green / max(len(plain), 1):.1%})"
    head = ["network", "verdict", *OUTCOMES, "median effect"]
    return (
        f"{_table(head, lines)}\n\nGreen cards on random weights, sharper ones included: {share}."
    )


def real_table(runs: Runs) -> str:
    """Table of models, trained and not."""
    lines = [
        [name, verdict, *(_said(states.get(s), verdict) for s in ("trained", "untrained"))]
        for name, states in runs.items()
        for verdict in ("M1", "M2")
    ]
    return _table(["model", "verdict", "trained", "untrained"], lines)


def _said(run: Mapping[str, Any] | None, verdict: str) -> str:
    if run is None or verdict not in run["verdicts"]:
        return "–"
    row = run["verdicts"][verdict]
    words = row["outcome"] + (f" ({row['strength']})" if row["strength"] else "")
    if row["effect"] is None or not row["interval"]:
        return words
    return f"{words} {row['effect']:+.3f} [{row['interval'][0]:+.3f}, {row['interval'][1]:+.3f}]"


def write_pages() -> None:
    """Write the tables of both pages from the runs that are stored."""
    runs = RUNS.document()
    page = THEORY / "what-holds-means.md"
    text = page.read_text(encoding="utf-8")
    parts = {
        "known heads": known_table(runs["known"], runs.get("planted", {})),
        "heads of random weights": random_table(runs["random"]),
        "heads, trained and untrained": real_table(runs["real"]),
    }
    for name, table in parts.items():
        text = written(text, name, table)
    page.write_text(text, encoding="utf-8")
    if "levels" in runs:
        page = THEORY / "calibration.md"
        text = page.read_text(encoding="utf-8")
        text = written(text, "heads", table_text(runs["levels"]["rates"], "prompts"))
        if "joint" in runs:
            text = written(text, "joint heads", table_text(runs["joint"]["rates"], "prompts"))
        page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of every known subject and size")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--text", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--planted", type=int, default=0, help="seeds of the planted head")
    parser.add_argument("--calibrate", type=int, default=0, help="repeats of every cell")
    parser.add_argument("--joint", type=int, default=0, help="repeats of the joint intervals")
    parser.add_argument("--page", action="store_true", help="write the tables of the pages only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    alone = options.page or options.calibrate or options.planted or options.joint
    for job in () if alone else jobs(options):
        if RUNS.has(job.part, job.subject, job.seed):
            continue
        start = time.process_time()
        verdicts = job.verdicts()
        rows = RUNS.store(*job[:3], verdicts, time.process_time() - start)
        short = ", ".join(f"{name} {row['outcome']} {row['effect']}" for name, row in rows.items())
        print(job.part, job.subject, job.seed, short, flush=True)
    if options.planted:
        RUNS.put(planted=planted_heads(options.planted))
    if options.calibrate:
        rates = levels(options.calibrate)
        RUNS.put(levels={"repeats": options.calibrate, "rates": rates})
        print(json.dumps(rates, indent=1))
    if options.joint:
        RUNS.put(joint={"repeats": options.joint, "rates": joint_levels(options.joint)})
    write_pages()


if __name__ == "__main__":
    main()
