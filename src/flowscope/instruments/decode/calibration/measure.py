"""Run every policy on the calibration prompts and choose the loosest threshold that may be used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from flowscope.evidence import risk_control, running_worst, share_interval
from flowscope.instruments.decode.calibration import TABLES
from flowscope.instruments.decode.calibration.file import CalibrationFile, Chosen
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.instruments.decode.outcomes import Outcome, outcome_of
from flowscope.instruments.decode.policies.catalogue import POLICIES, policy_named
from flowscope.instruments.decode.reference.measure import Part
from flowscope.instruments.decode.subject import DecodeBench
from flowscope.records import Interval, Unavailable

__all__ = ["calibrated_policies", "calibration"]

_BEYOND = 3.0
"""A walk goes on until the risk exceeds this many alpha, for the curve of passes and risk."""


def calibrated_policies(config: DecodeConfig) -> list[str]:
    """Policies that have a threshold to calibrate, and the peer of D1."""
    names = [name for name in config.policy if not POLICIES[name].lossless]
    return [*names, "plain"] if config.controls and "plain" not in names else names


def calibration(bench: DecodeBench) -> None:
    """Write the tables ``calibration`` and ``thresholds``; share the chosen thresholds."""
    config, file = bench.config, bench.subject.file
    if isinstance(file, CalibrationFile):
        known = file.chosen
        chosen = {name: known[name] for name in calibrated_policies(config) if name in known}
        bench.once("chosen", lambda: chosen)
        bench.put("thresholds", _thresholds(chosen))
        return
    part: Part = bench.shared("parts")["calibration"]
    names = calibrated_policies(config)
    counter = bench.counter("calibration", len(names))
    walks: dict[str, list[Outcome]] = {}
    for name in names:
        walks[name] = _walk(bench, part, name)
        counter.advance(1)
    chosen = {name: _chosen(outcomes, config) for name, outcomes in walks.items()}
    bench.once("chosen", lambda: chosen)
    frames = [_table(walks[name], chosen[name], part, config) for name in names]
    if frames:
        bench.put("calibration", pd.concat(frames, ignore_index=True))
    bench.put("thresholds", _thresholds(chosen))


def _walk(bench: DecodeBench, part: Part, name: str) -> list[Outcome]:
    """Outcomes from the strictest threshold on; all of them if every threshold is wanted."""
    outcomes: list[Outcome] = []
    longest = int(max(template.blanks for template in part.templates))
    for threshold in POLICIES[name].grid:
        if name == "plain" and outcomes and outcomes[-1].policy.threshold >= longest:
            break  # more positions a pass than there are
        outcomes.append(outcome_of(bench, part, policy_named(name, threshold)))
        risk = 1 - outcomes[-1].same.mean()
        if not bench.config.frontier and risk > _BEYOND * bench.config.alpha:
            break
    return outcomes


def _chosen(outcomes: Sequence[Outcome], config: DecodeConfig) -> Chosen:
    losses = np.stack([~one.same for one in outcomes], 1).astype(float)
    order = range(len(outcomes))
    if config.method == "conformal":
        losses = running_worst(losses, order)
    found = risk_control(losses, order, config.alpha, config.delta, config.method)
    if isinstance(found.index, Unavailable):
        return Chosen(
            threshold=math.nan, errors=math.nan, units=found.units, p_value=math.nan,
            needed=found.needed, because=found.index.reason,
        )  # fmt: skip
    errors = found.errors
    assert isinstance(errors, float)
    return Chosen(
        threshold=outcomes[found.index].policy.threshold, errors=errors, units=found.units,
        p_value=float(found.p_values[found.index]), needed=found.needed,
    )  # fmt: skip


def _table(
    outcomes: Sequence[Outcome], chosen: Chosen, part: Part, config: DecodeConfig
) -> pd.DataFrame:
    order = range(len(outcomes))
    losses = np.stack([~one.same for one in outcomes], 1).astype(float)
    if config.method == "conformal":
        losses = running_worst(losses, order)
    found = risk_control(losses, order, config.alpha, config.delta, config.method)
    rows = []
    for place, one in enumerate(outcomes):
        errors, n = int((~one.same).sum()), len(one.same)
        interval = share_interval(errors, n)
        assert isinstance(interval, Interval)
        rows.append(
            {
                "policy": one.policy.name, "threshold": one.policy.threshold, "place": place + 1,
                "n": n, "errors": errors, "risk": errors / n, "low": interval.low,
                "high": interval.high, "p_value": float(found.p_values[place]),
                "passes": float(one.passes.mean()),
                "saved": float((1 - one.passes / part.passes).mean()),
                "correct": float(one.correct.mean()),
                "chosen": int(one.policy.threshold == chosen.threshold),
            }
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(TABLES["calibration"].schema))


def _thresholds(chosen: dict[str, Chosen]) -> pd.DataFrame:
    rows = [
        {
            "policy": name, "threshold": one.threshold, "default": POLICIES[name].default,
            "errors": one.errors, "n": one.units, "p_value": one.p_value, "needed": one.needed,
            "because": one.because,
        }
        for name, one in chosen.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(TABLES["thresholds"].schema))
