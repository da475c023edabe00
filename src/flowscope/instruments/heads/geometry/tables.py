"""From scalars per prompt and head to the tables of the heads."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from flowscope.evidence import Counts, mean_over_prompts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.heads.geometry.production import Reference
from flowscope.instruments.heads.geometry.reading import HeadReading
from flowscope.markov import QUANTITIES, judged, steps_to_tell
from flowscope.markov.regimes import UNDECIDED
from flowscope.records import Interval, Unavailable

__all__ = ["geometry_table", "production_arrays", "reference_table", "with_weight_ratios"]


_NO_CURRENT = "a causal chain conditioned on survival moves one way only, so that it has no label"
_NO_INTERVAL = (
    "a label needs an interval, and one prompt has none. Give at least 2 prompts; 8 or more make "
    "the interval short enough to decide most heads"
)


def geometry_table(
    reading: HeadReading,
    references: Mapping[Reference, HeadReading | Unavailable],
    counts: Counts,
    *,
    chain: str,
    level: float,
) -> pd.DataFrame:
    """One row per head: every quantity with its interval, beside random weights, and its label.

    Parameters
    ----------
    reading, references
        The model, and what it is compared with: random weights (every quantity) and permuted keys
        (entropy production alone).
    counts
        How often each prompt is drawn in each resample.
    chain
        Which kernel walked.
    level
        Of the label: chance with which a reversed walk may be taken for a forward one.
    """
    arrays = reading.arrays
    prompts, layers, heads = arrays["geometry_gap"].shape
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), heads),
            "head": np.tile(np.arange(heads), layers),
            "chain": chain,
        }
    )
    for name in QUANTITIES:
        values = arrays[f"geometry_{name}"].reshape(prompts, -1)
        points, interval = _means(values, counts)
        table[name] = points
        table[f"{name}_low"], table[f"{name}_high"] = bounds_of(interval, len(points))
        table[f"{name}_random"] = _beside(references["random weights"], name, (layers, heads))
    permuted = references["keys permuted"]
    table["entropy_production_permuted"] = _beside(permuted, "entropy_production", (layers, heads))
    table["steps"] = float(arrays["geometry_tokens"].mean())
    return _labelled(table, reading.because, chain, level)


def _labelled(
    table: pd.DataFrame, because: dict[int, str], chain: str, level: float
) -> pd.DataFrame:
    """The table with the label of each head, and why it has none.

    A label is a statement about the interval of the entropy production, so a head without an
    interval (one prompt) is undecided, whatever its number is. Two prompts have an interval, and a
    wide one: the interval itself says how little they tell, so that no minimum of prompts is asked
    for here, as it is for verdicts.
    """
    table["label"], table["steps_to_tell"] = "refused", np.nan
    measured = table["entropy_production"].notna()
    bounds = table[["entropy_production_low", "entropy_production_high"]]
    bounded = measured & bounds.notna().all(axis=1)
    table.loc[measured, "label"] = UNDECIDED
    if measured.any():
        production = table.loc[measured, "entropy_production"].to_numpy()
        table.loc[measured, "steps_to_tell"] = steps_to_tell(production, level).numpy()
    if bounded.any():
        low, high = bounds[bounded].to_numpy().T
        steps = float(table["steps"].iloc[0])
        table.loc[bounded, "label"] = judged(low, high, steps=steps, level=level)
    silent = ~np.isfinite(table["displacement"].to_numpy())
    reasons = [because.get(int(layer) - 1, "") for layer in table["layer"]]
    refused = _NO_CURRENT if chain == "quasi-stationary" else ""
    unbounded = (measured & ~bounded).to_numpy()
    table["because"] = [
        (reason or "no number was measured") if mute else (_NO_INTERVAL if open_ended else refused)
        for reason, mute, open_ended in zip(reasons, silent, unbounded, strict=True)
    ]
    table["status"] = np.where(silent, "abstained", "ok")
    return table


def with_weight_ratios(
    table: pd.DataFrame, ratios: dict[int, Tensor | Unavailable]
) -> pd.DataFrame:
    """The table with $R_{qk}$ of each head's weights, or why it has none."""
    values, reasons = [], []
    for layer, head in zip(table["layer"], table["head"], strict=True):
        found = ratios.get(int(layer) - 1, Unavailable("no self-attention call was seen"))
        known = not isinstance(found, Unavailable) and int(head) < len(found)
        values.append(float(found[int(head)]) if known else np.nan)  # type: ignore[index]
        reasons.append(found.reason if isinstance(found, Unavailable) else "")
    return table.assign(weight_ratio=values, weight_because=reasons)


def _means(
    values: NDArray[np.float64], counts: Counts
) -> tuple[NDArray[np.float64], Interval | Unavailable]:
    known = np.isfinite(values)
    sums = np.where(known, values, 0.0)
    return mean_over_prompts(sums, known.astype(np.float64), counts)


def _beside(
    reading: HeadReading | Unavailable, name: str, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """The same quantity of a reference, head by head; NaN where it has none."""
    if isinstance(reading, Unavailable):
        return np.full(shape[0] * shape[1], np.nan)
    values = reading.arrays[f"geometry_{name}"]
    if values.shape[1:] != shape:
        return np.full(shape[0] * shape[1], np.nan)
    return _known_mean(values.reshape(len(values), -1))


def _known_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(0) / known.sum(0), np.float64)


def production_arrays(
    reading: HeadReading, references: Mapping[Reference, HeadReading | Unavailable]
) -> dict[str, NDArray[np.float64]]:
    """Entropy production of the model and of each reference: a row per prompt, a column per head.

    The names of references have no spaces here.
    """
    every: dict[str, HeadReading | Unavailable] = {"model": reading}
    every |= {name.replace(" ", "_"): other for name, other in references.items()}
    return {
        name: np.ascontiguousarray(_production(other))
        for name, other in every.items()
        if not isinstance(other, Unavailable)
    }


def reference_table(references: Mapping[Reference, HeadReading | Unavailable]) -> pd.DataFrame:
    """What the heads are compared with: on how many prompts, or why not."""
    rows = []
    for name, other in references.items():
        prompts, because = 0, ""
        if isinstance(other, Unavailable):
            because = other.reason
        else:
            prompts = len(_production(other))
            if not np.isfinite(_production(other)).any():
                because = next(iter(other.because.values()), "no head could be measured")
        rows.append({"reference": name, "prompts": prompts, "because": because})
    return pd.DataFrame(rows)


def _production(reading: HeadReading) -> NDArray[np.float64]:
    values = reading.arrays["geometry_entropy_production"]
    return values.reshape(len(values), -1)
