"""What a run of ``decode`` says in plain sentences."""

from __future__ import annotations

from typing import Any

from flowscope.errors import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import percent

__all__ = ["findings"]

_POLICY = ("threshold", "passes", "saved", "same", "same_low", "same_high", "n", "rows")


def findings(records: Records) -> list[Finding]:
    """Findings about policies and windows, from their tables."""
    return collected(records, (_calibrated, _uncalibrated, _published, _verified, _window))


def _rows(records: Records) -> list[dict[str, Any]]:
    return complete_rows(records, "policies", _POLICY, ("policy", "kind", "certified"))


def _calibrated(records: Records) -> Finding:
    """What the best calibrated policy saves."""
    judged = records.table("trial_prompts", "policy")["policy"].iloc[0]
    rows = [
        row for row in _rows(records) if row["kind"] == "calibrated" and row["policy"] == judged
    ]
    if not rows:
        raise Missing("no policy has a calibrated threshold")
    row = rows[0]
    alpha = float(records.settings["alpha"])
    changed = 1 - row["same"], 1 - row["same_high"], 1 - row["same_low"]
    return Finding(
        text=f"The policy {row['policy']} at {row['threshold']:g} leaves out "
        f"{percent(row['saved'])} of the passes. It was calibrated to change at most "
        f"{percent(alpha)} of the answers; on {int(row['n'])} fresh prompts it changed "
        f"{percent(changed[0])} "
        f"[{percent(changed[1])}, {percent(changed[2])}].",
        value=float(row["saved"]),
        table="policies",
        figure="decode_frontier",
        next=f"Use {row['policy']} at {row['threshold']:g} in your decoder: it saves "
        f"{percent(row['saved'])} of the passes at no more than {percent(alpha)} changed answers. "
        "Calibrate again when the model, the task or the length of answers changes.",
    )


def _uncalibrated(records: Records) -> Finding | None:
    """Which policies could not be calibrated, and what it would take."""
    frame = records.table("thresholds", "policy", "threshold", "needed", "because")
    lost = frame[frame["threshold"].isna()]
    if not len(lost):
        return None
    row = lost.iloc[0]
    needed = int(row["needed"])
    asked = int(records.settings["calibration"])
    option = f" (--calibration {needed})" if needed > asked else ": give more of them"
    more = (
        f"Calibrate on at least {needed} prompts{option}, or promise a larger alpha."
        if needed
        else "Promise a larger alpha, or use another policy."
    )
    names = ", ".join(lost["policy"])
    return Finding(
        text=f"No threshold could be promised for {names}: {row['because']}.",
        table="thresholds",
        next=more,
    )


def _published(records: Records) -> Finding:
    """Which published threshold changes most answers."""
    rows = [
        row for row in _rows(records) if row["kind"] == "published" and row["certified"] == "none"
    ]
    if not rows:
        raise Missing("no published threshold was tried")
    row = min(rows, key=lambda row: row["same"])
    low, high = 1 - row["same_high"], 1 - row["same_low"]
    alpha = float(records.settings["alpha"])
    advice = (
        f"It keeps {percent(alpha)} on these prompts; nothing promises that it does on yours: "
        "calibrate it there."
        if high <= alpha
        else "Take no threshold from a paper: calibrate it on prompts like yours."
    )
    return Finding(
        text=f"With its published value {row['threshold']:g} the policy {row['policy']} changes "
        f"{percent(1 - row['same'])} [{percent(low)}, {percent(high)}] of the answers and leaves "
        f"out {percent(row['saved'])} of the passes.",
        value=1 - float(row["same"]),
        interval=(float(low), float(high)),
        table="policies",
        figure="decode_frontier",
        next=advice,
    )


def _verified(records: Records) -> Finding:
    """What draft-and-verify saves."""
    rows = [row for row in _rows(records) if row["policy"] == "draft"]
    if not rows:
        raise Missing("draft-and-verify was not tried")
    row = rows[0]
    changed = round((1 - row["same"]) * row["n"])
    return Finding(
        text=f"Draft-and-verify with {int(row['threshold'])} drafts leaves out "
        f"{percent(row['saved'])} of the rounds and changed {changed} of {int(row['n'])} answers; "
        f"it runs {row['rows']:.0f} sequences a prompt.",
        value=float(row["saved"]),
        table="policies",
        figure="decode_frontier",
        next="Use it where a batch costs little more than one sequence (a GPU that is not full), "
        "and where no answer may change.",
    )


def _window(records: Records) -> Finding:
    """How often a certified token changes later."""
    names = ("W", "coverage", "later_flips", "later_flips_low", "later_flips_high")
    rows = complete_rows(records, "window", names, ("rule",))
    rows = [row for row in rows if row["rule"] == "published"]
    if not rows:
        raise Missing("no published window")
    row = max(rows, key=lambda row: row["W"])
    low, high = float(row["later_flips_low"]), float(row["later_flips_high"])
    return Finding(
        text=f"Of the blanks that a window of {int(row['W'])} passes certifies by the published "
        f"rule ({percent(row['coverage'])} of all), {percent(row['later_flips'])} "
        f"[{percent(low)}, {percent(high)}] are filled with another token later.",
        value=float(row["later_flips"]),
        interval=(low, high),
        table="window",
        figure="decode_coverage",
        next="Do not stop on a window certificate alone: it speaks of passes that were made. Use "
        "the calibrated threshold, or draft-and-verify.",
    )
