"""Read the writes of every block in one pass over the prompts."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.budget import GAINS, TABLES
from flowscope.instruments.field.subject import FieldBench
from flowscope.models.prompts import Prompts, token_text
from flowscope.probes import tap_pass
from flowscope.probes.field.field_probe import COLUMNS, FieldProbe

__all__ = ["budget"]

_LATER = {column.name for column in GAINS}
_NAMES = tuple(column.name for column in TABLES["blocks"].columns[1:])
_PAIR = ("spread_alone", "spread_permuted")


def budget(bench: FieldBench) -> None:
    """Write the tables ``blocks``, ``token_steps`` and ``mixing``."""
    config, material = bench.config, bench.subject.material
    model = bench.subject.loaded.model
    bench.list_pass("budget", material.size)
    pieces = tap_pass(
        model,
        material.batches(None),
        {"field": FieldProbe(model, seed=config.seed)},
        shards={"field": bench.shards},
        advance=bench.counter("budget", material.size).advance,
    )["field"]
    values = np.concatenate([piece.arrays["values"] for piece in pieces])[:, 1:]
    prompts = np.concatenate([piece.arrays["prompt"] for piece in pieces])
    bench.once("field values", lambda: (values, prompts))
    counts = resampled_counts(len(values), resamples=config.resamples, seed=config.seed)
    bench.put("blocks", _blocks(values, counts))
    steps = np.concatenate([piece.arrays["steps"] for piece in pieces])
    if len(steps):
        bench.put("token_steps", _token_steps(bench, steps))
    _note_overflow(bench, np.concatenate([piece.arrays["overflow"] for piece in pieces]))
    rows: dict[str, NDArray[np.generic]] = {"prompt": prompts}
    both = np.isfinite(values[:, :, [COLUMNS.index(name) for name in _PAIR]]).all(-1)
    for name in _PAIR:
        column = np.where(both, values[:, :, COLUMNS.index(name)], 0.0).sum(1)
        rows[name] = np.where(both.any(1), column / both.sum(1).clip(1), np.nan)
    bench.put("mixing", pd.DataFrame(rows))


def _blocks(values: NDArray[np.float64], counts: NDArray[np.int64]) -> pd.DataFrame:
    """One row per block: mean over the prompts that have the number, with its interval."""
    table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, values.shape[1] + 1)}
    for name in _NAMES:
        if name in _LATER:
            table |= dict.fromkeys(
                (name, f"{name}_low", f"{name}_high"), np.full(len(values[0]), np.nan)
            )
            continue
        column = values[:, :, COLUMNS.index(name)]
        present = np.isfinite(column)
        point, interval = mean_over_prompts(
            np.where(present, column, 0.0), present.astype(float), counts
        )
        table[name] = point
        table[f"{name}_low"], table[f"{name}_high"] = bounds_of(interval, len(point))
    return pd.DataFrame(table)


def _token_steps(bench: FieldBench, steps: NDArray[np.float64]) -> pd.DataFrame:
    """Steps of the tokens of the first prompt, with the tokens where it is a text."""
    prompts, tokenizer = bench.subject.material.prompts, bench.subject.loaded.tokenizer
    words: list[str] = []
    if isinstance(prompts, Prompts) and not prompts.images and tokenizer is not None:
        words = [token_text(tokenizer, int(token)) for token in prompts.items[0]]
    positions = steps[:, 1].astype(int)
    return pd.DataFrame(
        {
            "layer": steps[:, 0].astype(int) + 1,
            "position": positions,
            "token": [words[at] if at < len(words) else "" for at in positions],
            "attention": steps[:, 2],
            "feed_forward": steps[:, 3],
            "massive": steps[:, 4] > 0,
        }
    )


def _note_overflow(bench: FieldBench, overflow: NDArray[np.int64]) -> None:
    """Say in which block the model overflows first; the blocks before it are measured."""
    if not len(overflow):
        return
    first = int(overflow[:, 1].min()) + 1
    bench.abstain(
        "overflow",
        f"the state after block {first} is not finite: the model overflows there, on "
        f"{len(overflow)} of {bench.subject.material.size} prompts. The blocks before it are "
        "measured. Load the model in a wider precision (dtype=float32)",
    )
