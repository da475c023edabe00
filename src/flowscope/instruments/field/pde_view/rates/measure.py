"""Find the largest learning rate at which each arm trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.instruments.field.pde_view.rates import GRID
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.tasks import Task
from flowscope.instruments.field.pde_view.training.measure import descended
from flowscope.lab.claim import Abstention

__all__ = ["largest_place", "rates"]

Losses = NDArray[np.float32]
_BETTER = 0.05  # nats below the class frequencies


def rates(bench: PdeBench) -> None:
    """Write the tables ``rates`` and ``rate_runs``.

    Raises
    ------
    Abstention
        Where the setting ``rate_steps`` is 0.
    """
    config = settings_of(bench)
    if not config.rate_steps:
        raise Abstention("no learning rates were tried (rate_steps: 0)")
    name, seed = config.tasks[0], config.seeds[0]
    runs = math.ceil(math.log2(len(GRID) + 1))
    counter = bench.counter("learning rates", runs * len(config.arms))
    rows, tried = [], []
    for arm in config.arms:

        def trains(place: int, arm: str = arm) -> bool:
            row = _run(bench, name, arm, seed, GRID[place])
            tried.append({"arm": arm, "rate": GRID[place], **row})
            counter.advance()
            return bool(row["trains"])

        place = largest_place(trains, len(GRID))
        rows.append(
            {
                "arm": arm, "task": name, "seed": seed, "steps": config.rate_steps,
                "largest": GRID[place] if place >= 0 else math.nan,
                "next": GRID[place + 1] if place + 1 < len(GRID) else math.nan,
            }
        )  # fmt: skip
    bench.put("rates", pd.DataFrame(rows))
    bench.put("rate_runs", pd.DataFrame(tried).sort_values(["arm", "rate"], ignore_index=True))


def largest_place(holds: Callable[[int], bool], count: int) -> int:
    """Largest place below ``count`` that holds, −1 if none, where all below one that holds do.

    >>> largest_place(lambda place: place <= 4, 7)
    4
    """
    below, above = -1, count
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below


def _losses(bench: PdeBench, task: Task, arm: str, seed: int, rate: float) -> dict[str, Losses]:
    """Losses of one short run."""
    steps = settings_of(bench).rate_steps
    _, left = descended(bench, task, arm, seed, steps, rate, lambda steps: None)
    return {"losses": left.losses.numpy()}


def _run(bench: PdeBench, name: str, arm: str, seed: int, rate: float) -> dict[str, float | bool]:
    """One short run: its last losses beside those of the class frequencies."""
    task = bench.subject.tasks[name]
    shard = bench.shard(
        f"rate-{name}-{task.mark[:8]}-{arm}-{seed}-{rate:g}",
        partial(_losses, bench, task, arm, seed, rate),
    )
    losses = shard["losses"]
    shares = torch.bincount(task.labels).double() / len(task.labels)
    known = float(torch.special.entr(shares).sum())
    last = float(losses[-max(len(losses) // 10, 1) :].mean())
    finite = bool(np.isfinite(losses).all())
    trains = finite and last < known - _BETTER
    return {"loss": last, "known": known, "finite": finite, "trains": trains}
