"""Try every policy on the fresh prompts, and write the file of calibrated thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import flowscope
from flowscope.errors import RecordError
from flowscope.evidence import mean_over_prompts, resampled_counts, share_interval
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.decode.calibration.file import (
    CalibrationFile,
    Chosen,
    write_calibration,
)
from flowscope.instruments.decode.outcomes import Outcome, outcome_of
from flowscope.instruments.decode.policies.catalogue import POLICIES, policy_named
from flowscope.instruments.decode.policies.protocol import Policy
from flowscope.instruments.decode.reference.measure import Part, agreeing
from flowscope.instruments.decode.subject import DecodeBench
from flowscope.instruments.decode.trial import SECONDS, TABLES
from flowscope.models.infilling.templates import canvas_of
from flowscope.models.loading import Loaded
from flowscope.records import Measurement, Unavailable

__all__ = ["trial"]

Chosens = dict[str, Chosen]


def trial(bench: DecodeBench) -> None:
    """Write the tables ``policies`` and ``trial_prompts``, and the file of thresholds."""
    part: Part = bench.shared("parts")["test"]
    chosen: Chosens = bench.shared("chosen")
    wanted = list(_wanted(bench, chosen))
    counter = bench.counter("trial", len(wanted))
    made: list[tuple[str, Outcome]] = []
    known: dict[tuple[str, float], Outcome] = {}
    for kind, policy in wanted:
        key = policy.name, policy.threshold
        if key not in known:  # a calibrated threshold may be the published one
            known[key] = outcome_of(bench, part, policy)
        made.append((kind, known[key]))
        counter.advance(1)
    rows = [_row(bench, part, kind, outcome) for kind, outcome in made]
    outcomes = {(one.policy.name, kind): one for kind, one in made}
    bench.put("policies", pd.DataFrame(rows, columns=list(TABLES["policies"].schema)))
    bench.note(_times(outcomes, len(part)))
    judged = _judged(bench, chosen)
    if judged:
        bench.put("trial_prompts", _prompts(bench, part, outcomes, judged))
    _write_file(bench, chosen)


def _wanted(bench: DecodeBench, chosen: Chosens) -> Iterator[tuple[str, Policy]]:
    """Policies to try: the reference, published thresholds, calibrated ones, and their peer."""
    yield "published", policy_named("reference")
    for name in bench.config.policy:
        yield "published", policy_named(name)
    for name, one in chosen.items():
        if one.controlled:
            yield "calibrated", policy_named(name, one.threshold)
    if bench.config.frontier:
        for name in chosen:
            for threshold in POLICIES[name].grid:
                yield "frontier", policy_named(name, threshold)


def _row(bench: DecodeBench, part: Part, kind: str, outcome: Outcome) -> dict[str, object]:
    config, n, policy = bench.config, len(part), outcome.policy
    saved = 1 - outcome.passes / part.passes
    calibrated = kind == "calibrated"
    certified = "calibrated" if calibrated else "none"
    if policy.lossless:
        strict = bool(outcome.same.all()) and _exact(bench)
        certified = "strict" if strict else "none"
    right = outcome.correct[np.isfinite(outcome.correct)]
    return {
        "policy": policy.name, "kind": kind, "threshold": policy.threshold, "n": n,
        "passes": outcome.passes.mean(), "rows": outcome.rows.mean(),
        "reference_passes": part.passes.mean(),
        **_mean("saved", saved, bench),
        **_share("same", outcome.same),
        **_share("accuracy", right.astype(bool)),
        "certified": certified,
        "alpha": config.alpha if calibrated else math.nan,
        "delta": config.delta if calibrated and config.method == "learn_then_test" else math.nan,
    }  # fmt: skip


def _exact(bench: DecodeBench) -> bool:
    """Whether the model calculates in single or double precision.

    At half precision equal sequences may get other tokens in batches of another size. What a
    function calculates with is not known; what it returns is.
    """
    made, exact = bench.subject.made, (torch.float32, torch.float64)
    if isinstance(made.loaded, Loaded):
        weights = made.loaded.model.parameters()
        return all(weight.dtype in exact for weight in weights if weight.is_floating_point())
    canvas = canvas_of(made, bench.subject.material.test[:1])
    with torch.no_grad():
        return made.naming(canvas.ids, canvas.present).dtype in exact


def _times(outcomes: dict[tuple[str, str], Outcome], units: int) -> Measurement:
    """Mean time of a prompt under each policy; no column, because tables repeat bit by bit."""
    names = [key for key in outcomes if key[1] != "frontier"]
    return Measurement(
        name=SECONDS, values=np.array([outcomes[key].seconds.mean() for key in names]),
        axes=("policy",), coordinates={"policy": np.array([f"{a}, {b}" for a, b in names])},
        unit="s", n=units, estimator="mean over prompts of the time of their batch",
        dtype="float64",
    )  # fmt: skip


def _mean(name: str, values: NDArray[np.float64], bench: DecodeBench) -> dict[str, float]:
    column = values[:, None].astype(float)
    counts = resampled_counts(len(column), resamples=bench.config.resamples, seed=bench.config.seed)
    point, interval = mean_over_prompts(column, np.ones_like(column), counts)
    low, high = bounds_of(interval, 1)
    return {name: float(point[0]), f"{name}_low": float(low[0]), f"{name}_high": float(high[0])}


def _share(name: str, values: NDArray[np.bool_]) -> dict[str, float]:
    interval = share_interval(int(values.sum()), len(values))
    if isinstance(interval, Unavailable):
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), math.nan)
    ends = {f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}
    return {name: float(values.mean()), **ends}


def _judged(bench: DecodeBench, chosen: Chosens) -> str:
    """The calibrated policy with the fewest passes on the calibration prompts; empty if none.

    It is chosen without the fresh prompts, so that these may judge it. Thresholds from a file have
    no calibration prompts here: then it is the first of the named policies.
    """
    names = [
        name
        for name in bench.config.policy
        if name in chosen and chosen[name].controlled and name != "plain"
    ]
    part: Part = bench.shared("parts")["calibration"]
    if not names or not len(part):
        return next(iter(names), "")

    def passes(name: str) -> float:
        policy = policy_named(name, chosen[name].threshold)
        return float(outcome_of(bench, part, policy).passes.mean())

    return min(names, key=passes)


def _prompts(
    bench: DecodeBench, part: Part, outcomes: dict[tuple[str, str], Outcome], judged: str
) -> pd.DataFrame:
    one = outcomes[judged, "calibrated"]
    peer = outcomes.get(("plain", "calibrated"))
    nothing = np.full(len(part), np.nan)
    at_once = [agreeing(bench, batch)[0] for batch in part.batches]
    return pd.DataFrame(
        {
            "prompt": np.arange(len(part)),
            "policy": judged,
            "reference": part.passes,
            "passes": one.passes,
            "same": one.same.astype(int),
            "plain": nothing if peer is None else peer.passes,
            "at_once": np.concatenate(at_once).astype(int),
        }
    )


def _write_file(bench: DecodeBench, chosen: Chosens) -> None:
    """Write the file of thresholds that the settings name, unless the thresholds come from it."""
    subject, path = bench.subject, bench.config.calibrate
    if path is None or isinstance(subject.file, CalibrationFile):
        return
    if not isinstance(subject.made.loaded, Loaded):
        raise RecordError(
            "A function has no weights by which a file of thresholds could recognise it. Leave "
            "calibrate out; the thresholds are in the run folder."
        )
    write_calibration(
        path, chosen, bench.config, model=subject.source, marks=subject.marks,
        prompts=subject.material.calibration, made_by=f"flowscope {flowscope.__version__}",
    )  # fmt: skip
