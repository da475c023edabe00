"""Measure what the last layers are worth: the loss of the output taken at each earlier layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowscope.instruments.audit.exits.losses import (
    depth_loss_table,
    free_layers,
    losses_along,
    mobility_and_loss,
)
from flowscope.instruments.audit.paths import Paths, following_tokens
from flowscope.instruments.audit.reading import path_probes, paths_of, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention
from flowscope.records import Unavailable

__all__ = ["AHEAD", "measure", "probes"]

AHEAD = {"causal_lm": 1, "masked_lm": 0}
"""How many positions after a token lies the token that the model names there, by kind of model."""

probes = path_probes


def measure(bench: AuditBench) -> None:
    """Write what removing the last layers costs, beside the mobility that is left there."""
    paths, kind = paths_of(bench), bench.subject.loaded.kind
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    if kind not in AHEAD:
        raise Abstention(f"a model of kind {kind} names no token whose loss could be measured")
    targets = following_tokens(paths, bench.subject.prompts.items, ahead=AHEAD[kind])
    rows = _rows(paths, targets)
    if not len(rows):
        raise Abstention("no token of the prompts is followed by another")
    counter, counts = bench.counter("depth loss"), prompt_counts(bench)
    loss, mobility = losses_along(paths, rows, targets)
    prompt = paths.prompt[rows]
    table = depth_loss_table(loss, mobility, prompt, counts)
    table["free"] = table["removed"] <= free_layers(table)
    bench.put("depth_loss", table)
    bench.note(mobility_and_loss(loss, mobility, prompt, counts, bench.config.seed))
    counter.finish()


def _rows(paths: Paths, targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens with a target: at most two for every one whose whole distribution is compared."""
    wanted = np.flatnonzero(targets >= 0)
    most = 2 * len(paths.close)
    every: NDArray[np.int64] = wanted[:: max(1, -(-len(wanted) // most))]
    return every
