r"""Judge whether the mean flow explains the change of entropy.

With $d_\ell$ the change of entropy in block $\ell$ and $f_\ell$ what its mean flow adds to it, both
in nats per coordinate,

$$
e = \Bigl(\mathbb E_\pi\tfrac1L\sum_\ell(d_\ell-f_{\pi\ell})^2\Bigr)^{1/2}
  - \Bigl(\tfrac1L\sum_\ell(d_\ell-f_\ell)^2\Bigr)^{1/2},
$$

$\pi$ a shuffle of the layers: how much nearer to the change the mean flow of the right block is
than that of any. The mean over all shuffles is $\overline{d^2}+\overline{f^2}-2\bar d\bar f$.
There is one $e$ for all tokens and one for one occurrence of each; the smaller decides. L2 abstains
where the rest, which neither the mean flow nor Gaussian noise explains, is larger than the interval
of the change and not negligible (both as root mean squares over the blocks). It is uninformative
where a network with random weights passes, too.
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

__all__ = ["THRESHOLDS", "error_saved", "judge_rates", "mean_flow_explains"]

THRESHOLDS = (0.02, 0.1, 0.3)
"""Nats per coordinate and block from which L2 is weak, clear and strong, as for L1."""

FEWEST_BLOCKS = 3
SAMPLES = {"all": "all tokens", "types": "one occurrence each"}

Values = NDArray[np.float64]
Arrays = Mapping[str, Values]


class _Reading(NamedTuple):
    """Error saved in one sample, and sizes of the rest and of the interval of the change."""

    value: float
    low: float
    high: float
    shuffled: float
    rest: float
    reach: float
    prompts: int

    def explained(self, rank: int) -> bool:
        """Whether the rest is within the interval of the change, or negligible."""
        return self.rest <= max(self.reach, THRESHOLDS[0] * rank)


def mean_flow_explains(records: Records) -> list[Verdict]:
    """Judge L2 from the arrays ``rate_halves``."""
    arrays, settings = records.arrays("rate_halves"), records.settings
    return [judge_rates(arrays, rank=int(settings["ranks"][0]), seed=int(settings["seed"]))]


def judge_rates(arrays: Arrays, *, rank: int, seed: int = 0) -> Verdict:
    """Verdict on the terms of a model and of networks with random weights.

    Parameters
    ----------
    arrays
        ``SUBJECT/SAMPLE/TERM`` ``[1 + draws, blocks]`` and ``SUBJECT/SAMPLE/prompts``; the subject
        ``model`` is judged.
    rank
        Coordinates in which the terms were taken.
    seed
        Of the run.
    """
    readings = _readings(arrays, "model", rank)
    if not readings:
        least = f"a mean flow against shuffled layers needs {FEWEST_BLOCKS} blocks with a rate"
        return not_measured(MEAN_FLOW, least)
    subjects = dict.fromkeys(name.partition("/")[0] for name in arrays)
    passing = [
        name for name in subjects
        if name != "model" and (twin := _readings(arrays, name, rank))
        and all(r.low > 0 and r.value >= THRESHOLDS[0] and r.explained(rank) for r in twin.values())
    ]  # fmt: skip
    smallest = min(readings.values(), key=lambda one: one.value)
    unexplained = [name for name, one in readings.items() if not one.explained(rank)]
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
    words = "; ".join(
        f"{SAMPLES[name]}: {one.value:+.3f} of {one.shuffled:.3f}" for name, one in readings.items()
    )
    prompts = min(one.prompts for one in readings.values())
    return judged_effect(
        claim=MEAN_FLOW,
        statistic=pure_number(
            "error saved", smallest.value, n=prompts, estimator="halves of the prompts", seed=seed
        ),
        null=Unavailable("0 by definition: the mean flow of a shuffled layer"),
        effect=effect,
        interval=interval,
        thresholds=THRESHOLDS,
        because="the mean flow of the right block is nearer to the change of entropy than that of "
        f"a shuffled one by, in nats per coordinate of the error of shuffled ones, {words}",
        units=prompts,
        guard=f"the mean flow explains the change of {passing[0]}, too" if passing else "",
    )


def error_saved(difference: Values, flow: Values) -> tuple[Values, Values]:
    """Root mean square error of shuffled layers less that of the right ones, and the former."""
    missed = np.square(difference - flow).mean(-1)
    sizes = np.square(difference).mean(-1) + np.square(flow).mean(-1)
    shuffled = np.sqrt(np.maximum(sizes - 2 * difference.mean(-1) * flow.mean(-1), 0.0))
    return shuffled - np.sqrt(missed), shuffled


def _readings(arrays: Arrays, subject: str, rank: int) -> dict[str, _Reading]:
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
        saved, shuffled = error_saved(difference / rank, flow / rank)
        low, high = half_ends(saved[:1], saved[1:, None], prompts)
        ends = half_ends(difference[0], difference[1:], prompts)
        found[sample] = _Reading(
            float(saved[0]), float(low[0]), float(high[0]), float(shuffled[0]),
            _size(rest[0]), _size(0.5 * (ends.high - ends.low)), prompts,
        )  # fmt: skip
    return found


def _size(values: Values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
