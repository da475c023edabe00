"""Compare the likeness of tokens with that in networks with random weights."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.subject import FieldBench
from flowscope.lab.claim import Abstention
from flowscope.models.twin import fresh_twin
from flowscope.probes import tap_pass
from flowscope.probes.field.field_probe import COLUMNS, FieldProbe
from flowscope.records import Unavailable

__all__ = ["collapse"]

_COSINE, _RANK = COLUMNS.index("mean_cosine"), COLUMNS.index("effective_rank")
Values = NDArray[np.float64]


def collapse(bench: FieldBench) -> None:
    """Write the tables ``collapse`` and ``collapse_prompts``.

    Raises
    ------
    Abstention
        Where the controls are switched off, or a network with random weights cannot be made.
    """
    values, prompts = bench.shared("field values")
    if values.shape[1] < 3:
        raise Abstention(f"collapse needs at least 3 blocks; the model has {values.shape[1]}")
    twins = _twins(bench)
    counts = resampled_counts(len(values), resamples=bench.config.resamples, seed=bench.config.seed)
    table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, values.shape[1] + 1)}
    for name, index in (("mean_cosine", _COSINE), ("effective_rank", _RANK)):
        column = values[:, :, index]
        there = np.isfinite(column)
        point, interval = mean_over_prompts(
            np.where(there, column, 0.0), there.astype(float), counts
        )
        low, high = bounds_of(interval, len(point))
        table |= {name: point, f"{name}_low": low, f"{name}_high": high}
        table[f"{name}_twin"] = _mean(twins[..., index])
    bench.put("collapse", pd.DataFrame(table))
    bench.put("collapse_prompts", _thirds(values, twins, prompts))


def _twins(bench: FieldBench) -> Values:
    """Values of networks with random weights, ``[twins, prompts, blocks, columns]``."""
    config, material = bench.config, bench.subject.material
    if not config.controls:
        raise Abstention("the controls are switched off (controls: false)")
    counter = bench.counter("random twins", config.twins * material.size)
    readings = []
    for number in range(config.twins):
        twin = fresh_twin(bench.subject.loaded.model, config.seed + number)
        if isinstance(twin, Unavailable):
            raise Abstention(f"no network with random weights could be made: {twin.reason}")
        bench.list_pass(f"random twin {number + 1}", material.size)
        pieces = tap_pass(
            twin,
            material.batches(None),
            {f"twin-{number}": FieldProbe(twin, seed=config.seed)},
            shards={f"twin-{number}": bench.shards},
            advance=counter.advance,
        )[f"twin-{number}"]
        readings.append(np.concatenate([piece.arrays["values"] for piece in pieces])[:, 1:])
    return np.stack(readings)


def _mean(values: Values) -> NDArray[np.float64]:
    """Mean over networks and prompts that have the number; NaN where none has."""
    there = np.isfinite(values)
    sums = np.where(there, values, 0.0).sum((0, 1))
    count = there.sum((0, 1))
    return np.where(count > 0, sums / count.clip(1), np.nan)


def _thirds(values: Values, twins: Values, prompts: NDArray[np.generic]) -> pd.DataFrame:
    third = values.shape[1] // 3
    return pd.DataFrame(
        {
            "prompt": prompts,
            "cosine": values[:, -third:, _COSINE].mean(1),
            "cosine_twin": twins[:, :, -third:, _COSINE].mean(2).max(0),
            "rank_first": values[:, :third, _RANK].mean(1),
            "rank_last": values[:, -third:, _RANK].mean(1),
        }
    )
