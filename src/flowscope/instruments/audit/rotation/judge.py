r"""Judge how much of the motion along depth is transport, and whether any of it is rotation.

A step of the logits is a gradient, a rotation, or neither was seen: noise, and what the fitted
functions do not hold. With $E$ the energy of the whole step, $R$ and $G$ what was seen of rotation
and gradient, the share that rotates lies in $[R/E,\; 1 - G/E]$. *Transport* holds where the upper
bound lies below one half with its interval, fails where the lower bound lies above it with its
interval, and abstains otherwise.

*Rotation* asks whether $R_{\rm norm}$, a share of what was seen, is more than nine gradients of
log-sum-exp potentials on the same states seem to have. One p, by the maximum over layers that share
their signs, tests that it is at most their mean, or .01 where that is more. Where gradients and
fields represent less than .05 of the motion over the layers, the claim could not have failed; a
layer that represents less has no part in effect and p. A small R alone does not make a Schrödinger
bridge (errata E47).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, judged_effect, not_measured
from flowscope.evidence.verdicts import no_verdict, pure_number
from flowscope.instruments.audit.rotation import ROTATION, TRANSPORT
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

if TYPE_CHECKING:
    from flowscope.flows.hodge import Estimate, RotationAmount, RotationPresence, RotationReading

__all__ = ["LEVEL", "THRESHOLDS", "judge", "judge_rotation", "judge_transport"]

LEVEL = 0.05
"""Largest p with which rotation is said to be there."""

THRESHOLDS = (0.01, 0.05, 0.2)
"""R_norm above its controls from which rotation is weak, clear and strong."""

_HALF = 0.5
_UNIT = "different prompts"


def judge(records: Records) -> list[Verdict]:
    """Judge both claims from the table and the arrays of a run."""
    table = records.table("rotation", "prompts", "status", "because")
    units, seed = int(table["prompts"].max()), int(records.settings["seed"])
    silent = table[table["status"] != "ok"]
    if units < MINIMUM_UNITS or len(silent) == len(table):
        reason = _too_few(units) if units < MINIMUM_UNITS else _unread(silent)
        return [not_measured(claim, reason) for claim in (TRANSPORT, ROTATION)]
    readings = _readings(records.arrays("rotation"))
    return [
        judge_transport(readings, units=units, seed=seed),
        judge_rotation(readings, units=units, seed=seed),
    ]


def judge_transport(readings: list[RotationReading], *, units: int, seed: int) -> Verdict:
    """Judge by the bounds of the share that rotates whether most of the motion is transport.

    Parameters
    ----------
    readings
        Of the central layers.
    units
        Number of different prompts.
    seed
        Of halves and signs.
    """
    from flowscope.flows.hodge import rotation_amount

    amount = rotation_amount(readings)
    gradient, rotation = amount.gradient, amount.rotation
    upper = pure_number(
        "1 − G/E, the most that may rotate",
        amount.upper,
        estimator=f"mean over {len(readings)} layers, cross-fitted between halves of the prompts",
        interval=_interval(1 - gradient.high, 1 - gradient.low, gradient),
        n=units,
        seed=seed,
    )
    decision: Decision = amount.outcome
    because = _amount_in_words(amount, len(readings))
    if decision == "abstains":
        between = "one half lies between these bounds or in their intervals"
        because += f"; {no_verdict(between)}"
    if units < MINIMUM_UNITS:
        decision, because = "abstains", f"{because}; {no_verdict(_too_few(units))}"
    return Verdict(
        name=TRANSPORT.name,
        claim=TRANSPORT.says,
        statistic=upper,
        null=pure_number("one half", _HALF, estimator="by definition", n=units, seed=seed),
        effect=_HALF - amount.upper,
        # ½ less the share that rotates, wherever that lies between its bounds.
        interval=_interval(gradient.low - _HALF, _HALF - rotation.low, gradient),
        decision=decision,
        because=because,
    )


def judge_rotation(readings: list[RotationReading], *, units: int, seed: int) -> Verdict:
    """Judge whether R_norm is more than that of gradients on the same states.

    Parameters
    ----------
    readings
        Of the central layers, with shared signs.
    units
        Number of different prompts.
    seed
        Of halves and signs.
    """
    from flowscope.flows.hodge import rotation_presence
    from flowscope.flows.hodge.estimates import averaged_estimate

    there = rotation_presence(readings)
    if not there.informative:
        return _too_little(there, len(readings), units)
    used = [readings[k] for k in there.used]
    control = sum(one.control for one in used) / len(used)
    effect, share = there.effect, averaged_estimate([one.normalised for one in used])
    verdict = judged_effect(
        claim=ROTATION,
        statistic=pure_number(
            "R_norm",
            share.value,
            estimator=f"mean over {len(used)} layers, cross-fitted between halves of the prompts",
            interval=_interval(share.low, share.high, share),
            n=units,
            seed=seed,
        ),
        null=pure_number(
            "R_norm of nine log-sum-exp gradients",
            control,
            estimator=f"mean over the same {len(used)} layers",
            n=units,
            seed=seed,
        ),
        effect=effect.value,
        interval=_interval(effect.low, effect.high, effect),
        thresholds=THRESHOLDS,
        because=_presence_in_words(there, share, control, len(readings)),
        units=units,
        unit=_UNIT,
        guard=_guard(there, len(readings)) if units >= MINIMUM_UNITS else "",
        p=there.p,
    )
    if verdict.outcome == "holds" and not there.p <= LEVEL:
        late = f"the p value, {there.p:.2g}, is above {LEVEL:g}"
        because = f"{verdict.because}; {no_verdict(late)}"
        return replace(
            verdict, decision="abstains", outcome="abstains", strength="", because=because
        )
    return verdict


def _guard(there: RotationPresence, layers: int) -> str:
    """Why the claim could not have failed on these data; empty if it could."""
    from flowscope.flows.hodge import REPRESENTED

    seen = there.represented.value
    if seen >= REPRESENTED and there.informative:
        return ""
    where = f"{layers} central layers" if layers > 1 else "one central layer"
    return (
        f"the fitted gradients and fields represent {_percent(max(seen, 0.0))} of the motion over "
        f"{where}; below {_percent(REPRESENTED)} that is too little to speak of the motion"
    )


def _too_little(there: RotationPresence, layers: int, units: int) -> Verdict:
    """Verdict where the fitted functions hold too little of the motion at every layer."""
    reason = _guard(there, layers)
    nothing = Unavailable("too little of the motion is represented")
    enough = units >= MINIMUM_UNITS
    return judged_effect(
        claim=ROTATION,
        statistic=Measurement.abstained("R_norm", reason if enough else _too_few(units)),
        null=nothing,
        effect=nothing,
        interval=nothing,
        thresholds=THRESHOLDS,
        because="",
        units=units,
        unit=_UNIT,
        guard=reason if enough else "",
    )


def _amount_in_words(amount: RotationAmount, layers: int) -> str:
    R, G = amount.rotation, amount.gradient
    where = f"{layers} central layers" if layers > 1 else "one central layer"
    return (
        f"of the energy of all steps of the logits over {where}, at least "
        f"{_percent(max(R.value, 0.0))} {_bounds(R.low, R.high)} rotates and at most "
        f"{_percent(min(1 - G.value, 1.0))} {_bounds(1 - G.high, 1 - G.low)} does; the fitted "
        f"gradients and fields represent {_percent(amount.represented.value)} of it, the rest is "
        "noise or lies outside"
    )


def _presence_in_words(
    there: RotationPresence, share: Estimate, control: float, layers: int
) -> str:
    effect, found = there.effect, sum(p <= LEVEL for p in there.layer_p)
    return (
        f"of the part of the motion that can be represented ({_percent(there.represented.value)} "
        f"of it), {_percent(share.value)} rotates (R_norm), where gradients on the same states "
        f"read {_percent(control)}: a difference of {effect.value:+.3f} "
        f"[{effect.low:+.3f}, {effect.high:+.3f}], p {there.p:.2g} by the largest of "
        f"{_layers(len(there.used))}; {found} of {_layers(layers)} rotate by themselves (5 % "
        "level, adjusted)"
    )


def _layers(count: int) -> str:
    return f"{count} layer{'s' if count > 1 else ''}"


def _readings(arrays: Mapping[str, NDArray[Any]]) -> list[RotationReading]:
    from flowscope.instruments.audit.rotation.stored import restored

    return restored(arrays)


def _interval(low: float, high: float, of: Estimate) -> Interval:
    return Interval(low=low, high=high, level=of.level, method="t over prompts")


def _too_few(units: int) -> str:
    return (
        f"at least {MINIMUM_UNITS} {_UNIT} are needed; this run has {units}. Give at least "
        f"{MINIMUM_UNITS} {_UNIT}"
    )


def _unread(silent: pd.DataFrame) -> str:
    row = silent.iloc[0]
    return f"no layer could be measured; layer {int(row['layer'])}: {row['because']}"


def _percent(share: float) -> str:
    """Share in per cent with two figures.

    >>> _percent(0.0312), _percent(0.97)
    ('3.1 %', '97 %')
    """
    return f"{100 * share:.1f} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def _bounds(low: float, high: float) -> str:
    return f"[{_percent(low)}, {_percent(high)}]"
