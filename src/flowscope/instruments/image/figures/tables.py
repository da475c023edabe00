"""Tables of a run of an image model, read as its page needs them: facts, windows, who wins."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from flowscope.instruments.image.config import SMALL_RUN
from flowscope.instruments.image.figures.axes import SAMPLERS
from flowscope.records import Unavailable
from flowscope.report.appendix import silent_rows
from flowscope.report.claims import claims
from flowscope.report.escaping import html_text
from flowscope.report.numerals import bounds, numeral
from flowscope.report.rows import known, ordered, rows_where
from flowscope.report.source import Source, column, words

__all__ = [
    "FEW_IMAGES",
    "NOT_COMPARABLE",
    "Window",
    "Winner",
    "image_claims",
    "image_facts",
    "overdrawn",
    "paths_listing",
    "silent_images",
    "window_of",
    "winners",
]

FEW_IMAGES = SMALL_RUN
"""Images below which a run is called small."""

NOT_COMPARABLE = (
    "R is a share of the energy in the stated coordinates of this model. It must not be compared "
    "with that of another space, another model or other coordinates, and so not with the .031 "
    "that 000 reports on CIFAR-10 either."
)
"""The warning that goes with every R."""

_SILENT = {"weak_error_slope": ("sampler", "observable"), "rotation": ("step",)}
_LEAST, _MOST = 0.1, 0.9


def image_facts(source: Source) -> list[tuple[str, str]]:
    """Size of the measurement, as name and value."""
    measured = source.setting("measured")
    given = dict(measured) if isinstance(measured, Mapping) else {}
    facts = [
        (text, str(given[name]))
        for name, text in {"images": "images", "steps": "reverse steps", "space": "space"}.items()
        if given.get(name) not in (None, "")
    ]
    classes = given.get("classes")
    if isinstance(classes, list | tuple) and classes:
        facts += [("class" if len(classes) == 1 else "classes", ", ".join(map(str, classes)))]
    guidance = source.setting("guidance")
    if isinstance(guidance, int | float):
        facts.append(("guidance", f"{guidance:g}"))
    return facts + [
        (name, str(given[name])) for name in ("encoder", "coordinates") if given.get(name)
    ]


def image_claims(source: Source) -> str:
    """What 000 says of its image track beside what was measured, with the warning about R."""
    shown = claims(source, "track_i", "000", "diffusion models of images")
    return f'{shown}<p class="note">{html_text(NOT_COMPARABLE)}</p>'


def silent_images(source: Source) -> list[tuple[str, str]]:
    """Slopes and times without a number, by table and reason."""
    return silent_rows(source, _SILENT)


def paths_listing(source: Source) -> pd.DataFrame:
    """Lengths of the paths of both samplers, each with its interval."""
    frame = source.table("paths", "sampler", "variation")
    names = [SAMPLERS[word].label if word in SAMPLERS else word for word in words(frame, "sampler")]
    return pd.DataFrame(
        {
            "sampler": names,
            "variation": _readings(frame, "variation"),
            "tortuosity": _readings(frame, "tortuosity"),
            "quadratic variation": _readings(frame, "quadratic"),
            "expected": [numeral(v) for v in column(frame, "expected_quadratic")],
            "images": [numeral(v, 6) for v in column(frame, "images")],
        }
    )


def _readings(frame: pd.DataFrame, name: str) -> list[str]:
    parts = (column(frame, f"{name}{end}") for end in ("", "_low", "_high"))
    rows = zip(*parts, strict=True)
    return [f"{numeral(value)} {bounds(low, high)}".strip() for value, low, high in rows]


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where most of the information about the class is gained.

    Attributes
    ----------
    first, last
        Log snr at which 10 % and 90 % of it are there.
    began, ended
        The model's own time there.
    gained
        All that is gained, in nats.
    """

    first: float
    last: float
    began: float
    ended: float
    gained: float


def window_of(frame: pd.DataFrame) -> Window | Unavailable:
    """Window of the table ``information``: from 10 % to 90 % of what is gained, interpolated."""
    own = ordered(frame, "log_snr")
    names = ("log_snr", "entropy", "time", "low", "high")
    rows = zip(*(column(own, name) for name in names), strict=True)
    kept = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    if len(kept) < 2:
        return Unavailable("the entropy is known at fewer than two times")
    # An entropy below 0 is more than there is to know: an error of the two predictions.
    start, gained = kept[0][1], kept[0][1] - max(0.0, kept[-1][1])
    least, most = kept[0][3], kept[-1][4]
    if not gained > 0 or least <= most:
        return Unavailable("the entropy does not fall by more than its interval")
    shares = [(start - entropy) / gained for _, entropy, *_ in kept]
    ends = [_crossing(kept, shares, share) for share in (_LEAST, _MOST)]
    (first, began), (last, ended) = ends
    return Window(first=first, last=last, began=began, ended=ended, gained=gained)


def overdrawn(frame: pd.DataFrame) -> float | None:
    """Log snr from which on the entropy lies below 0, its interval too; None if it does not."""
    own = ordered(frame, "log_snr")
    below = [high < 0 for high in column(own, "high")]
    at = column(own, "log_snr")
    return at[below.index(True)] if any(below) else None


def _crossing(
    rows: list[tuple[float, ...]], shares: list[float], share: float
) -> tuple[float, float]:
    """Log snr and time at which this share is first reached."""
    for (a, b), (low, high) in zip(itertools.pairwise(rows), itertools.pairwise(shares),
                                   strict=True):  # fmt: skip
        if high >= share:
            part = min(max((share - low) / (high - low), 0.0), 1.0) if high > low else 0.0
            return a[0] + part * (b[0] - a[0]), a[2] + part * (b[2] - a[2])
    return rows[-1][0], rows[-1][2]


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The best λ at one number of steps, and the ones its interval does not separate it from."""

    lam: float
    value: float
    low: float
    high: float
    beside: tuple[float, ...]


def winners(frame: pd.DataFrame, name: str, *, largest: bool) -> dict[float, Winner]:
    """Best λ of the column by number of steps; steps where no value is known are left out."""
    found = {}
    for steps in sorted(set(known(column(frame, "steps")))):
        own = rows_where(frame, "steps", steps)
        parts = (column(own, part) for part in ("lam", name, f"{name}_low", f"{name}_high"))
        rows = [row for row in zip(*parts, strict=True) if math.isfinite(row[0] + row[1])]
        if not rows:
            continue
        sign = 1 if largest else -1
        lam, value, low, high = max(rows, key=lambda row: sign * row[1])
        found[steps] = Winner(
            lam=lam,
            value=value,
            low=low,
            high=high,
            # Not known to be apart unless both intervals are known and do not meet.
            beside=tuple(
                sorted(
                    row[0] for row in rows if row[0] != lam and not (row[3] < low or row[2] > high)
                )
            ),
        )
    return found
