"""Captions of the page about coupled replicas: what is seen, its null, its contrary."""

import math

import pandas as pd

from flowscope.instruments.sync.figures.depth_figures import beyond_null, settled_modes
from flowscope.instruments.sync.figures.series import rows_of, series_of
from flowscope.report.captions import bootstrapped, counted
from flowscope.report.figure_html import Caption
from flowscope.report.numerals import count, numeral, percent
from flowscope.report.rows import known
from flowscope.report.source import Source, column
from flowscope.report.strips import Strip

__all__ = [
    "agreement_caption",
    "energy_caption",
    "gap_caption",
    "mode_caption",
    "propagation_caption",
    "scale_caption",
    "strip_caption",
]


def agreement_caption(source: Source) -> Caption:
    """Caption of the agreement of the features."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="Similarity of the two finished images (cosine between their features, median over "
        "pairs), by the step at which the coupling ended; at 1 the encoder sees the same image. "
        "Strip below: midpoint τ_spec of the fitted sigmoid with its interval, the step at which "
        "the content of both images is decided.",
        null="A flat curve: its last quarter does not differ from its first beyond noise. Such a "
        "curve has “no transition” and no midpoint. The control (dashed) was never coupled; its "
        "replicas share their noise up to that step, so it shows the effect of shared noise alone.",
        against="Midpoints that do not move with g beyond their intervals: then the coupling does "
        "not affect the time of the decision.",
        basis=f"{counted(frame, 'pairs')}; {bootstrapped(source, 'R1', 'pairs')}; sigmoids by "
        "least squares on the median curve.",
    )


def scale_caption(source: Source) -> Caption:
    """Caption of the agreement at two scales."""
    frame = source.tables.get("agreement", pd.DataFrame())
    return Caption(
        seen="The same for two scales of the image: coarse is what remains after strong "
        "averaging, fine is the rest. 1: A and B agree at this scale; 0: they differ as much as "
        "two unrelated images. Strip below each panel: midpoints with intervals.",
        null="Both scales are decided at the same step: gap 0.",
        against="An interval of the gap (τ fine − τ coarse) that contains 0, or lies below 0.",
        basis=f"medians over pairs; {counted(frame, 'pairs')}; "
        f"{bootstrapped(source, 'R1', 'pairs')}, the gap within each resample.",
    )


def gap_caption(source: Source) -> Caption:
    """Caption of the internal gap by depth."""
    frame = source.tables["internal_gap"]
    bands = sorted(set(known(column(frame, "band"))))
    size = f"; bands of {numeral(bands[0], 6)} modes" if len(bands) == 1 else ""
    return Caption(
        seen="Above 0 the trailing modes have retained more of their energy than the leading ones. "
        "Modes come from one half of the pairs, energies from the other (split-half log ratio); "
        "both ends are measured at the same diffusion time, because time alone moves modes "
        "(erratum E99). Layer 0 is the latents: what they show is input to the network. "
        "Faint dotted: log of G_int as published (eq 80). It compares two times, and is fitted and "
        "measured on the same pairs, so it is not 0 when nothing has changed (erratum E86); it may "
        "leave the frame.",
        null=f"Start and end of a pair exchanged at random (grey, 95\u00a0%). {_outside(source)}"
        f"{_limit(source)}",
        against="Against a gap: a line that stays in the grey. Against a location in depth: all "
        "layers leave the grey equally far.",
        basis=f"{counted(frame, 'pairs')}{size}; intervals: 95\u00a0%, jackknife over measured "
        "pairs.",
    )


def _outside(source: Source) -> str:
    parts = []
    for one in series_of(source, "internal_gap"):
        outside = beyond_null(rows_of(source.tables["internal_gap"], one))
        parts.append(f"{sum(outside)} of {len(outside)} layers at {one.label}")
    outside_null = (
        f"Outside it: {', '.join(parts)}; by chance alone it would be about {percent(0.05)}."
    )
    joint = known(column(source.tables["internal_gap"], "p_all"))
    if not joint:
        return outside_null
    least = sum(p <= 0.05 for p in joint)
    return (
        f"{outside_null} Corrected for all layers of a coupling, {least} of {len(joint)} remain "
        "(p ≤ .05)."
    )


def _limit(source: Source) -> str:
    """Smallest gap that this run could have seen at each coupling, in words."""
    parts = []
    for one in series_of(source, "internal_gap"):
        rows = rows_of(source.tables["internal_gap"], one)
        least = sorted(known(column(rows, "detectable")))
        if least:
            middle = least[len(least) // 2]
            ratio = numeral(math.exp(middle))
            parts.append(f"{numeral(middle)} at {one.label} (a ratio of {ratio})")
    if not parts:
        return ""
    return (
        f" Smallest detectable gap, median over layers: {', '.join(parts)}; a smaller gap would "
        "probably not be detected."
    )


def energy_caption(source: Source) -> Caption:
    """Caption of the energies over the reverse steps."""
    layers = len(set(known(column(source.tables["energies"], "layer"))))
    return Caption(
        seen="Energy of the leading and of the trailing modes of the difference A − B, as a share "
        "of that at the start (eqs 78–79), in replicas that stay coupled to the end. Where a line "
        "falls, the two lose this part of their difference. Below: mean squared size of the "
        "difference per token, as a share of that of the hidden state.",
        null="Both bands fall equally. Basis and energies come from the same pairs here (E86), so "
        "that a distance between solid and dotted lines is no evidence; the figure above decides.",
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
        null="Pairs that look as similar on the left as on the right.",
        against="Against the curves above: pairs that still differ on the right, or a control "
        "whose pairs are as similar as the coupled ones.",
        basis="an illustration (n = 1 in each cell), not a measurement; values beyond "
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
    settled = settled_modes(frame)
    steps = zip(column(settled, "predicted"), column(settled, "measured"), strict=True)
    apart = sorted(abs(a - b) for a, b in steps)
    far = f" Median distance from it: {numeral(apart[len(apart) // 2])} steps." if apart else ""
    never = sum(not math.isfinite(v) for v in column(frame, "predicted"))
    return Caption(
        seen="Each mark is a mode: the step at which its measured gain crosses 1, against the "
        "midpoint of the fall of its energy. On the dotted line the two agree." + far,
        null="No relation: a cloud without slope.",
        against="Against the account of 004: such a cloud, or one that is off the line.",
        basis=f"{len(settled)} of {count(len(frame), 'mode')} drawn; {len(frame) - len(settled)} "
        f"have no such pair of steps ({never} of them: the gain never crosses 1). Single "
        "measurements, without interval.",
    )
