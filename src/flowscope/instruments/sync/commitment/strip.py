"""Strip of paired samples: rows are couplings, columns the steps at which the coupling ended.

In each cell A stands above B.
"""

import numpy as np

from flowscope.instruments.sync.series import CONTROL
from flowscope.records import Missing
from flowscope.report.figure_html import Caption, part
from flowscope.report.parts.strips import Strip, shown_images, strip_figure, strip_html
from flowscope.report.source import Source
from flowscope.report.spec import Figure

__all__ = ["paired_samples", "strip_caption", "strip_section"]


def paired_samples(source: Source) -> Strip:
    """Images of the array "strip", made small enough, or why they cannot be shown."""
    arrays = source.arrays.get("strip")
    if arrays is None:
        raise Missing("this run has no arrays “strip” (a few paired samples)")
    absent = [name for name in ("images", "g", "steps") if name not in arrays]
    if absent:
        raise Missing(f"the arrays “strip” hold no {', '.join(absent)}")
    images = np.asarray(arrays["images"], dtype=np.float32)
    if images.ndim != 6 or images.shape[2] != 2 or images.shape[3] not in (1, 3) or not images.size:
        shape = " × ".join(map(str, images.shape))
        raise Missing(
            "the images of the arrays “strip” should be rows × columns × 2 × (1 or 3) × height × "
            f"width, they are {shape}"
        )
    g, steps = (np.asarray(arrays[name], dtype=np.float64).ravel() for name in ("g", "steps"))
    controls = np.asarray(arrays.get("control", np.zeros(len(g)))).astype(bool).ravel()
    if (len(g), len(controls), len(steps)) != (images.shape[0], images.shape[0], images.shape[1]):
        raise Missing("the arrays “strip” are not all of one size")
    shown, shrunk = shown_images(images)
    rows = [CONTROL if own else f"g = {value:g}" for value, own in zip(g, controls, strict=True)]
    columns = [f"{step:g}" for step in steps]
    return Strip(
        images=shown,
        rows=rows,
        columns=columns,
        shrunk=shrunk,
        corner="coupling ended at step",
        label="paired samples",
        said=f"pairs of images, {len(rows)} couplings by {len(columns)} steps; rows: "
        f"{', '.join(rows)}; coupling ended at step {', '.join(columns)}",
    )


@part("strip")
def strip_section(source: Source) -> str:
    """Section of a few pairs of samples."""
    strip = paired_samples(source)
    return (
        "<p>Each cell shows A above B. From left to right the two were coupled for longer: look "
        "for the step from which they show the same object, then for the step from which even "
        "their details are the same. From top to bottom the coupling grows; the last row is the "
        "control, where only the noise was shared.</p>"
        f"<figure>{strip_html(strip)}{strip_caption(strip).html}</figure>"
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


FIGURES: dict[str, Figure] = {
    "sync_strip": Figure(
        title="Pairs of samples",
        draw=lambda source: strip_figure(paired_samples(source)),
        caption=lambda source: strip_caption(paired_samples(source)),
        measurements=("strip",),
    ),
}
"""Figures of this diagnostic by the name of their file."""
