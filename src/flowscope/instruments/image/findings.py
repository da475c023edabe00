"""What a run about an image model says in plain sentences: steps, samplers, when it decides."""

import math
from typing import Any

from flowscope.instruments.image.config import SMALL_RUN
from flowscope.lab.claim import Missing
from flowscope.lab.finding import Finding, collected, complete_rows
from flowscope.lab.view import Records
from flowscope.report.numerals import bounds, count, numeral, percent

__all__ = ["findings"]

_DECIDED = 0.9  # share of images that come back as the same class
_LEVEL = 0.05
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
    """Whether the histograms of ODE and SDE differ, and by how much at the last step."""
    names = ("step", "tv", "tv_low", "tv_high", "tv_null", "tv_null_high")
    rows = complete_rows(records, "parity", names, ("channel",))
    rows = [row for row in rows if str(row["channel"]) == "all"]
    if not rows:
        raise Missing("the distances over all channels have no number")
    row = max(rows, key=lambda row: row["step"])
    overall = float(row.get("tv_p_overall", math.nan))
    judged = math.isfinite(overall)
    differ = overall < _LEVEL if judged else row["tv"] > row["tv_null_high"]
    tested = f" (p = {numeral(overall, 2)} over all steps)" if judged else ""
    return Finding(
        text=f"After {row['step']:g} steps the histograms of ODE and SDE are {numeral(row['tv'])} "
        f"{bounds(row['tv_low'], row['tv_high'])} apart, those of two runs of the SDE "
        f"{numeral(row['tv_null'])} (in 95 % of cases at most {numeral(row['tv_null_high'])}): the "
        f"samplers {'differ' if differ else 'cannot be told apart'}{tested}.",
        value=float(row["tv"]),
        interval=(float(row["tv_low"]), float(row["tv_high"])),
        table="parity",
        figure="image_parity",
        next="Do not exchange the samplers at this number of steps without a look at the images."
        if differ
        else "Use the ODE where you need a repeatable path from noise to image.",
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
    """At how many times the learned score rotates, and how much at most."""
    rows = complete_rows(records, "rotation", ("normalised", "low", "high"), ("log_snr",))
    row = max(rows, key=lambda row: row["normalised"])
    low, high = float(row["low"]), float(row["high"])
    turning = sum(row["low"] > 0 for row in rows)
    return Finding(
        text=f"Rotation of the learned score is above 0 with its whole interval at {turning} of "
        f"{count(len(rows), 'time')}; at most {numeral(row['normalised'])} {bounds(low, high)} of "
        f"its energy rotates, at log snr {numeral(row['log_snr'], 2)}.",
        value=float(row["normalised"]),
        interval=(low, high),
        table="rotation",
        figure="image_rotation",
        next="Expect ODE and SDE to differ where it rotates: a rotating score belongs to no "
        "distribution."
        if turning
        else "Read the score as a gradient in the coordinates that were measured.",
    )


def _amount(records: Records) -> Finding | None:
    """On how many images all of this rests."""
    measured = records.settings.get("measured", {})
    images = measured.get("images")
    if not images or measured.get("space") == "closed form":
        return None
    records.table("parity")
    return Finding(
        text=f"All of this rests on {count(images, 'image')}; the sweep over steps on "
        f"{records.settings.get('family_images', images)}.",
        value=float(images),
        table="parity",
        next="Run again with --images 1000 --set family_images=256, which narrows the intervals."
        if images < SMALL_RUN
        else "Report these numbers with their intervals.",
    )
