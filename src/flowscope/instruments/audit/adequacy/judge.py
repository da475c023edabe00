r"""Judge whether a flow fitted on some prompts forecasts more than references without a flow.

The table ``adequacy_skill`` is all that is read: total variation of every forecast, summed per
prompt and segment. `rule` makes the effect of it; where the coordinates leave no room for a better
forecast the claim is uninformative.
"""

from __future__ import annotations

import pandas as pd

from flowscope.evidence import judged_effect
from flowscope.evidence.verdicts import Claimed, ends, not_measured, pure_number
from flowscope.instruments.audit.adequacy import ADEQUACY
from flowscope.instruments.audit.adequacy.rule import (
    REFERENCES,
    ForecastEffect,
    copies,
    forecast_effect,
    integrated,
)
from flowscope.instruments.audit.units import distinct_prompts
from flowscope.lab.view import Records
from flowscope.records import Measurement, Unavailable, Verdict

__all__ = ["LEAST_ROOM", "STRENGTHS", "judge", "judge_forecast"]

LEAST_ROOM = 0.02
"""Gain of the true coordinates below which no flow could have been seen."""

STRENGTHS = (0.05, 0.2, 0.5)
"""Shares of that gain from which an effect is weak, clear and strong."""

_MOST_COPIES = 0.1


def judge(records: Records) -> list[Verdict]:
    """Whether a flow forecasts the layers of other prompts, from the tables of a run."""
    table = records.table("adequacy_skill", "first_layer", "last_layer", "prompt", *_NEEDED)
    drifts = records.table("drifts", "first_layer", "last_layer", "drift", "chosen", "because")
    moving = integrated(table)
    if moving.empty:
        return [not_measured(ADEQUACY, f"the fitted flow cannot be integrated: {_stops(drifts)}")]
    prompts = records.arrays("prompts")
    same = len(prompts["relative_step"]) - len(distinct_prompts(prompts))
    seed = int(records.settings.get("seed", 0))
    return [judge_forecast(moving, seed=seed, words=_segments(moving, drifts), same=same)]


def judge_forecast(
    table: pd.DataFrame,
    *,
    claim: Claimed = ADEQUACY,
    seed: int = 0,
    words: str = "",
    same: int = 0,
) -> Verdict:
    """Judge the gain of a flow over its references on held-out prompts.

    Parameters
    ----------
    table
        ``adequacy_skill``, of segments on which the flow could be integrated.
    claim
        What is judged.
    seed
        Of the resamples of prompts.
    words
        What is said after the numbers: where, and by which drift.
    same
        How many prompts equal an earlier one. Their tokens are sampled at other places, so that
        the table alone does not show it.
    """
    effect = forecast_effect(table, seed=seed)
    if isinstance(effect, Unavailable):
        return not_measured(claim, effect.reason)
    same, prompts = max(same, copies(table)), effect.prompts
    if same > _MOST_COPIES * prompts:
        return not_measured(
            claim,
            f"{same} of {prompts} prompts are copies of others, so that a flow has seen what it is "
            "judged on. Give different prompts.",
        )
    null = f"skill of {REFERENCES[effect.reference]}"
    return judged_effect(
        claim=claim,
        statistic=_number("skill of the flow", effect, "flow", seed),
        null=_number(null, effect, effect.reference, seed),
        effect=effect.effect,
        interval=effect.interval,
        thresholds=STRENGTHS,
        because="; ".join(part for part in (_sentence(effect), words) if part),
        units=prompts,
        size=effect.share,
        guard=_guard(effect),
    )


_NEEDED = ("still", "mean_drift", "scaled_drift", "flow", "floor")
_ESTIMATOR = "1 − ΣTV(forecast)/ΣTV(nothing changes), onward, fitted on the other half of prompts"


def _number(name: str, effect: ForecastEffect, column: str, seed: int) -> Measurement:
    return pure_number(
        name,
        effect.skills[column],
        n=effect.prompts,
        estimator=_ESTIMATOR,
        seed=seed,
        interval=effect.spans[column],
    )


def _guard(effect: ForecastEffect) -> str:
    if effect.room >= LEAST_ROOM:
        return ""
    return (
        f"even the true coordinates are only {_points(effect.room)} better than "
        f"{REFERENCES[effect.reference]} (at least {_points(LEAST_ROOM)} are needed), so that no "
        "flow could have been seen"
    )


def _sentence(effect: ForecastEffect) -> str:
    span = ""
    if not isinstance(effect.interval, Unavailable):
        low, high = ends(effect.interval)
        span = f" (95 %: {_signed(low)} to {_signed(high)})"
    text = (
        f"on held-out prompts a fitted flow removes {_share(effect.skills['flow'])} of the error "
        f"of {REFERENCES['still']}, {_signed(effect.effect)} points{span} against "
        f"{REFERENCES[effect.reference]}, of {_points(effect.room)} that the coordinates allow"
    )
    others = {
        "fitted on half as many prompts": effect.beyond("flow_half"),
        "with the layers in random order": effect.beyond("flow_shuffled"),
    }
    known = [f"{k} {_signed(v)}" for k, v in others.items() if not isinstance(v, Unavailable)]
    return "; ".join([text, *([", ".join(known)] if known else [])])


def _signed(value: float) -> str:
    """Points with their sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def _share(value: float) -> str:
    return f"{100 * value:.1f} %".replace("-", "−")


def _points(value: float) -> str:
    return f"{100 * value:.1f} points" if abs(value) < 0.1 else f"{100 * value:.0f} points"


def _segments(table: pd.DataFrame, drifts: pd.DataFrame) -> str:
    """Layers of each segment that was judged, with the kinds of drift that were chosen there."""
    parts = []
    for (first, last), _ in table.groupby(["first_layer", "last_layer"]):
        there = (drifts["first_layer"] == first) & (drifts["last_layer"] == last)
        kinds = drifts["drift"][there & drifts["chosen"].astype(bool)]
        parts.append(f"layers {first}–{last} ({'/'.join(dict.fromkeys(kinds))})")
    return ", ".join(parts)


def _stops(drifts: pd.DataFrame) -> str:
    reasons = drifts[drifts["because"].fillna("").astype(str) != ""]
    columns = (reasons[name] for name in ("first_layer", "last_layer", "because"))
    words = [f"layers {first}–{last}: {why}" for first, last, why in zip(*columns, strict=True)]
    return "; ".join(dict.fromkeys(words))
