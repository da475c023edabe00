"""The cloud of tokens of SmolLM2-135M on WikiText-2, beside the figures of the trials.

Question: does ``flowscope latent`` find what the trials found on SmolLM2 (the nearest neighbour is
the same token for 75 % of tokens after block 1 and for 53 % before the last; the dimension by two
neighbours, one occurrence of each token, goes from 7 to 20), and what do the verdicts say there?

    python -m benchmarks.latent_smollm2 MODEL wikitext2_test.txt.gz

The texts are 24 windows of 128 tokens, from token 1280 on. The model is SmolLM2-135M-Instruct as
its four-bit file has it, not the base model in full precision of the trials. Controls are left out
(they can only take a *holds* away) unless asked for; then every setting is that of the command:

    python -m benchmarks.latent_smollm2 MODEL wikitext2_test.txt.gz --controls --run FOLDER

A run that was killed goes on in FOLDER. What a run has made until now, with L2 judged from the
shards of the blocks without the twins, is written by

    python -m benchmarks.latent_smollm2 - - --read FOLDER
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file

import flowscope as fs
from benchmarks.machine import described
from benchmarks.panel_runs import row_of
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.entropy.judge import rise_and_fall
from flowscope.instruments.latent.rate.judge import judge_rates
from flowscope.instruments.latent.rate.tables import halves_of_rates, rates_table
from flowscope.models.loading import load
from flowscope.records import Verdict

RESULT = Path(__file__).parent / "results" / "latent_smollm2.json"
FIRST, WINDOWS, TOKENS = 1280, 24, 128
FIGURES = {
    "same token next to it, all, after block 1": ("same_type_neighbours", "all", 1, 0.75),
    "same token next to it, all, before the last block": ("same_type_neighbours", "all", 29, 0.53),
    "two-neighbour dimension, types, block 2": ("dimension_two_nn", "types", 2, 7.0),
    "two-neighbour dimension, types, block 28": ("dimension_two_nn", "types", 28, 20.0),
}
TABLES = (
    "samples", "output_entropy", "rates", "turning_layers", "memory", "refinement", "clustering",
)  # fmt: skip
KEPT = (
    "layer", "sample", "rank", "entropy_knn", "entropy_gaussian", "negentropy", "bias",
    "dimension_two_nn", "dimension_mle", "same_type_neighbours", "mean_cosine", "effective_rank",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--only", default="", help="a verdict, such as L1; all when not given")
    parser.add_argument("--controls", action="store_true", help="settings of the command")
    parser.add_argument("--run", type=Path, help="run folder; a temporary one when not given")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    parser.add_argument("--read", type=Path, help="write what a stopped run has made")
    options = parser.parse_args()
    if options.read is not None:
        _write(options.out, _stopped(options.read))
        return
    loaded = load(options.model)
    with gzip.open(options.text, "rt", encoding="utf-8") as file:
        text = file.read()[: 40 * (FIRST + WINDOWS * TOKENS)]
    ids = loaded.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
    windows = ids[FIRST : FIRST + WINDOWS * TOKENS].reshape(WINDOWS, TOKENS)
    start, clock = time.process_time(), time.perf_counter()
    less = {"controls": False, "ranks": (8,), "surrogates": 1, "output_tokens": 8}
    with tempfile.TemporaryDirectory() as folder:
        result = fs.latent(
            loaded, inputs=[
                {"input_ids": part, "attention_mask": torch.ones_like(part)}
                for part in windows.split(4)
            ],
            out=options.run or f"{folder}/run", progress=False, prompts=WINDOWS, tokens=TOKENS,
            only=options.only or (), **({} if options.controls else less),
        )  # fmt: skip
        times = {
            "processor_seconds": round(time.process_time() - start, 1),
            "wall_seconds": round(time.perf_counter() - clock, 1),
        }
        document = {"machine": described(), **times, **_said(result)}
    _write(options.out, document)


def _write(file: Path, document: dict[str, object]) -> None:
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _stopped(folder: Path) -> dict[str, object]:
    """Tables, L1 with controls and L2 without them, of a run that did not finish."""
    tables = {file.stem: pd.read_csv(file) for file in (folder / "tables").glob("*.csv")}
    settings = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    arrays = load_file(folder / "arrays" / "entropy_halves.safetensors")
    view = SimpleNamespace(arrays=lambda name: arrays, settings={"ranks": [8, 16], "seed": 0})
    steps = []
    for file in sorted((folder / "shards").glob("rate-0*.safetensors")):
        found: dict[str, dict[str, np.ndarray]] = {}
        for key, value in load_file(file).items():
            sample, _, part = key.partition("/")
            found.setdefault(sample, {})[part] = value
        steps.append(found)
    samples = tables["samples"].set_index("sample")["prompts"].to_dict()
    halves = halves_of_rates("model", samples, steps)
    verdicts = [*rise_and_fall(view), judge_rates(halves, rank=8)]
    clouds = SimpleNamespace(samples={k: SimpleNamespace(groups=v) for k, v in samples.items()})
    rates = rates_table(LatentConfig(), clouds, steps)
    return {
        "machine": described(),
        "commit": settings.get("commit", ""),
        "blocks_with_a_rate": len(steps),
        **_told({**tables, "rates": rates}, verdicts),
    }


def _said(result: fs.Latent) -> dict[str, object]:
    """Figures, verdicts and tables of a run."""
    tables = {name: result.tables[name] for name in ("layers", *TABLES) if name in result.tables}
    return {**_told(tables, result.verdicts), "stages": result.to_json()["stages"]}


def _told(tables: Mapping[str, pd.DataFrame], verdicts: Iterable[Verdict]) -> dict[str, object]:
    entropies = "layers" in tables
    table = tables["layers"] if entropies else pd.DataFrame(columns=list(KEPT))
    figures = {}
    for name, (column, sample, layer, asked) in FIGURES.items() if entropies else ():
        there = (table["sample"] == sample) & (table["layer"] == layer) & (table["rank"] == 8)
        value = float(table.loc[there, column].iloc[0])
        figures[name] = {"asked": asked, "measured": round(value, 4), "ratio": value / asked}
        print(f"{name}: {value:.3f} (trial {asked})")
    verdicts = list(verdicts)
    for verdict in verdicts:
        print(verdict.name, verdict.outcome, verdict.because)
    return {
        "figures": figures,
        "verdicts": {verdict.name: row_of(verdict) for verdict in verdicts},
        "layers": [
            {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            for row in table[list(KEPT)].to_dict("records")
        ],
        "tables": {
            name: json.loads(tables[name].round(5).to_json(orient="records"))
            for name in TABLES
            if name in tables
        },
    }


if __name__ == "__main__":
    main()
