"""Tables and arrays of the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import joint_half_ends
from flowscope.flows.potential import TERMS
from flowscope.instruments.latent.clouds import Clouds
from flowscope.instruments.latent.config import LatentConfig
from flowscope.instruments.latent.entropy.tables import ends_of
from flowscope.instruments.latent.rate.steps import COLUMNS, PLAIN

__all__ = [
    "halves_of_rates",
    "layers_with_rates",
    "rate_controls_table",
    "rates_table",
    "spectrum_table",
    "turning_table",
]

Steps = Sequence[Mapping[str, Mapping[str, NDArray[np.generic]]]]
Halves = dict[str, NDArray[np.float64]]
_ROUTES = ("difference", "flow")
_SHOWN = tuple(name for name in COLUMNS if name not in PLAIN.values())
_ENDS = ("", "_low", "_high")


def rates_table(config: LatentConfig, clouds: Clouds, steps: Steps) -> pd.DataFrame:
    """One row for each block and sample that has a rate."""
    return _rates(config, clouds, steps, _SHOWN, explained=True)


def rate_controls_table(
    config: LatentConfig, clouds: Clouds, twins: Mapping[str, Steps]
) -> pd.DataFrame:
    """The terms in networks with random weights."""
    frames = []
    for name, steps in twins.items():
        frame = _rates(config, clouds, steps, TERMS, explained=False)
        frame.insert(0, "subject", name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _rates(
    config: LatentConfig,
    clouds: Clouds,
    steps: Steps,
    columns: tuple[str, ...],
    *,
    explained: bool,
) -> pd.DataFrame:
    rows = []
    for block, found in enumerate(steps, 1):
        for name, arrays in found.items():
            if "step" not in arrays:
                continue
            values = np.asarray(arrays["step"], float)
            row: dict[str, float | int | str] = {
                "layer": block, "sample": name, "rank": config.ranks[0],
            }  # fmt: skip
            groups = clouds.samples[name].groups
            for column in columns:
                row |= ends_of(column, values[:, COLUMNS.index(column)], groups)
                if column in PLAIN:
                    low = f"{column}_low"
                    plain = ends_of(column, values[:, COLUMNS.index(PLAIN[column])], groups)
                    row[low] = min(row[low], plain[low])
            if explained:
                row["explained"] = float(arrays["explained"][0])
            rows.append(row)
    return pd.DataFrame(rows)


def spectrum_table(steps: Steps) -> pd.DataFrame:
    """Eigenvalues of every block and sample."""
    rows = []
    for block, found in enumerate(steps, 1):
        for name, arrays in found.items():
            if "curvature" not in arrays:
                continue
            pairs = zip(arrays["curvature"], arrays["conditional"], strict=True)
            for number, (bent, left) in enumerate(pairs, 1):
                rows.append({
                    "layer": block, "sample": name, "number": number,
                    "curvature": float(bent), "conditional_variance": float(left),
                })  # fmt: skip
    return pd.DataFrame(rows)


def layers_with_rates(layers: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """The table ``layers`` with the rate of the block before each layer."""
    names = {"rate_divergence": "flow", "rate_difference": "difference", "lambda_min": "lambda_min"}
    columns = {f"{new}{end}": f"{old}{end}" for new, old in names.items() for end in _ENDS}
    keys = ["layer", "sample", "rank"]
    added = rates[keys].assign(**{new: rates[old] for new, old in columns.items()})
    kept = layers.drop(columns=[name for name in columns if name in layers])
    return kept.merge(added, on=keys, how="left", validate="one_to_one")


def halves_of_rates(subject: str, groups: Mapping[str, int], steps: Steps) -> Halves:
    """Terms of every block, whole and on halves: ``SUBJECT/SAMPLE/TERM`` ``[1 + draws, blocks]``.

    A block without a rate is NaN; a sample without any is left out. ``SUBJECT/SAMPLE/prompts`` is
    the number of prompts.
    """
    found: Halves = {}
    for name, count in groups.items():
        blocks = [step.get(name, {}).get("step") for step in steps]
        there = [np.asarray(block, float) for block in blocks if block is not None]
        if not there:
            continue
        nothing = np.full_like(there[0], np.nan)
        values = np.stack([nothing if b is None else np.asarray(b, float) for b in blocks], 1)
        for term in TERMS:
            found[f"{subject}/{name}/{term}"] = values[:, :, COLUMNS.index(term)]
        found[f"{subject}/{name}/prompts"] = np.array([float(count)])
    return found


def turning_table(config: LatentConfig, halves: Halves, rates: pd.DataFrame) -> pd.DataFrame:
    """Where the rate changes sign, each sign certain by intervals joint over all blocks."""
    rows = []
    for sample in dict.fromkeys(rates["sample"]):
        expanding = rates[rates["sample"] == sample].set_index("layer")["expanding"]
        for route in _ROUTES:
            values = halves.get(f"model/{sample}/{route}")
            if values is None:
                continue
            prompts = int(halves[f"model/{sample}/prompts"][0])
            there = np.flatnonzero(np.isfinite(values).all(0))
            ends = joint_half_ends(values[0, there], values[1:, there], prompts, seed=config.seed)
            for row in _turns(there + 1, values[0, there], ends.low, ends.high):
                between = expanding.loc[row["first"] : row["last"]]
                rows.append({
                    "sample": sample, "route": route, **row, "expanding": float(between.mean()),
                })  # fmt: skip
    return pd.DataFrame(rows)


def _turns(
    blocks: NDArray[np.int64],
    value: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> list[dict[str, float | int | str]]:
    """Changes of sign between neighbours among the blocks whose sign is certain."""
    sides = np.where(low > 0, 1, np.where(high < 0, -1, 0))
    certain = np.flatnonzero(sides)
    found: list[dict[str, float | int | str]] = []
    for first, last in pairwise(certain):
        if sides[first] == sides[last]:
            continue
        row: dict[str, float | int | str] = {
            "first": int(blocks[first]), "last": int(blocks[last]),
            "kind": "maximum" if sides[first] > 0 else "minimum",
        }  # fmt: skip
        for name, block in (("rate_first", first), ("rate_last", last)):
            row |= {name: float(value[block]), f"{name}_low": float(low[block]),
                    f"{name}_high": float(high[block])}  # fmt: skip
        found.append(row)
    return found
