"""Run the model and a network with random weights under changes of all blocks at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.field.interventions.reading import (
    NONE,
    Change,
    Values,
    changes_of,
    log_probabilities,
    prompt_values,
    targets_of,
)
from flowscope.instruments.field.subject import FieldBench
from flowscope.lab.bench import Counter
from flowscope.lab.claim import Abstention
from flowscope.models.prompts import Batch
from flowscope.models.twin import fresh_twin
from flowscope.probes import model_anatomy
from flowscope.records import Unavailable

__all__ = ["interventions"]

_ALIKE = 0.95


def interventions(bench: FieldBench) -> None:
    """Write the tables ``interventions`` and ``intervention_depth``.

    Raises
    ------
    Abstention
        They are switched off, or the additions of this model cannot be scaled.
    """
    config, material = bench.config, bench.subject.material
    if not config.interventions:
        raise Abstention("interventions are switched off (interventions: false)")
    model = bench.subject.loaded.model
    depth = model_anatomy(model, next(material.batches(1)).inputs).depth
    if isinstance(depth, Unavailable):
        raise Abstention(depth.reason)
    subjects = {"model": model} | _twin(bench)
    count = min(config.control_prompts, material.size)
    changes = changes_of(config)
    counter = bench.counter("interventions", len(subjects) * len(changes) * count)
    readings: list[Reading] = []
    for subject, network in subjects.items():
        bench.list_pass(f"interventions, {subject}", count * len(changes))
        readings += _readings(bench, subject, network, len(depth), counter)
    if not any(reading.change is not NONE for reading in readings):
        raise Abstention("no change could be tried: the additions of this model cannot be scaled")
    bench.put("interventions", _summary(bench, readings))
    bench.put("intervention_depth", _along_depth(readings))


def _twin(bench: FieldBench) -> dict[str, nn.Module]:
    if not bench.config.controls:
        return {}
    twin = fresh_twin(bench.subject.loaded.model, bench.config.seed)
    if isinstance(twin, Unavailable):
        bench.abstain("interventions_twin", twin.reason)
        return {}
    return {"twin": twin}


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Numbers of all prompts of a subject under a change; see `prompt_values`."""

    subject: str
    change: Change
    values: Values


def _readings(
    bench: FieldBench, subject: str, model: nn.Module, blocks: int, counter: Counter
) -> Iterator[Reading]:
    """Every change that the model can take, a shard for each batch of prompts."""
    prompts, parts = bench.subject.material.prompts, defaultdict[Change, list[Values]](list)
    refused: set[Change] = set()
    for place, batch in enumerate(_few(bench)):
        plain, targets = cache(partial(_plain, model, batch)), targets_of(prompts, batch)
        changes = changes_of(bench.config)
        makers = {
            f"intervention-{subject}-{number:02d}-{place:05d}": partial(
                prompt_values, model, batch, change, plain, targets, blocks
            )
            for number, change in enumerate(changes)
        }
        bench.spread(makers)
        for change, (name, make) in zip(changes, makers.items(), strict=True):
            try:
                parts[change].append(bench.shard(name, make))
            except InvalidInputError as error:
                if change == NONE:  # then no other change can be tried, either
                    raise Abstention(str(error).removesuffix(".")) from error
                refused.add(change)
                bench.abstain(f"interventions, {subject}: {change.name}", str(error))
            counter.advance(len(batch.prompts))
    for change, found in parts.items():
        if change not in refused:
            values = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
            yield Reading(subject=subject, change=change, values=values)


@torch.no_grad()
def _plain(model: nn.Module, batch: Batch) -> Tensor | None:
    return log_probabilities(model(**batch.inputs))


def _few(bench: FieldBench) -> Iterator[Batch]:
    """Batches until there are as many prompts as controls are read on."""
    done = 0
    for batch in bench.subject.material.batches(bench.config.control_prompts):
        if done >= bench.config.control_prompts:
            return
        yield batch
        done += len(batch.prompts)


def _summary(bench: FieldBench, readings: list[Reading]) -> pd.DataFrame:
    plain = {one.subject: one.values["loss"] for one in readings if one.change == NONE}
    rows = []
    for one in readings:
        subject, change, found = one.subject, one.change, one.values
        norm, cosine = _last(found["states"])
        alike = np.flatnonzero(_along(found["states"])[:, 1] > _ALIKE)
        rows.append(
            {"subject": subject, "change": change.name, **change.settings()}
            | _means(bench, "loss", found["loss"])
            | _means(bench, "added", found["loss"] - plain.get(subject, np.nan))
            | _means(bench, "kl", found["kl"])
            | {"norm_last": norm, "cosine_last": cosine}
            | {"collapsed": int(alike[0]) + 1 if len(alike) else 0}
            | {"overflow": int(_first_overflow(found["overflow"]))}
        )
    return pd.DataFrame(rows)


def _means(bench: FieldBench, name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Mean over prompts and its interval; NaN where a prompt has none."""
    if not np.isfinite(values).all():
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    config = bench.config
    counts = resampled_counts(len(values), resamples=config.resamples, seed=config.seed)
    point, interval = mean_over_prompts(values[:, None], np.ones((len(values), 1)), counts)
    low, high = bounds_of(interval, 1)
    return {name: float(point[0]), f"{name}_low": float(low[0]), f"{name}_high": float(high[0])}


def _first_overflow(blocks: NDArray[np.float64]) -> float:
    found = blocks[blocks > 0]
    return float(found.min()) if len(found) else 0.0


def _along(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over prompts at each block; NaN where a prompt has no number."""
    return np.asarray(states.mean(0))


def _last(states: NDArray[np.float64]) -> tuple[float, float]:
    """Length and cosine after the last block that every prompt has."""
    along = _along(states)
    there = np.flatnonzero(np.isfinite(along[:, :2]).all(1))
    if not len(there):
        return float("nan"), float("nan")
    return float(along[there[-1], 0]), float(along[there[-1], 1])


def _along_depth(readings: list[Reading]) -> pd.DataFrame:
    frames = []
    for one in readings:
        along = _along(one.values["states"])
        there = np.flatnonzero(np.isfinite(along[:, 0]))
        frames.append(
            pd.DataFrame(
                {
                    "subject": one.subject,
                    "change": one.change.name,
                    "layer": there + 1,
                    "norm": along[there, 0],
                    "mean_cosine": along[there, 1],
                    "effective_rank": along[there, 2],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
