"""Captions of the page about coupled replicas: what is seen, its null, its contrary."""

import math
from collections.abc import Iterable

import pandas as pd

from flowscope.records import Interval
from flowscope.report.figure_html import Caption
from flowscope.report.numerals import count, numeral, percent
from flowscope.report.replica_depth_figures import beyond_null, settled_modes
from flowscope.report.replica_series import rows_of, series_of
from flowscope.report.replica_strip import Strip
from flowscope.report.source import Source, column

__all__ = [
    "agreement_caption",
    "bootstrapped",
    "counted",
    "energy_caption",
    "gap_caption",
    "mode_caption",
    "propagation_caption",
    "scale_caption",
    "strip_caption",
]


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def counted(frame: pd.DataFrame, what: str = "pairs", name: str = "n") -> str:
    """How many pairs, or what else a column counts, stand behind the rows, in words."""
    numbers = sorted(set(_finite(column(frame, name))))
    if not numbers:
        return f"the number of {what} was not recorded"
    most = f" to {numeral(numbers[-1], 6)}" if len(numbers) > 1 else ""
    return f"n = {numeral(numbers[0], 6)}{most} {what}"


def bootstrapped(source: Source, verdict: str = "R1", what: str = "pairs") -> str:
    """How the intervals over pairs, or over what else, were made, in words."""
    own = (one.statistic.interval for one in source.verdicts if one.name == verdict)
    made = next((interval for interval in own if isinstance(interval, Interval)), None)
    level = f"{100 * made.level:g}" if made else "95"
    resamples = source.setting("resamples")
    many = f", {resamples} resamples" if isinstance(resamples, int) else ""
    return f"intervals: {level}\u00a0%, bootstrap over {what}{many}"


def agreement_caption(source: Source) -> Caption:
    """Caption of the agreement of the features."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="How alike the two finished images are (cosine between their features, median over "
        "pairs), by the step at which the two were let go; 1 is the same image to the encoder. "
        "Strip below: midpoint τ_spec of the fitted sigmoid with its interval, the step at which "
        "it is decided what the two will be.",
        null="A flat curve: its last quarter does not differ from its first beyond noise. Such a "
        "curve has “no transition” and no midpoint. The control (dashed) was never coupled; its "
        "replicas share their noise up to that step, so it shows what shared noise does alone.",
        against="Midpoints that do not move with g beyond their intervals: then the coupling does "
        "not decide when.",
        basis=f"{counted(frame)}; {bootstrapped(source)}; sigmoids by least squares on the median "
        "curve.",
    )


def scale_caption(source: Source) -> Caption:
    """Caption of the agreement at two scales."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="The same for two scales of the image: coarse is what remains after strong "
        "averaging, fine is the rest. 1: A and B agree at this scale; 0: they differ as much as "
        "two unrelated images. Strip below each panel: midpoints with intervals.",
        null="Both scales are decided at the same step: gap 0.",
        against="An interval of the gap (τ fine − τ coarse) that holds 0, or lies below it.",
        basis=f"medians over pairs; {counted(frame)}; {bootstrapped(source)}, the gap within each "
        "resample.",
    )


def gap_caption(source: Source) -> Caption:
    """Caption of the internal gap by depth."""
    frame = source.tables["internal_gap"]
    bands = sorted(set(_finite(column(frame, "band"))))
    size = f"; bands of {numeral(bands[0], 6)} modes" if len(bands) == 1 else ""
    return Caption(
        seen="Above 0 the trailing modes have kept more of their energy than the leading ones. "
        "Modes come from one half of the pairs, energies from the other (split-half log ratio); "
        "both ends are read at one diffusion time: the time alone moves modes (erratum E99). Layer "
        "0 is the latents themselves: what they show was given to the network, not made by it. "
        "Faint dotted: log of G_int as published (eq 80). It compares two times, and is fitted and "
        "measured on the same pairs, so it is not 0 when nothing has changed (erratum E86); it may "
        "leave the frame.",
        null=f"Start and end of a pair exchanged at random (grey, 95\u00a0%). {_outside(source)}"
        f"{_limit(source)}",
        against="Against a gap: a line that stays in the grey. Against a place in depth: all "
        "layers leaving it alike.",
        basis=f"{counted(frame)}{size}; intervals: 95\u00a0%, jackknife over measured pairs.",
    )


def _outside(source: Source) -> str:
    parts = []
    for one in series_of(source, "internal_gap"):
        outside = beyond_null(rows_of(source.tables["internal_gap"], one))
        parts.append(f"{sum(outside)} of {len(outside)} layers at {one.label}")
    told = f"Outside it: {', '.join(parts)}; by chance alone it would be about {percent(0.05)}."
    joint = _finite(column(source.tables["internal_gap"], "p_all"))
    if not joint:
        return told
    least = sum(p <= 0.05 for p in joint)
    return (
        f"{told} Corrected for all layers of a coupling, {least} of {len(joint)} remain (p ≤ .05)."
    )


def _limit(source: Source) -> str:
    """Smallest gap that this run could have seen at each coupling, in words."""
    parts = []
    for one in series_of(source, "internal_gap"):
        rows = rows_of(source.tables["internal_gap"], one)
        least = sorted(_finite(column(rows, "detectable")))
        if least:
            middle = least[len(least) // 2]
            ratio = numeral(math.exp(middle))
            parts.append(f"{numeral(middle)} at {one.label} (a ratio of {ratio})")
    if not parts:
        return ""
    return (
        f" Smallest detectable gap, median over layers: {', '.join(parts)}; a smaller one would "
        "most likely go unseen."
    )


def energy_caption(source: Source) -> Caption:
    """Caption of the energies over the reverse steps."""
    layers = len(set(_finite(column(source.tables["energies"], "layer"))))
    return Caption(
        seen="Energy of the leading and of the trailing modes of the difference A − B, as a share "
        "of that at the start (eqs 78–79), in replicas that stay coupled to the end. A line that "
        "falls: the two lose this part of their difference. Below: mean squared size of the "
        "difference per token, as a share of that of the hidden state.",
        null="Both bands fall alike. Basis and energies come from the same pairs here (E86), so a "
        "distance between solid and dotted is no evidence by itself; the figure above decides.",
        against="Against the account of 004: lines that do not fall faster at larger g.",
        basis=f"{count(layers, 'layer')} to choose from; means over pairs, without interval.",
    )


def strip_caption(strip: Strip) -> Caption:
    """Caption of the strip of samples."""
    shrunk = (
        f" Images are averaged over {strip.shrunk} × {strip.shrunk} pixels to keep the page small."
        if strip.shrunk > 1
        else ""
    )
    return Caption(
        seen="One pair in each cell; A above B.",
        null="Pairs that look as alike on the left as on the right.",
        against="Against the curves above: pairs that still differ on the right, or a control as "
        "alike as the coupled rows.",
        basis="an illustration (n = 1 in each cell) from which no number is read; values beyond "
        f"[−1, 1] are cut.{shrunk}",
    )


def propagation_caption(source: Source) -> Caption:
    """Caption of the gains of the blocks."""
    return Caption(
        seen="Factor by which each block multiplies a small difference between A and B along a "
        "mode, measured on the running model: above the dotted line at 1 it grows, below it "
        "shrinks. Below, its parts: gain = 1 + (direct − 1) + routing + query + key; direct is "
        "the residual stream with its MLP.",
        null="A block that does nothing: gain 1, all parts 0.",
        against="Against erratum E81 (coupling weakens routing and key, but not query): a query "
        "part that vanishes as g grows. Against a gap made here: equal gains of both bands.",
        basis=f"{counted(source.tables['propagation'], 'modes × states')}; means over the modes of "
        "a band, without interval.",
    )


def mode_caption(source: Source) -> Caption:
    """Caption of predicted against measured commitment."""
    frame = source.tables["mode_commitment"]
    known = settled_modes(frame)
    steps = zip(column(known, "predicted"), column(known, "measured"), strict=True)
    apart = sorted(abs(a - b) for a, b in steps)
    far = f" Median distance from it: {numeral(apart[len(apart) // 2])} steps." if apart else ""
    never = sum(not math.isfinite(v) for v in column(frame, "predicted"))
    return Caption(
        seen="One mark is one mode: the step at which its measured gain crosses 1, against the "
        "midpoint of the fall of its energy. On the dotted line the two agree." + far,
        null="No relation: a cloud without slope.",
        against="Against the account of 004: the same cloud, or one beside the line.",
        basis=f"{len(known)} of {count(len(frame), 'mode')} drawn; {len(frame) - len(known)} have "
        f"no such pair of steps ({never} of them: the gain never crosses 1). Single readings, "
        "without interval.",
    )
