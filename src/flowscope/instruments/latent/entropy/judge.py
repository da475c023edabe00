r"""Judge whether the entropy of the tokens rises, then falls.

With $H_\ell$ the entropy at layer $\ell$, from the first to the last layer that all readings have,

$$ e = \frac1r\max_k\min(H_k-H_\text{first},\; H_k-H_\text{last}) $$

over the layers k in between, in nats per coordinate: above 0 only if some layer lies above both
ends. Its interval takes the same of the ends of intervals that cover all differences together, so
that the choice of the layer is paid for. There are four readings: nearest neighbours and
covariances, all tokens and one occurrence of each. L1 holds only if all four are above 0 and fails
only if all four are below; it is uninformative if a network with random weights passes, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowscope.evidence import joint_half_ends, judged_effect, not_measured
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.latent.entropy import RISE_AND_FALL
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["READINGS", "THRESHOLDS", "Reading", "judge_readings", "rise_and_fall"]

THRESHOLDS = (0.02, 0.1, 0.3)
"""Nats per coordinate from which L1 is weak, clear and strong; .1 is 10 % in every direction."""

READINGS = {
    ("all", "entropy_knn"): "neighbours, all tokens",
    ("all", "entropy_gaussian"): "covariance, all tokens",
    ("types", "entropy_knn"): "neighbours, one occurrence each",
    ("types", "entropy_gaussian"): "covariance, one occurrence each",
}

_FEWEST_LAYERS = 3


class Reading(NamedTuple):
    """Entropy along depth by one estimator on one sample: whole, and on halves of the prompts."""

    whole: NDArray[np.float64]
    halves: NDArray[np.float64]
    prompts: int


class _Effect(NamedTuple):
    value: float
    low: float
    high: float
    layer: int


def rise_and_fall(records: Records) -> list[Verdict]:
    """Judge L1 from the arrays ``entropy_halves``."""
    arrays = records.arrays("entropy_halves")
    settings = records.settings
    subjects: dict[str, dict[tuple[str, str], Reading]] = {}
    for key in READINGS:
        sample, column = key
        for name in arrays:
            subject, _, rest = name.partition("/")
            if rest == f"{sample}/{column}":
                rows = arrays[name]
                prompts = int(arrays[f"{subject}/{sample}/prompts"][0])
                subjects.setdefault(subject, {})[key] = Reading(rows[0], rows[1:], prompts)
    if "model" not in subjects:
        return [not_measured(RISE_AND_FALL, "no layer has an entropy")]
    twins = {name: r for name, r in subjects.items() if name.startswith("random twin")}
    rank = int(settings["ranks"][0])
    return [judge_readings(subjects["model"], twins, rank=rank, seed=int(settings["seed"]))]


def judge_readings(
    model: Mapping[tuple[str, str], Reading],
    twins: Mapping[str, Mapping[tuple[str, str], Reading]],
    *,
    rank: int,
    seed: int,
) -> Verdict:
    """Verdict on the readings of a model and of networks with random weights.

    Parameters
    ----------
    model, twins
        Readings by sample and column.
    rank
        Coordinates in which the entropies were taken.
    seed
        Of the joint intervals.
    """
    effects = _effects(model, rank, seed)
    if isinstance(effects, str):
        return not_measured(RISE_AND_FALL, effects)
    passing = [
        name
        for name, readings in twins.items()
        if not isinstance(found := _effects(readings, rank, seed), str)
        and all(_side(one) > 0 for one in found.values())
    ]
    prompts = min(reading.prompts for reading in model.values())
    facts: dict[str, Any] = {"n": prompts, "estimator": "halves of the prompts", "seed": seed}
    weakest = min(effects.values(), key=lambda one: one.value)
    effect, interval = _joined(effects)
    return judged_effect(
        claim=RISE_AND_FALL,
        statistic=pure_number("rise and fall", weakest.value, **facts),
        null=Unavailable("0 by definition: no layer lies above both ends"),
        effect=effect,
        interval=interval,
        thresholds=THRESHOLDS,
        because=_words(effects),
        units=prompts,
        guard=f"the entropy of {passing[0]} rises and falls, too" if passing else "",
    )


def _effects(
    readings: Mapping[tuple[str, str], Reading], rank: int, seed: int
) -> dict[tuple[str, str], _Effect] | str:
    """Effect of every reading over the layers that all have, or why there is none."""
    whole = np.stack([reading.whole for reading in readings.values()])
    there = np.flatnonzero(np.isfinite(whole).all(0))
    if len(there) < _FEWEST_LAYERS:
        return f"a rise and a fall need {_FEWEST_LAYERS} layers with an entropy; found {len(there)}"
    if not all(len(reading.halves) for reading in readings.values()):
        return "the prompts are too few for an interval"
    return {key: _effect(reading, there, rank, seed) for key, reading in readings.items()}


def _effect(reading: Reading, there: NDArray[np.intp], rank: int, seed: int) -> _Effect:
    whole, halves = reading.whole[there] / rank, reading.halves[:, there] / rank
    ends = (0, len(there) - 1)
    values, draws = (
        np.concatenate([x[..., 1:-1] - x[..., end : end + 1] for end in ends], -1)
        for x in (whole, halves)
    )
    low, high = joint_half_ends(values, draws, reading.prompts, seed=seed)
    smallest = [x.reshape(2, -1).min(0) for x in (values, low, high)]
    place = int(smallest[0].argmax())
    value, least, most = (float(x.max()) for x in smallest)
    return _Effect(value, least, most, int(there[1 + place]))


def _side(one: _Effect) -> int:
    """1 above 0, -1 below, 0 undecided or negligible."""
    if one.low <= 0 <= one.high or abs(one.value) < THRESHOLDS[0]:
        return 0
    return 1 if one.low > 0 else -1


def _joined(
    effects: Mapping[tuple[str, str], _Effect],
) -> tuple[float | Unavailable, Interval | Unavailable]:
    """Effect of all readings together, or that they disagree."""
    sides = {key: _side(one) for key, one in effects.items()}
    if len(set(sides.values())) > 1:
        reason = Unavailable(f"the readings disagree: {_disagreement(sides)}")
        return reason, reason
    pick = max if set(sides.values()) == {-1} else min
    value, low, high = (pick(one[part] for one in effects.values()) for part in range(3))
    method = f"joint over layers, {'largest' if pick is max else 'smallest'} of the readings"
    return value, Interval(low=low, high=high, level=0.95, method=method)


def _disagreement(sides: Mapping[tuple[str, str], int]) -> str:
    words = {1: "rises and falls", -1: "does not", 0: "is undecided"}
    parts = []
    for side, said in words.items():
        names = [READINGS[key] for key, found in sides.items() if found == side]
        if names:
            parts.append(f"{said} by {' and by '.join(names)}")
    return "; ".join(parts)


def _words(effects: Mapping[tuple[str, str], _Effect]) -> str:
    parts = [
        f"{READINGS[key]}: {one.value:+.3f} at layer {one.layer}" for key, one in effects.items()
    ]
    return "the layer highest above both ends, in nats per coordinate, is by " + "; ".join(parts)
