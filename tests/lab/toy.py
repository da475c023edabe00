"""A toy instrument: three stages, one of which abstains, on a subject that is one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from flowscope.evidence.verdicts import pure_number
from flowscope.lab import (
    Abstention,
    Bench,
    Claim,
    Column,
    Config,
    Instrument,
    Records,
    Result,
    Stage,
    Subject,
    Table,
)
from flowscope.lab.config import setting
from flowscope.records import Unavailable, Verdict

SMALL = Claim(name="T1", says="the last change is small", asks="Is the last change small?")
AFTER = Claim(name="T2", says="what follows is small too", asks="Is what follows small?")
SILENT = Claim(name="T3", says="nothing is known", asks="Is anything known?")
MADE: list[str] = []


class ToyConfig(Config):
    """Measure how a number falls."""

    steps: int = setting(8, "Steps of the fall", ge=1)
    last: float = setting(0.1, "Value at the end")
    resamples: int = setting(10, "Read by no shard")
    silent: bool = setting(False, "Whether the first judge abstains")
    seed: int = setting(0, "Seed of the run")
    out: str = setting("out", "Folder of the run folder")


def prepare(config: ToyConfig, given: Mapping[str, Any]) -> tuple[ToyConfig, Subject]:
    facts = {"steps": config.steps, "values_measured": config.steps}
    marks = {"start": given.get("start", 1.0)}
    return config, Subject(
        source="a toy", device="cpu", weight_hash="0" * 64, marks=marks, facts=facts
    )


def fall(bench: Bench[Any, ToyConfig]) -> None:
    def make() -> dict[str, Any]:
        MADE.append("change")
        return {"change": np.linspace(1, bench.config.last, bench.config.steps)}

    change = bench.shard("change", make)["change"]
    bench.put("fall", pd.DataFrame({"step": range(len(change)), "change": change}))
    bench.once("last", lambda: float(change[-1]))


def judge_fall(records: Records) -> list[Verdict]:
    if records.settings["silent"]:
        raise Abstention("asked to be silent")
    return [verdict(SMALL, float(records.table("fall", "change")["change"].iloc[-1]))]


def follow(bench: Bench[Any, ToyConfig]) -> None:
    bench.put("follow", pd.DataFrame({"value": [bench.shared("last")]}))
    bench.decide(verdict(AFTER, bench.shared("last")))


def judge_wrongly(records: Records) -> list[Verdict]:
    return [verdict(SMALL, 0.0)]


def never(bench: Bench[Any, ToyConfig]) -> None:
    raise Abstention("there is nothing to read")


def verdict(claim: Claim, value: float) -> Verdict:
    nothing = Unavailable("a toy has none")
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number("the last change", value, n=4, estimator="value", seed=0),
        null=nothing,
        effect=nothing,
        interval=nothing,
        decision="holds" if value < 0.2 else "fails",
        because=f"the last change is {value:.2g}",
    )


FALL = Stage(
    name="fall",
    home=__name__,
    measure="fall",
    judge="judge_fall",
    claims=(SMALL,),
    settings=("steps", "last"),
    tables={
        "fall": Table(
            purpose="the change at each step",
            keys=("step",),
            columns=(Column("step", "step of the fall"), Column("change", "change in the step")),
        )
    },
)
FOLLOW = Stage(
    name="follow",
    home=__name__,
    measure="follow",
    claims=(AFTER,),
    needs=(SMALL,),
    tables={"follow": Table(purpose="what follows", columns=(Column("value", "it"),))},
)
NEVER = Stage(name="never", home=__name__, measure="never", judge="judge_fall", claims=(SILENT,))
TOY = Instrument(
    name="toy",
    home=__name__,
    config=ToyConfig,
    prepare="prepare",
    stages=(FALL, NEVER, FOLLOW),
    result="Result",
    page="none",
    headline="none",
    main_table="fall",
)

__all__ = ["MADE", "TOY", "Result", "ToyConfig"]
