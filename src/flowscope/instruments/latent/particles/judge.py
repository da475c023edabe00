r"""Judge whether attention moves tokens as the particle model says.

For every block $R^2$ is the share of the squared transport write that $v\sum_jP_{ij}(x_j-x_i)$
explains, counted below 0 where v is, and $R^2_\pi$ the same with tokens dealt anew to the weights.
The effect is the mean over blocks of $R^2-R^2_\pi$, less the share from which one may say "as the
model says": L3 fails where the interval lies below it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flowscope.evidence import half_ends, judged_effect, not_measured
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.latent.particles import PARTICLES
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["LEAST_SHARE", "THRESHOLDS", "judge_particles", "particles"]

LEAST_SHARE = 0.05
"""Share of the squared write, beyond that of dealt tokens, below which the model says nothing."""

THRESHOLDS = (0.01, 0.1, 0.3)
"""Distance from that share at which L3 is weak, clear and strong."""

Values = NDArray[np.float64]


def particles(records: Records) -> list[Verdict]:
    """Judge L3 from the arrays ``particle_halves``."""
    arrays = records.arrays("particle_halves")
    return [judge_particles(arrays, seed=int(records.settings["seed"]))]


def judge_particles(arrays: Mapping[str, Values], *, seed: int = 0) -> Verdict:
    """Verdict on the fits of a model and of networks with random weights.

    Parameters
    ----------
    arrays
        ``SUBJECT/value``, ``SUBJECT/value_r2`` and ``SUBJECT/value_r2_permuted``
        ``[1 + draws, blocks]``, and ``prompts``; the subject ``model`` is judged.
    seed
        Of the run.
    """
    prompts = int(arrays["prompts"][0])
    beyond = _beyond(arrays, "model")
    if not len(beyond) or not np.isfinite(beyond[0]):
        return not_measured(
            PARTICLES, "in no block the write of attention can be told from other writes"
        )
    share, interval = _share(beyond, prompts)
    subjects = dict.fromkeys(name.partition("/")[0] for name in arrays if "/" in name)
    passing = []
    for name in subjects:
        twin = _beyond(arrays, name)
        if name == "model" or not len(twin) or not np.isfinite(twin[0]):
            continue
        ends = _share(twin, prompts)[1]
        if isinstance(ends, Interval) and ends.low > LEAST_SHARE:
            passing.append(name)
    values = arrays["model/value"][0]
    plain = float(np.nanmean(arrays["model/value_r2"][0]))
    dealt = float(np.nanmean(arrays["model/value_r2_permuted"][0]))
    shifted: Interval | Unavailable = interval
    if isinstance(interval, Interval):
        shifted = Interval(
            low=float(interval.low) - LEAST_SHARE, high=float(interval.high) - LEAST_SHARE,
            level=interval.level, method=interval.method,
        )  # fmt: skip
    facts = {"n": prompts, "estimator": "halves of the prompts", "seed": seed}
    return judged_effect(
        claim=PARTICLES,
        statistic=pure_number("share of the write", plain, **facts),  # type: ignore[arg-type]
        null=pure_number("with tokens dealt anew", dealt, **facts),  # type: ignore[arg-type]
        effect=share - LEAST_SHARE,
        interval=shifted,
        thresholds=THRESHOLDS,
        because=f"particles explain {plain:+.3f} of the squared write of attention (below 0: "
        f"tokens flee), and {dealt:+.3f} with tokens dealt anew to the weights, mean over blocks; "
        f"fitted v from {np.nanmin(values):+.3g} to {np.nanmax(values):+.3g}; the claim needs a "
        f"difference of {LEAST_SHARE:g}",
        units=prompts,
        guard=f"particles describe {passing[0]}, too" if passing else "",
    )


def _beyond(arrays: Mapping[str, Values], subject: str) -> Values:
    """Mean over blocks of R² less that of dealt tokens, whole and on halves."""
    if f"{subject}/value_r2" not in arrays:
        return np.zeros(0)
    gap = arrays[f"{subject}/value_r2"] - arrays[f"{subject}/value_r2_permuted"]
    there = np.isfinite(gap).all(0)
    return gap[:, there].mean(1) if there.any() else np.zeros(0)


def _share(beyond: Values, prompts: int) -> tuple[float, Interval | Unavailable]:
    if len(beyond) < 3:
        return float(beyond[0]), Unavailable("the prompts are too few for an interval")
    low, high = half_ends(beyond[:1], beyond[1:, None], prompts)
    return float(beyond[0]), Interval(
        low=float(low[0]), high=float(high[0]), level=0.95, method="halves of the prompts"
    )
