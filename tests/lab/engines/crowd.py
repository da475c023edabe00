"""An instrument whose shards several processes can make: random draws, then their sums."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from flowscope.lab import Bench, Column, Config, Instrument, Result, Stage, Subject, Table
from flowscope.lab.config import setting

__all__ = ["CROWD", "EVENTS", "CrowdConfig", "Events"]


@dataclass
class Events:
    """What happens in tests: shards made, and what goes wrong with which shard."""

    made: list[str] = field(default_factory=list)
    walked: list[str] = field(default_factory=list)
    wrong: dict[str, list[BaseException]] = field(default_factory=dict)
    start: float = 1.0
    threads: dict[str, int] = field(default_factory=dict)


EVENTS = Events()


class CrowdConfig(Config):
    """Draw numbers in pieces."""

    pieces: int = setting(5, "Pieces", ge=1)
    seed: int = setting(0, "Seed")
    out: str = setting("out", "Folder of the run folder")


def prepare(config: CrowdConfig, given: Mapping[str, Any]) -> tuple[CrowdConfig, Subject]:
    facts = {"values": config.pieces}
    marks = {"start": EVENTS.start}
    return config, Subject(
        source="a crowd", device="cpu", weight_hash="0" * 64, marks=marks, facts=facts
    )


def drawn(name: str, seed: int, number: int) -> dict[str, Any]:
    if EVENTS.wrong.get(name):
        raise EVENTS.wrong[name].pop(0)
    if os.environ.get("CROWD_KILLS") == name and not Path(os.environ["CROWD_KILLED"]).exists():
        Path(os.environ["CROWD_KILLED"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    EVENTS.made.append(name)
    EVENTS.threads["draws"] = torch.get_num_threads()
    return {"draws": np.random.default_rng([seed, number]).normal(size=4)}


def draws(bench: Bench[Any, CrowdConfig]) -> None:
    EVENTS.walked.append("draws")
    seed, count = bench.config.seed, bench.config.pieces
    makers = {f"draw-{k}": partial(drawn, f"draw-{k}", seed, k) for k in range(count)}
    bench.spread(makers)
    found = [bench.shard(name, make)["draws"] for name, make in makers.items()]
    bench.put("draws", pd.DataFrame({"piece": range(count), "sum": [x.sum() for x in found]}))
    bench.once("sum", lambda: float(np.sum(found)))


def again(bench: Bench[Any, CrowdConfig]) -> None:
    EVENTS.walked.append("again")
    sums = bench.records.read_table("draws")["sum"]  # what an earlier stage wrote can be read

    def make() -> dict[str, Any]:
        EVENTS.made.append("total")
        return {"total": np.array([sums.sum() + bench.shared("sum")])}

    bench.put("again", pd.DataFrame({"total": bench.shard("total", make)["total"]}))


def alone(bench: Bench[Any, CrowdConfig]) -> None:
    EVENTS.walked.append("alone")
    EVENTS.threads["alone"] = torch.get_num_threads()
    bench.put("alone", pd.DataFrame({"one": [1]}))


def _stage(name: str, *columns: str, settings: tuple[str, ...] = ()) -> Stage:
    table = Table(purpose=name, keys=columns[:1], columns=tuple(Column(c, c) for c in columns))
    return Stage(name=name, home=__name__, measure=name, settings=settings, tables={name: table})


CROWD = Instrument(
    name="crowd",
    home=__name__,
    config=CrowdConfig,
    prepare="prepare",
    stages=(
        _stage("draws", "piece", "sum", settings=("seed",)),
        _stage("again", "total", settings=("seed", "pieces")),
        _stage("alone", "one"),
    ),
    result="Result",
    page="",
    headline="",
    main_table="draws",
)

__all__ += [Result.__name__]
