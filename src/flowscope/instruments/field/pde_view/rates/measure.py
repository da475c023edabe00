"""Find the largest learning rate at which each arm trains."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from flowscope.instruments.field.pde_view.rates import GRID
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.training.measure import descended
from flowscope.lab.claim import Abstention

__all__ = ["largest_place", "rates"]

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


def _run(bench: PdeBench, name: str, arm: str, seed: int, rate: float) -> dict[str, float | bool]:
    """One short run: its last losses beside those of the class frequencies."""
    config, task = settings_of(bench), bench.subject.tasks[name]
    shard = bench.shard(
        f"rate-{name}-{task.mark[:8]}-{arm}-{seed}-{rate:g}",
        lambda: {
            "losses": descended(
                bench, task, arm, seed, config.rate_steps, rate, lambda steps: None
            )[1].losses.numpy()
        },
    )
    losses = shard["losses"]
    shares = torch.bincount(task.labels).double() / len(task.labels)
    known = float(torch.special.entr(shares).sum())
    last = float(losses[-max(len(losses) // 10, 1) :].mean())
    finite = bool(np.isfinite(losses).all())
    trains = finite and last < known - _BETTER
    return {"loss": last, "known": known, "finite": finite, "trains": trains}
