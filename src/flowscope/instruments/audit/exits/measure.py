"""Measure what the last layers are worth: the loss of the output taken at each earlier layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence.bootstrap import Counts
from flowscope.instruments.audit.exits.losses import (
    depth_loss_table,
    free_layers,
    losses_along,
    mobility_and_loss,
)
from flowscope.instruments.audit.paths import PathReading, target_tokens
from flowscope.instruments.audit.reading import path_probes, paths_of, prompt_counts
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention
from flowscope.probes import TapProbe
from flowscope.records import Unavailable

__all__ = ["NAMING", "measure", "probes"]

NAMING = ("causal_lm", "masked_lm", "seq2seq")
"""Kinds of models that name a token at each position."""

_VISIBLE = "visible paths"


def probes(bench: AuditBench) -> dict[str, TapProbe]:
    """Return the probe of the paths; where tokens are hidden, one of visible tokens beside it."""
    found = path_probes(bench)
    if found and bench.subject.prompts.hides:
        most, prompts = bench.config.flow_close, len(bench.subject.prompts)
        reading = PathReading(
            prompts=prompts,
            positions=most,
            close=1,
            visible=True,
            operands=bench.config.readout,
        )
        found[_VISIBLE] = bench.once(_VISIBLE, lambda: reading)
    return found


def measure(bench: AuditBench) -> None:
    """Write what removing the last layers costs, beside the mobility that is left there.

    In a masked model the loss is that of hidden tokens. At a visible position the first state holds
    the token that is to be named, so that layers look free there; those losses stand beside.
    """
    paths, kind = paths_of(bench), bench.subject.loaded.kind
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    if kind not in NAMING:
        raise Abstention(f"a model of kind {kind} names no token whose loss could be measured")
    targets = target_tokens(paths, bench.subject.prompts)
    most = 2 * len(paths.close)
    rows = _rows(targets, most)
    if not len(rows):
        raise Abstention("no token of the prompts is followed by another")
    counter, counts = bench.counter("depth loss"), prompt_counts(bench)
    loss, mobility = losses_along(paths, rows, targets)
    prompt = paths.prompt[rows]
    bench.put("depth_loss", _table(loss, mobility, prompt, counts))
    bench.note(mobility_and_loss(loss, mobility, prompt, counts, bench.config.seed))
    if bench.subject.prompts.hides:
        _write_visible(bench, counts, most)
    counter.finish()


def _table(
    loss: NDArray[np.float64],
    mobility: NDArray[np.float64],
    prompt: NDArray[np.int64],
    counts: Counts,
) -> pd.DataFrame:
    table = depth_loss_table(loss, mobility, prompt, counts)
    return table.assign(free=table["removed"] <= free_layers(table))


def _write_visible(bench: AuditBench, counts: Counts, most: int) -> None:
    """Write the same losses at visible positions."""
    reading: PathReading = bench.shared(_VISIBLE)
    paths = reading.paths()
    if isinstance(paths, Unavailable) or not len(paths.prompt):
        return
    targets = target_tokens(paths, bench.subject.prompts)
    rows = _rows(targets, most)
    table = _table(*losses_along(paths, rows, targets), paths.prompt[rows], counts)
    bench.put("visible_loss", table)


def _rows(targets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Tokens with a target: at most two for every one whose whole distribution is compared."""
    wanted = np.flatnonzero(targets >= 0)
    every: NDArray[np.int64] = wanted[:: max(1, -(-len(wanted) // most))]
    return every
