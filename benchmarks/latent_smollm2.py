"""The cloud of tokens of SmolLM2-135M on WikiText-2, beside the figures of the trials.

Question: does ``flowscope latent`` find what the trials found on SmolLM2 (the nearest neighbour is
the same token for 75 % of tokens after block 1 and for 53 % before the last; the dimension by two
neighbours, one occurrence of each token, goes from 7 to 20), and what do the verdicts say there?

    python -m benchmarks.latent_smollm2 MODEL wikitext2_test.txt.gz

The texts are 24 windows of 128 tokens, from token 1280 on. The model is SmolLM2-135M-Instruct as
its four-bit file has it, not the base model in full precision of the trials. Controls are left out
(they can only take a *holds* away) unless asked for; then every setting is that of the command:

    python -m benchmarks.latent_smollm2 MODEL wikitext2_test.txt.gz --controls --run FOLDER

A run that was killed goes on in FOLDER.
"""

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

import flowscope as fs
from benchmarks.machine import described
from benchmarks.panel_runs import row_of
from flowscope.models.loading import load

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
    options = parser.parse_args()
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
    options.out.write_text(
        json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _said(result: fs.Latent) -> dict[str, object]:
    """Figures, verdicts and tables of a run."""
    entropies = "layers" in result.tables
    table = result.table if entropies else pd.DataFrame(columns=list(KEPT))
    figures = {}
    for name, (column, sample, layer, asked) in FIGURES.items() if entropies else ():
        there = (table["sample"] == sample) & (table["layer"] == layer) & (table["rank"] == 8)
        value = float(table.loc[there, column].iloc[0])
        figures[name] = {"asked": asked, "measured": round(value, 4), "ratio": value / asked}
        print(f"{name}: {value:.3f} (trial {asked})")
    for verdict in result.verdicts:
        print(verdict.name, verdict.outcome, verdict.because)
    return {
        "figures": figures,
        "verdicts": {verdict.name: row_of(verdict) for verdict in result.verdicts},
        "layers": [
            {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            for row in table[list(KEPT)].to_dict("records")
        ],
        "tables": {
            name: json.loads(result.tables[name].round(5).to_json(orient="records"))
            for name in TABLES
            if name in result.tables
        },
        "stages": result.to_json()["stages"],
    }


if __name__ == "__main__":
    main()
