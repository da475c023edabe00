"""Make every block of a trained network in shorter steps and compare the last states."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.instruments.field.pde_view.names import SIMULATOR, TRANSFORMER
from flowscope.instruments.field.pde_view.refinement import FINEST
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.summaries import summarised
from flowscope.instruments.field.pde_view.trained import Place, read_examples, trained
from flowscope.pde import path_alignment, refined_path

__all__ = ["refinement"]

_ARMS = (TRANSFORMER, "no_norm", "leak_0_norm", SIMULATOR)
_STEPS = tuple(2**k for k in range(FINEST.bit_length()))
_NAMES = ["change", "distance", "spectral", "accuracy"]
Values = NDArray[np.float64]


def refinement(bench: PdeBench) -> None:
    """Write the tables ``refinement`` and ``orders``."""
    config = settings_of(bench)
    pairs = [(name, arm) for name in config.tasks for arm in _ARMS if arm in config.arms]
    counter = bench.counter("refinement", len(pairs) * len(config.seeds))
    tables, orders = [], []
    for name, arm in pairs:
        several = []
        for seed in config.seeds:
            mark = bench.subject.tasks[name].mark[:8]
            shard = bench.shard(
                f"refined-{name}-{mark}-{arm}-{seed}",
                partial(_refined, bench, (name, arm, seed)),
            )
            several.append(shard["values"])
            counter.advance()
        values = np.stack(several)
        keys = pd.DataFrame([(name, arm)] * len(_STEPS), columns=["task", "arm"])
        tables.append(summarised(keys.assign(n=_STEPS), _NAMES, values))
        slopes = _slopes(values[..., :-1, 0])[..., None, None]
        orders.append(summarised(keys[:1], ["slope"], slopes))
    bench.put("refinement", pd.concat(tables, ignore_index=True))
    bench.put("orders", pd.concat(orders, ignore_index=True))


@torch.no_grad()
def _refined(bench: PdeBench, place: Place) -> dict[str, Values]:
    """Changes, distances, likeness and right classes, ``[examples, refinements, 4]``."""
    name, _, seed = place
    task, made = bench.subject.tasks[name], trained(bench, place)
    chosen = read_examples(bench, name, seed)
    start, labels = made.start(task.test_inputs[chosen]), task.test_labels[chosen]
    ends = torch.stack([refined_path(made.core, start, n)[-1] for n in _STEPS])
    way = _length(ends[0] - start)
    right = (made.head(ends.mean(-2)).argmax(-1) == labels).double()
    change = torch.full_like(right, torch.nan)
    change[:-1] = _length(ends[1:] - ends[:-1]) / way
    distance = _length(ends - ends[-1]) / way
    alike = torch.stack([_alike(start, end, ends[-1]) for end in ends])
    columns = torch.stack([change, distance, alike, right], -1)
    values: Values = columns.transpose(0, 1).cpu().numpy()
    return {"values": values}


def _alike(start: torch.Tensor, end: torch.Tensor, finest: torch.Tensor) -> torch.Tensor:
    """Spectral similarity of two last states, by example; NaN where one is not finite."""
    if not bool(end.isfinite().all() and finest.isfinite().all()):
        return torch.full(start.shape[:1], torch.nan, dtype=torch.float64, device=start.device)
    path, reference = (torch.stack([start, state]) for state in (end, finest))
    return path_alignment(path, reference).spectral[0]


def _length(x: torch.Tensor) -> torch.Tensor:
    return x.double().square().sum((-1, -2)).sqrt()


def _slopes(changes: Values) -> Values:
    """Least-squares slope of log change over log n, ``[seeds, examples]``."""
    at = np.log(_STEPS[:-1]) - np.log(_STEPS[:-1]).mean()
    with np.errstate(divide="ignore"):
        return np.asarray((np.log(changes) * at).sum(-1) / (at**2).sum())
