"""`flowscope decode` on models that were not made for it.

``python -m benchmarks.decode_other_models FOLDER`` writes
``benchmarks/results/decode_other_models.json``: a BERT of chemical reactions in FOLDER (a masked
language model that hides 15 % of its tokens, `rxnfp`), on generated esterifications and amidations
whose product is hidden; a ModernBERT and a DiffusionGemma of random weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import flowscope
from flowscope.instruments.decode.canvas import calibrate_stop
from flowscope.levers import calibrated_stop
from flowscope.models.infilling.templates import Template
from flowscope.records import Unavailable

PLACE = Path(__file__).parent / "results" / "decode_other_models.json"
MOST = 72  # reactions; half of them calibrate
TOKENS = re.compile(r"\[[^\]]+\]|Br|Cl|>>|[A-Za-z0-9()=#/\\.+\-@~*$%:]")
ACIDS = (
    "C", "CC", "CCC", "CC(C)", "C1CC1", "c1ccccc1", "Cc1ccccc1", "Fc1ccccc1", "Clc1ccccc1",
    "COc1ccccc1", "c1ccncc1", "FC(F)(F)", "CCCC", "C1CCCC1", "Brc1ccccc1", "N#Cc1ccccc1",
)  # fmt: skip
PARTNERS = (
    "OC", "OCC", "OCCC", "OC(C)C", "OC(C)(C)C", "OCc1ccccc1", "NC", "NCC", "NC(C)C", "NCc1ccccc1",
    "Nc1ccccc1", "N1CCCC1", "N1CCOCC1", "NC1CC1", "OCC(F)(F)F", "Oc1ccccc1",
)  # fmt: skip


def reactions(vocabulary: dict[str, int]) -> list[Template]:
    """Acid and alcohol or amine to ester or amide; the product is to be filled in."""
    made = []
    for acid, partner in itertools.product(ACIDS, PARTNERS):
        left, product = f"{acid}C(=O)O.{partner}>>", f"{acid}C(=O){partner}"
        given, hidden = (TOKENS.findall(text) for text in (left, product))
        words = ["[CLS]", *given, *hidden, "[SEP]"]
        if all(word in vocabulary for word in words):
            ids = np.array([vocabulary[word] for word in words])
            blank = np.zeros(len(ids), bool)
            blank[1 + len(given) : -1] = True
            made.append(Template(ids=ids, blank=blank, truth=ids, text=left))
    order = np.random.default_rng(0).permutation(len(made))
    return [made[k] for k in order[:MOST]]


def tried(model: Any, templates: list[Template], **options: Any) -> dict[str, Any]:
    """Policies and verdicts of a run; half of the prompts calibrate."""
    half = len(templates) // 2
    with tempfile.TemporaryDirectory() as folder:
        found = flowscope.decode(
            model, templates[half:], calibration_texts=templates[:half], out=f"{folder}/run",
            calibration=half, prompts=half, policy=("threshold", "prophet"), maps=0,
            resamples=199, progress=False, **options,
        )  # fmt: skip
        document = found.to_json()
    keys = ("name", "kind", "threshold", "passes", "saved", "same", "same_interval", "accuracy")
    return {
        "n": half,
        "policies": [{k: row[k] for k in keys} for row in document["policies"]],
        "thresholds": document["thresholds"],
        "verdicts": {v["name"]: [v["outcome"], v["because"]] for v in document["verdicts"]},
    }


def of_bert(folder: Path) -> dict[str, Any]:
    """The reaction BERT."""
    words = (folder / "vocab.txt").read_text().split("\n")
    vocabulary = {word: place for place, word in enumerate(words) if word}
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    options = {"mask": vocabulary["[MASK]"], "alpha": 0.1}
    return tried(model, reactions(vocabulary), **options)


def of_modern_bert() -> dict[str, Any]:
    """A ModernBERT of random weights: no threshold can be promised."""
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, pad_token_id=1, cls_token_id=2,
        sep_token_id=3, bos_token_id=2, eos_token_id=3, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.ModernBertForMaskedLM(config).eval()
    rows = np.random.default_rng(0).integers(5, 40, (160, 12))
    templates = [Template(ids=row, blank=np.arange(12) > 5) for row in rows]
    return tried(model, templates, mask=4)


def of_diffusion_gemma() -> dict[str, Any]:
    """A DiffusionGemma of random weights: its stopping rule calibrated, and its refusal."""
    from tests.instruments.decode.folders import random_diffusion_gemma

    model = random_diffusion_gemma()
    prompts = np.random.default_rng(0).integers(3, 24, (60, 5)).tolist()
    levels = tuple(np.linspace(1.0, 3.2, 23).tolist())
    found = calibrate_stop(model, prompts, passes=12, stability=0, thresholds=levels)
    try:
        flowscope.decode(model, [([3, 4, 5], [False, False, True])] * 2, progress=False)
        refusal = ""
    except flowscope.errors.UnsupportedModelError as error:
        refusal = str(error)
    row: dict[str, Any] = {
        "prompts": len(prompts), "refusal": refusal, "levels": levels,
        "risks": found.control.risks.tolist(),
        "passes": found.passes.mean(0).tolist(), "most": found.most,
    }  # fmt: skip
    if isinstance(found.threshold, Unavailable):
        return {**row, "threshold": found.threshold.reason}
    torch.manual_seed(0)
    with calibrated_stop(model, found.threshold, stability=0) as record:
        model.generate(
            torch.tensor(prompts[:1]), max_new_tokens=6, max_denoising_steps=12,
            disable_compile=True,
        )  # fmt: skip
    return {**row, "threshold": found.threshold, "saved": found.saved, "stopped": record.passes}


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    found = {}
    for name, make in (
        ("DiffusionGemma, random weights", of_diffusion_gemma),
        ("ModernBERT, random weights", of_modern_bert),
        ("rxnfp BERT, products hidden", lambda: of_bert(folder)),
    ):
        found[name] = make()
        PLACE.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
