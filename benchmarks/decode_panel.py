"""What the verdicts of `flowscope decode` say of models whose right answer is known.

``python -m benchmarks.decode_panel [--seeds 20]`` runs the whole instrument on each subject and
writes ``benchmarks/results/decode_panel.json`` and the rows of ``docs/theory/what-holds-means.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.instruments.decode.exact import noise, prompts_of, two_kinds
from tests.instruments.decode.folders import two_way_llama

import flowscope
from flowscope.models.infilling.templates import Template

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs/theory/what-holds-means.md"
COUNT = 100


def of_weights(seed: int) -> list[Template]:
    """Prompts of six blanks for a network of random weights."""
    rows = np.random.default_rng(seed).integers(2, 12, (2 * COUNT, 11))
    return [Template(ids=row, blank=np.arange(11) > 4) for row in rows]


def halves(seed: int, first: tuple[int, ...], second: tuple[int, ...]) -> Any:
    """Calibration prompts of some kinds, fresh ones of others, none in both."""
    return prompts_of(2 * COUNT, seed, first)[:COUNT], prompts_of(2 * COUNT, seed, second)[COUNT:]


SUBJECTS: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "half known at once, half one by one": (
        lambda seed: two_kinds(), lambda seed: halves(seed, (0, 1), (0, 1)),
        {"D1": "holds", "D2": "holds"},
    ),
    "each token waits for the one before": (
        lambda seed: two_kinds(), lambda seed: halves(seed, (1,), (1,)),
        {"D1": "no *holds*", "D2": "no *holds*"},
    ),
    "all known at once": (
        lambda seed: two_kinds(), lambda seed: halves(seed, (0,), (0,)),
        {"D1": "uninformative", "D2": "uninformative"},
    ),
    "calibrated on easy prompts, tried on hard ones": (
        lambda seed: two_kinds(), lambda seed: halves(seed, (0,), (1,)),
        {"D1": "no *holds*", "D2": "fails"},
    ),
    "sharp noise": (
        lambda seed: noise(), lambda seed: halves(seed, (0, 1), (0, 1)),
        {"D1": "no *holds*", "D2": "no *holds*"},
    ),
    "random weights": (
        lambda seed: two_way_llama(seed=seed, spread=0.6),
        lambda seed: (of_weights(seed)[:COUNT], of_weights(seed)[COUNT:]),
        {"D1": "no *holds*", "D2": "no *holds*"},
    ),
}  # fmt: skip


def outcomes(subject: str, seed: int) -> dict[str, dict[str, Any]]:
    """Outcome and effect of each verdict in one run."""
    make, prompts, _ = SUBJECTS[subject]
    calibration, test = prompts(seed)
    with tempfile.TemporaryDirectory() as folder:
        found = flowscope.decode(
            make(seed), test, calibration_texts=calibration, out=f"{folder}/run", progress=False,
            calibration=COUNT, prompts=COUNT, maps=0, resamples=99, seed=seed,
            policy=("threshold", "factor", "prophet"),
        )  # fmt: skip
        return {
            row["name"]: {"outcome": row["outcome"], "effect": row["effect"]}
            for row in found.to_json()["verdicts"]
        }


def _write_page(lines: list[str]) -> None:
    """Put the rows between the marks of the page."""
    names = ("subject", "verdict", "right answer", "runs", "holds", "fails", "uninformative",
             "abstains", "median effect")  # fmt: skip
    head, rule = "| " + " | ".join(names) + " |", "|" + " --- |" * len(names)
    start, end = "<!-- decode subjects -->\n", "<!-- end of decode subjects -->"
    before, rest = PAGE.read_text().split(start)
    after = rest.split(end)[1]
    PAGE.write_text(before + start + "\n".join([head, rule, *lines]) + "\n" + end + after)


def main() -> None:
    """Run every subject and write the rows of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    lines = []
    for subject, (_, _, right) in SUBJECTS.items():
        runs = [outcomes(subject, seed) for seed in range(seeds)]
        found[subject] = runs
        for verdict, answer in right.items():
            count = Counter(run[verdict]["outcome"] for run in runs)
            effects = [
                e for run in runs if isinstance(e := run[verdict]["effect"], float) and e == e
            ]
            middle = f"{np.median(effects):+.3f}" if effects else "–"
            cells = " | ".join(
                str(count.get(name, "·"))
                for name in ("holds", "fails", "uninformative", "abstains")
            )
            lines.append(f"| {subject} | {verdict} | {answer} | {seeds} | {cells} | {middle} |")
            sys.stdout.write(lines[-1] + "\n")
            sys.stdout.flush()
    _write_page(lines)
    (RESULTS / "decode_panel.json").write_text(
        json.dumps({"seeds": seeds, "rows": lines, "runs": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
