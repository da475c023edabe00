r"""Judge whether the mean flow explains the change of entropy.

With $d_\ell$ the change of entropy in block $\ell$ and $f_\ell$ what its mean flow adds to it,

$$
e = 1-\frac{\sum_\ell(d_\ell-f_\ell)^2}{\mathbb E_\pi\sum_\ell(d_\ell-f_{\pi\ell})^2},
$$

$\pi$ a shuffle of the layers: 1 where the mean flow gives every change, 0 where it does no better
than that of another block. The mean over all shuffles is
$\sum d^2+\sum f^2-2L\,\bar d\,\bar f$. There is one $e$ for all tokens and one for one occurrence
of each; the smaller decides. L2 abstains where the rest, which neither the mean flow nor the
Gaussian noise explains, is larger than the interval of the change (both as root mean squares over
the blocks). It is uninformative where a network with random weights passes, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowscope.evidence import half_ends, judged_effect, not_measured
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.latent.rate import MEAN_FLOW
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["THRESHOLDS", "judge_rates", "mean_flow_explains", "skill"]

THRESHOLDS = (0.1, 0.3, 0.6)
"""Skill over shuffled layers from which L2 is weak, clear and strong."""

FEWEST_BLOCKS = 3
SAMPLES = {"all": "all tokens", "types": "one occurrence each"}

Values = NDArray[np.float64]
Arrays = Mapping[str, Values]


class _Reading(NamedTuple):
    """Skill of one sample, and sizes of the rest and of the interval of the change."""

    value: float
    low: float
    high: float
    rest: float
    reach: float
    prompts: int


def mean_flow_explains(records: Records) -> list[Verdict]:
    """Judge L2 from the arrays ``rate_halves``."""
    arrays = records.arrays("rate_halves")
    return [judge_rates(arrays, seed=int(records.settings["seed"]))]


def judge_rates(arrays: Arrays, *, seed: int = 0) -> Verdict:
    """Verdict on the terms of a model and of networks with random weights.

    Parameters
    ----------
    arrays
        ``SUBJECT/SAMPLE/TERM`` ``[1 + draws, blocks]`` and ``SUBJECT/SAMPLE/prompts``; the subject
        ``model`` is judged.
    seed
        Of the run.
    """
    readings = _readings(arrays, "model")
    if not readings:
        least = f"a skill over shuffled layers needs {FEWEST_BLOCKS} blocks with a rate"
        return not_measured(MEAN_FLOW, least)
    subjects = dict.fromkeys(name.partition("/")[0] for name in arrays)
    passing = [
        name for name in subjects
        if name != "model" and (twin := _readings(arrays, name))
        and all(r.low > 0 and r.value >= THRESHOLDS[0] and r.rest <= r.reach for r in twin.values())
    ]  # fmt: skip
    smallest = min(readings.values(), key=lambda one: one.value)
    unexplained = [name for name, one in readings.items() if one.rest > one.reach]
    effect: float | Unavailable = smallest.value
    interval: Interval | Unavailable = Interval(
        low=min(one.low for one in readings.values()),
        high=min(one.high for one in readings.values()),
        level=0.95,
        method="halves of the prompts, smaller of the samples",
    )
    if unexplained:
        one = readings[unexplained[0]]
        effect = interval = Unavailable(
            f"for {SAMPLES[unexplained[0]]} the mean flow and Gaussian noise leave a rest of "
            f"{one.rest:.3g} nats a block, more than the interval of the change (±{one.reach:.3g})"
        )
    words = "; ".join(f"{SAMPLES[name]}: {one.value:+.2f}" for name, one in readings.items())
    prompts = min(one.prompts for one in readings.values())
    return judged_effect(
        claim=MEAN_FLOW,
        statistic=pure_number(
            "skill", smallest.value, n=prompts, estimator="halves of the prompts", seed=seed
        ),
        null=Unavailable("0 by definition: the mean flow of a shuffled layer"),
        effect=effect,
        interval=interval,
        thresholds=THRESHOLDS,
        because="the mean flow of a block gives its change of entropy better than that of a "
        f"shuffled one by a share of the squared error of {words}",
        units=prompts,
        guard=f"the mean flow explains the change of {passing[0]}, too" if passing else "",
    )


def skill(difference: Values, flow: Values) -> Values:
    """Share of the squared error of shuffled layers that the right layers save."""
    blocks = difference.shape[-1]
    missed = np.square(difference - flow).sum(-1)
    sizes = np.square(difference).sum(-1) + np.square(flow).sum(-1)
    shuffled = sizes - 2 * blocks * difference.mean(-1) * flow.mean(-1)
    share: Values = 1 - missed / np.maximum(shuffled, np.finfo(float).tiny)
    return share


def _readings(arrays: Arrays, subject: str) -> dict[str, _Reading]:
    found = {}
    for sample in SAMPLES:
        key = f"{subject}/{sample}/"
        if f"{key}flow" not in arrays:
            continue
        terms = np.stack([arrays[f"{key}{term}"] for term in ("difference", "flow", "rest")])
        there = np.isfinite(terms).all((0, 1))
        if there.sum() < FEWEST_BLOCKS:
            continue
        difference, flow, rest = terms[..., there]
        prompts = int(arrays[f"{key}prompts"][0])
        skills = skill(difference, flow)
        low, high = half_ends(skills[:1], skills[1:, None], prompts)
        ends = half_ends(difference[0], difference[1:], prompts)
        found[sample] = _Reading(
            float(skills[0]), float(low[0]), float(high[0]),
            _size(rest[0]), _size(0.5 * (ends.high - ends.low)), prompts,
        )  # fmt: skip
    return found


def _size(values: Values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
