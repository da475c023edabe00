"""What a run about an image model says in plain sentences: steps, samplers, when it decides."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from flowscope.instruments.image import parity, rotation
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.records.verdict_text import UNINFORMATIVE
from flowscope.report.numerals import bounds, count, numeral, percent

__all__ = ["could_have_seen", "findings"]

_DECIDED = 0.9  # share of images that come back as the same class
_LEVEL = 0.05
_MOST_BUDGET = 0.1  # step errors beyond which parity is not judged
_MOST_OUTSIDE = 0.05  # share of values beyond the bins beyond which it is not
_ENOUGH = 500  # images that parity wants
_FEW_IMAGES = 64  # below, noise hides most differences of histograms
_SAMPLERS = {0.0: "the ODE", 1.0: "the SDE"}


def findings(records: Records) -> list[Finding]:
    """Findings about the samplers of an image model, from their tables."""
    return collected(records, (_fewest_steps, _parity, _decided, _rotation, _amount))


def _fewest_steps(records: Records) -> Finding:
    """Fewest steps of each sampler whose histograms are within noise of the finest SDE."""
    names = ("lam", "steps", "tv", "tv_low", "tv_high", "tv_null_high")
    rows = complete_rows(records, "family", names)
    rows = sorted((row for row in rows if row["lam"] in _SAMPLERS), key=lambda row: row["steps"])
    if not rows:
        raise Missing("neither the ODE nor the SDE was run")
    parts, reached = [], []
    for lam, name in _SAMPLERS.items():
        tried = [row for row in rows if row["lam"] == lam]
        near = _last_run([row["tv"] <= row["tv_null_high"] for row in tried], tried)
        reached += near[:1]
        parts += [f"{name} {_needs(near[0] if near else tried[-1], bool(near))}"] if tried else []
    best = min(reached, key=lambda row: row["steps"], default=None)
    shown = rows[-1] if best is None else best
    images = int(shown.get("images", 0))
    few = 0 < images < _FEW_IMAGES
    return Finding(
        text="Until its histograms are those of the finest SDE within noise, "
        f"{f'as far as {images} images can tell, ' * few}{'; '.join(parts)}.",
        value=float(shown["tv"]),
        interval=(float(shown["tv_low"]), float(shown["tv_high"])),
        table="family",
        figure="image_family",
        next="Read more images before you take fewer steps (--set family_images=256): the noise of "
        "few images hides differences."
        if few
        else f"Try more than {rows[-1]['steps']:g} steps, for example with --doubling."
        if best is None
        else f"Sample with {_SAMPLERS[best['lam']]} and {best['steps']:g} steps, and look at the "
        "images: equal histograms are not equal images.",
    )


def _last_run(flags: list[bool], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows at the end whose flags are all true."""
    start = len(flags)
    while start and flags[start - 1]:
        start -= 1
    return rows[start:]


def _needs(row: dict[str, Any], enough: bool) -> str:
    """How many steps a sampler needs, with the distance that is left."""
    said = f"needs {row['steps']:g} steps" if enough else f"needs more than {row['steps']:g} steps"
    distance = f"{numeral(row['tv'])} {bounds(row['tv_low'], row['tv_high'])}"
    return f"{said} (distance {distance}, noise up to {numeral(row['tv_null_high'])})"


def _parity(records: Records) -> Finding:
    """Whether ODE and SDE differ by more than their step errors, from when, and by how much."""
    names = ("step", "budget", "noise", "excess", "excess_low", "excess_high", "detectable")
    rows = complete_rows(records, "step_budget", names, ("outside",))
    rows = [row for row in rows if bool(row["counted"])]
    if not rows:
        raise Missing("no time is judged")
    verdict, steps = records.verdicts.get("I1"), int(records.settings.get("steps", len(rows)))
    outcome = verdict.outcome if verdict is not None else "abstains"
    low, high = (max(float(row[end]) for row in rows) for end in ("excess_low", "excess_high"))
    worst = max(rows, key=lambda row: row["excess_low" if outcome == "fails" else "excess"])
    text, action = _said_of_parity(outcome, rows, worst, high, steps)
    return Finding(
        text=text,
        value=float(worst["excess"]),
        interval=(low, high),
        table="step_budget",
        figure="image_step_budget",
        next=action,
    )


def _said_of_parity(
    outcome: str, rows: list[dict[str, Any]], worst: dict[str, Any], high: float, steps: int
) -> tuple[str, str]:
    """Text and next step of the finding about ODE and SDE."""
    low = max(float(row["excess_low"]) for row in rows)
    size = f"{numeral(worst['excess'])} {bounds(low, high)} in total variation"
    budget, seen = (max(float(row[name]) for row in rows) for name in ("budget", "detectable"))
    solver = f"Take {2 * steps} steps or a solver of second order (DPM++)"
    if outcome == "fails":
        beyond = [int(row["step"]) for row in rows if row["excess_low"] > parity.LIMIT]
        return (
            f"ODE and SDE differ by more than their step errors after step {beyond[0]} of {steps}: "
            f"by {size}, most after step {int(worst['step'])}.",
            f"{solver}; if the difference stays, the score is at fault: do not exchange the "
            "samplers.",
        )
    if outcome == "holds":
        return (
            f"ODE and SDE differ by no more than their step errors: by {size} beyond them at most, "
            f"over {len(rows)} times.",
            "Use the ODE where you need a repeatable path from noise to image.",
        )
    lost = max(float(row["outside"]) for row in rows)
    if outcome == "uninformative" and lost > _MOST_OUTSIDE:
        return (
            f"Whether ODE and SDE differ cannot be told: {percent(lost)} of the values lie beyond "
            "the bins of the histograms.",
            "Look at the samples in the report: the sampler may have diverged. Check weights and "
            "schedule.",
        )
    if outcome == "uninformative" and budget > _MOST_BUDGET:
        return (
            f"With {steps} steps the steps alone move ODE and SDE by up to {numeral(budget)}; "
            "whether they differ beyond that cannot be told.",
            f"{solver}, and compare them again.",
        )
    return (
        f"Whether ODE and SDE differ by more than their step errors cannot be told: the excess is "
        f"{size}, and this run could have seen one of {numeral(seen, 2)}.",
        "Run again with more images, at least 500 (--images 1000).",
    )


def _decided(records: Records) -> Finding:
    """Up to which noise an image retains its class when it is noised and denoised again."""
    names = ("time", "log_snr", "same_class", "low", "high")
    rows = sorted(complete_rows(records, "uturn", names), key=lambda row: -row["log_snr"])
    lost = next((k for k, row in enumerate(rows) if row["same_class"] < _DECIDED), len(rows))
    row = rows[max(lost - 1, 0)]
    low, high = float(row["low"]), float(row["high"])
    share = f"{percent(row['same_class'])} [{percent(low)}, {percent(high)}]"
    beyond = (
        f"; from time {rows[lost]['time']:g} only {percent(rows[lost]['same_class'])} do"
        if 0 < lost < len(rows)
        else ""
    )
    return Finding(
        text=f"Of images that are noised to time {row['time']:g} (log snr "
        f"{numeral(row['log_snr'], 2)}) and denoised again, {share} show the same class{beyond}.",
        value=float(row["same_class"]),
        interval=(low, high),
        table="uturn",
        figure="image_uturn",
        next=f"Steer the class at times above {row['time']:g}, where it is still open; change "
        "details below."
        if lost
        else "Noise images less (--set uturn_times=12): the class was lost at each time.",
    )


def _rotation(records: Records) -> Finding:
    """In how many windows the learned score rotates, and how much at most."""
    names = ("normalised", "low", "high", "gradient_control")
    rows = complete_rows(records, "rotation", names, ("log_snr",))
    rows = [row for row in rows if row["log_snr"] >= rotation.LEAST_LOG_SNR]
    verdict = records.verdicts.get("I3")
    if not rows or verdict is None:
        raise Missing("no window is judged")
    if verdict.outcome == "uninformative":
        return _unread_rotation(verdict.because)
    row = max(rows, key=lambda row: row["normalised"] - row["gradient_control"])
    turning = sum(row.get("p_adjusted", math.nan) <= _LEVEL for row in rows)
    share = f"{numeral(row['normalised'])} {bounds(row['low'], row['high'])}"
    return Finding(
        text=f"The learned score rotates in {turning} of {count(len(rows), 'window')} of steps: at "
        f"most {share} of its energy beyond the isotropic part, at log snr "
        f"{numeral(row['log_snr'], 2)}, where gradients read {numeral(row['gradient_control'])}.",
        value=float(row["normalised"]),
        interval=(float(row["low"]), float(row["high"])),
        table="rotation",
        figure="image_rotation",
        next=_next_of_rotation(verdict.outcome),
    )


def _unread_rotation(because: str) -> Finding:
    reason = because.removeprefix(UNINFORMATIVE).partition("; ")[0]
    return Finding(
        text=f"Whether the learned score is a gradient cannot be told: {reason}.",
        table="rotation",
        figure="image_rotation",
        next="Check the weights and the schedule, and give at least 200 images.",
    )


def _next_of_rotation(outcome: str) -> str:
    if outcome == "fails":
        return (
            "Expect ODE and SDE to differ where it rotates: a rotating score belongs to no "
            "distribution."
        )
    if outcome == "holds":
        return "Read the score as a gradient in the coordinates that were measured."
    return "Give more images, at least 200 (--images 500), to tell it from a gradient."


def _amount(records: Records) -> Finding | None:
    """On how many images all of this rests."""
    measured = records.settings.get("measured", {})
    images = measured.get("images")
    if not images or measured.get("space") == "closed form":
        return None
    records.table("parity")
    tables = {name: records.run.read_table(name) for name in records.run.tables()}
    seen = could_have_seen(tables)
    return Finding(
        text=f"All of this rests on {count(images, 'image')}; the sweep over steps on "
        f"{records.settings.get('family_images', images)}.{f' {seen}' if seen else ''}",
        value=float(images),
        table="parity",
        next="Run again with --images 1000 --set family_images=256, which narrows the intervals."
        if images < _ENOUGH
        else "Report these numbers with their intervals.",
    )


def could_have_seen(tables: Mapping[str, pd.DataFrame]) -> str:
    """Effects that a run of this size finds in 80 % of cases at any judged time; empty without.

    Parameters
    ----------
    tables
        Tables of the run by name: ``step_budget`` and ``rotation`` are read.

    Examples
    --------
    >>> rows = pd.DataFrame({"log_snr": [-9, 1], "detectable": [0.3, 0.11], "images": 40})
    >>> could_have_seen({"step_budget": rows})
    'With 40 images this run could have seen an excess of 0.11 of ODE against SDE.'
    """
    parts, images = [], ""
    for name, least, words in (
        ("step_budget", parity.LEAST_LOG_SNR, "an excess of {:.2g} of ODE against SDE"),
        ("rotation", rotation.LEAST_LOG_SNR, "a rotation of {:.2g} of the score"),
    ):
        frame = tables.get(name, pd.DataFrame())
        if "detectable" not in frame:
            continue
        late = frame[frame["log_snr"] >= least]
        if "outside" in late and late["outside"].max() > _MOST_OUTSIDE:
            continue  # histograms are equal beyond their bins, whatever the samplers do
        numbers = _finite(late["detectable"])
        if numbers:
            parts.append(words.format(max(numbers)))
            images = images or f"With {int(frame['images'].max())} images this"
    return f"{images} run could have seen {' and '.join(parts)}." if parts else ""


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
