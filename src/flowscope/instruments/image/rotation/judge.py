r"""Judge whether the learned score is a gradient.

In each window of times, $R_{\rm norm}$ is the share of rotation in the energy of the score beyond
its constant and isotropic part, beside nine gradient fields on the same states. The effect is the
largest $R_{\rm norm}$ less its controls over the windows. One p, by the maximum over windows that
share their signs, tests that it is at most the controls, or .01 where that is more. The claim fails
if p ≤ .05 and the effect is .01 or more; it holds if all joint highs lie below .05.

Windows with a log snr below −3 do not count, nor such whose score is not that of their states: the
gradient part of its error, by Stein's identity, may be half of its energy (random networks: about
one). Where half of the windows do not count, or were not read, or a planted rotation would not have
been seen, the claim could not have failed. With guidance this is not claimed: a guided field is not
the score of any distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import MINIMUM_UNITS, simultaneous
from flowscope.evidence.decisions import strength_of
from flowscope.evidence.verdicts import Claimed, no_verdict, not_measured, pure_number
from flowscope.instruments.image.config import GUIDED
from flowscope.instruments.image.rotation import GRADIENT, LEAST_LOG_SNR
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import (
    Decision,
    Interval,
    Measurement,
    Outcome,
    Strength,
    Unavailable,
    Verdict,
)
from flowscope.records.verdict_text import UNINFORMATIVE

__all__ = ["LEVEL", "THRESHOLDS", "gradient", "judge_gradient"]

LEVEL = 0.05
"""Largest p with which rotation is said to be there."""

THRESHOLDS = (0.01, 0.05, 0.2)
"""R_norm above its controls from which rotation is weak, clear and strong."""

_LIMIT = 0.05  # rotation below this is called none
_WRONG = 0.5  # gradient part of the score's error
_LEAST_BEYOND = 0.01  # share of the energy that is neither constant nor isotropic
_LEAST_REPRESENTED = 0.05  # share of that which the fitted fields represent
_POWERED = 0.84  # standard errors beyond the critical value at which 80 % are found


def gradient(records: Records) -> list[Verdict]:
    """Whether the learned score is a gradient."""
    settings = records.settings
    if settings["guidance"] != 1:
        raise Abstention(GUIDED)
    table = records.table("rotation", "status", "because", "beyond", "log_snr", "step")
    # Runs of earlier versions have no arrays; a run without a reading has none either.
    arrays = records.arrays("rotation") if (table["status"] == "ok").any() else {}
    degree, seed = settings["rotation_degree"], settings["seed"]
    return [judge_gradient(table, arrays, claim=GRADIENT, degree=degree, seed=seed)]


def judge_gradient(
    table: pd.DataFrame,
    arrays: Mapping[str, NDArray[Any]],
    *,
    claim: Claimed,
    degree: int,
    seed: int,
) -> Verdict:
    """Judge by the readings of the windows whether the learned score is a gradient.

    Parameters
    ----------
    table, arrays
        The table and the arrays ``rotation``.
    claim
        What is judged.
    degree
        Degree of the requested fields. Where there are images for lower degrees only, the claim
        abstains instead of holding.
    seed
        Of the resamples.
    """
    read = table[table["status"] == "ok"] if len(table) else table
    if read.empty or not arrays:
        reasons = sorted({str(r) for r in table.get("because", []) if r})
        return not_measured(claim, (reasons or ["the measurement is switched off"])[0])
    images = int(read["images"].max())
    if images < MINIMUM_UNITS:
        return not_measured(claim, f"{images} images are too few: {MINIMUM_UNITS} are needed")
    late = table[table["log_snr"] >= LEAST_LOG_SNR]
    if late.empty:
        return not_measured(
            claim,
            f"no window of steps has a log snr of {LEAST_LOG_SNR:g} or more (the most is "
            f"{table['log_snr'].max():.2g}): the score is nearly −x there, for any model",
        )
    known = late[late["status"] == "ok"]
    if known.empty:
        reason = str(late["because"].iloc[0]).removesuffix(".")
        return not_measured(
            claim,
            f"no window with a log snr of {LEAST_LOG_SNR:g} or more could be read: {reason}",
        )
    # A window whose error has no interval is not told to be sound.
    sound = known[
        (known["gradient_error_high"] <= _WRONG)
        & (known["beyond"] >= _LEAST_BEYOND)
        & (known["represented"] >= _LEAST_REPRESENTED)
    ]
    guard = _unsound(late, known, sound)
    if sound.empty:
        return _nothing_sound(claim, guard)
    windows = _windows(arrays, sound["step"].tolist(), seed)
    return _verdict(windows, sound, guard or _blind(sound), claim, degree=degree, seed=seed)


def _nothing_sound(claim: Claimed, guard: str) -> Verdict:
    """Verdict where no window has a score that could be judged."""
    nothing = Unavailable("no window could be judged")
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=Measurement.abstained("R_norm of the learned score", guard),
        null=nothing,
        effect=nothing,
        interval=nothing,
        decision="abstains",
        because=f"{UNINFORMATIVE}{guard}",
        outcome="uninformative",
    )


class _Windows(NamedTuple):
    """Effects of all windows together."""

    effects: NDArray[np.float64]
    interval: Interval | Unavailable
    p: float
    detectable: float


def _windows(arrays: Mapping[str, NDArray[Any]], steps: Sequence[int], seed: int) -> _Windows:
    """Effects, joint interval and p of the windows at these steps, from the stored readings."""
    places = {int(step): k for k, step in enumerate(arrays["step"])}
    rows = [places[int(step)] for step in steps]
    controls = np.asarray(arrays["controls"], np.float64)[rows].mean(1)
    margins = np.asarray(arrays["margin"], np.float64)[rows]
    shares = np.asarray(arrays["normalised"], np.float64)[rows, 0]
    pseudo = np.asarray(arrays["normalised_blocks"], np.float64)[rows].T
    joint = simultaneous(pseudo - controls, seed=seed).joint
    interval: Interval | Unavailable = joint
    if not isinstance(joint, Unavailable):
        low, high = (float(np.nanmax(end)) for end in (joint.low, joint.high))
        interval = (
            Unavailable("no window has an interval")
            if np.isnan(low)
            else Interval(low=low, high=high, level=joint.level, method=joint.method)
        )
    null = np.asarray(arrays["null"], np.float64)[rows].T
    spread = np.maximum(null.std(0, ddof=1), 1e-12)
    largest = (null / spread).max(1)
    above = ((shares - margins) / spread).max()
    return _Windows(
        effects=shares - controls,
        interval=interval,
        p=float((1 + (largest >= above).sum()) / (1 + len(largest))),
        detectable=float(
            (margins - controls + (np.quantile(largest, 1 - LEVEL) + _POWERED) * spread).max()
        ),
    )


def _unsound(late: pd.DataFrame, known: pd.DataFrame, sound: pd.DataFrame) -> str:
    """Why too few late windows have a score that could be judged; empty if enough have.

    ``known`` are the late windows that were read, ``sound`` those of them that can be judged.
    """
    if 2 * len(sound) > len(late):
        return ""
    unread = late[late["status"] != "ok"]
    wrong = known["gradient_error_high"] > _WRONG
    unknown = known["gradient_error_high"].isna()
    flat = known["beyond"] < _LEAST_BEYOND
    weak = (known["represented"] < _LEAST_REPRESENTED) & ~flat
    why = str(unread["because"].iloc[0]).removesuffix(".") if len(unread) else ""
    reasons = [
        (len(unread), f"nothing could be read ({why})"),
        (
            int(flat.sum()),
            f"less than {_LEAST_BEYOND:.0%} of the energy of the score is beyond a constant and a "
            "multiple of the state: nothing is left that could rotate",
        ),
        (
            int(unknown.sum()),
            "there are too few images to tell whether the score is that of its states",
        ),
        (
            int(wrong.sum()),
            "the score may not be that of the states it was read at: the gradient part of its "
            f"error is up to {known['gradient_error_high'].max():.2g} of its energy (limit "
            f"{_WRONG:g}), as for random weights or too few images",
        ),
        (
            int(weak.sum()),
            f"the fitted fields represent less than {_LEAST_REPRESENTED:.0%} of the score: too "
            "little to judge",
        ),
    ]
    count, reason = max(reasons, key=lambda pair: pair[0])
    return f"in {count} of {len(late)} windows {reason}"


def _blind(used: pd.DataFrame) -> str:
    """Why a planted rotation would not have been seen; empty if it would."""
    seen = (used["planted_control"] - used["gradient_control"]).mean()
    planted = used["planted_share"].mean()
    if seen > planted / 2:
        return ""
    return f"a planted share of {planted:.2f} is read as {seen:.3f}: there are too few images"


def _verdict(
    windows: _Windows, used: pd.DataFrame, guard: str, claim: Claimed, *, degree: int, seed: int
) -> Verdict:
    most = int(np.argmax(windows.effects))
    effect, row = float(windows.effects[most]), used.iloc[most]
    images = int(row["images"])
    outcome, strength, reason = _outcome(windows, effect, int(used["degree"].min()), degree, images)
    because = _in_words(windows, effect, row, used)
    if guard:
        outcome, strength, reason = "uninformative", "", ""
        because = f"{UNINFORMATIVE}{guard}; {because}"
    if reason:
        because = f"{because}; {no_verdict(reason)}"
    decision: Decision = "abstains" if outcome == "uninformative" else outcome
    how = f"largest of {len(used)} windows, cross-fitted between halves of the images"
    made = {"n": images, "estimator": how, "seed": seed}
    return Verdict(
        name=claim.name,
        claim=claim.says,
        statistic=pure_number("R_norm of the learned score", float(row["normalised"]), **made),  # type: ignore[arg-type]
        null=pure_number("R_norm of nine gradients", float(row["gradient_control"]), **made),  # type: ignore[arg-type]
        effect=effect,
        interval=windows.interval,
        decision=decision,
        because=because,
        outcome=outcome,
        strength=strength,
        p=windows.p,
    )


def _outcome(
    windows: _Windows, effect: float, lowest: int, degree: int, images: int
) -> tuple[Outcome, Strength, str]:
    """Outcome, strength, and why it abstains."""
    if windows.p <= LEVEL and effect >= THRESHOLDS[0]:
        return "fails", strength_of(effect, THRESHOLDS), ""
    if isinstance(windows.interval, Unavailable):
        return "abstains", "", windows.interval.reason
    high = float(windows.interval.high)
    if high < _LIMIT and lowest < degree:
        reason = f"{images} images are too few for degree {degree}: finer rotation is not seen"
        return "abstains", "", reason
    if high < _LIMIT:
        return "holds", "", ""
    reason = (
        f"a share of {_LIMIT:g} cannot be excluded. This run could have seen a share of "
        f"{windows.detectable:.2g} above that of gradients; more images narrow it"
    )
    return "abstains", "", reason


def _in_words(windows: _Windows, effect: float, row: pd.Series, used: pd.DataFrame) -> str:
    bounds = (
        ""
        if isinstance(windows.interval, Unavailable)
        else f" [{float(windows.interval.low):+.3f}, {float(windows.interval.high):+.3f}]"
    )
    found = int((used.get("p_adjusted", pd.Series(dtype=float)) <= LEVEL).sum())
    return (
        f"rotation is largest after step {int(row['step'])} (log snr {row['log_snr']:.2g}): "
        f"{row['normalised']:.3f} of the energy of the score beyond its isotropic part (R_norm), "
        f"where gradients on the same states read {row['gradient_control'] + 0.0:.3f}, a "
        f"difference of {effect:+.3f}{bounds}, p {windows.p:.2g} by the largest of {len(used)} "
        f"windows; {found} of them rotate by themselves (5 % level, adjusted); "
        f"{int(row['rank'])} coordinates, fields of degree {int(used['degree'].min())}"
    )
