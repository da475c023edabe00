"""From pairs of rows and steps of tokens to tables: curvature, its response, the EVI."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import Counts, mean_over_prompts, median_over_prompts
from flowscope.evidence.intervals import bounds_of, single
from flowscope.instruments.audit.contraction.effects import (
    joint_bounds,
    overlap_correlations,
    prompt_means,
)
from flowscope.instruments.audit.variation import VARIATION
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays, Setting
from flowscope.probes.heads.curvature import LEFT_OUT
from flowscope.probes.layers.evolution import PATHS
from flowscope.records import Interval, Measurement, Unavailable

__all__ = [
    "curvature_table",
    "evi_share",
    "evi_table",
    "prompt_arrays",
    "response_table",
]

_LEAST_PAIRS, _PINNED_SHARE = 8, 0.9
_EFFECTS = (
    "effect",
    "effect_low",
    "effect_high",
    "joint_low",
    "joint_high",
    "overlap_correlation",
)


def curvature_table(
    curved: Arrays, fresh: Arrays | Unavailable, counts: Counts, *, seed: int = 0
) -> pd.DataFrame:
    """One row per head: its median curvature, beside permuted keys and random weights.

    A head abstains when fewer than eight of its pairs can be compared, or when nine in ten of them
    look at one and the same key: then κ is near 1 and nothing was compared.
    """
    kappa = curved["curvature_kappa"]
    _, layers, heads = kappa.shape
    flat = {n: curved[f"curvature_{n}"].reshape(len(kappa), -1) for n in ("kappa", "null", "kept")}
    prompt = curved["curvature_prompt"]
    points, interval = median_over_prompts(flat["kappa"], prompt, counts)
    used = np.isfinite(flat["kappa"]).sum(0)
    pinned = curved["curvature_pinned"].reshape(len(kappa), -1).sum(0) / np.maximum(used, 1)
    codes = curved["curvature_left_out"].reshape(len(kappa), -1)
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), heads),
            "head": np.tile(np.arange(heads), layers),
            "kappa": points,
            "low": np.nan,
            "high": np.nan,
            "keys_permuted": _medians(flat["null"]),
            **_effects(curved, counts, seed),
            "random_weights": np.nan,
            "pairs": used,
            "left_out": len(kappa) - used,
            "negative_share": (flat["kappa"] < 0).sum(0) / np.maximum(used, 1),
            "pinned_share": pinned,
            "kept_mass": _medians(flat["kept"]),
        }
    )
    if isinstance(interval, Interval):
        table["low"], table["high"] = np.asarray(interval.low), np.asarray(interval.high)
    if not isinstance(fresh, Unavailable):
        twin = fresh["curvature_kappa"]
        table["random_weights"] = _medians(twin.reshape(len(twin), -1))
    table["because"] = [_why(codes[:, k], used[k], pinned[k]) for k in range(len(table))]
    table["status"] = np.where(table["because"] == "", "ok", "abstained")
    silent = table["status"] == "abstained"
    numbers = ["kappa", "low", "high", "keys_permuted", *_EFFECTS]
    table.loc[silent, numbers] = np.nan
    return table


def _effects(curved: Arrays, counts: Counts, seed: int) -> dict[str, NDArray[np.float64]]:
    """Effect of every head against permuted keys, with both intervals, and the guard's number."""
    prompts = counts.shape[1]
    parts = prompt_arrays(curved, prompts)
    each = (parts["kappa"] - parts["keys_permuted"]).reshape(prompts, -1)
    sizes = np.isfinite(each).astype(np.float64)
    points, interval = mean_over_prompts(np.where(sizes > 0, each, 0.0), sizes, counts)
    moved, apart = (
        curved[f"curvature_{name}"].reshape(len(curved["curvature_prompt"]), -1)
        for name in ("transport", "total_variation")
    )
    bounds = (*bounds_of(interval, len(points)), *joint_bounds(each, seed=seed))
    columns = (points, *bounds, overlap_correlations(moved, apart))
    return dict(zip(_EFFECTS, columns, strict=True))


def _medians(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Median of each column over what is there; NaN where nothing is."""
    found = np.full(values.shape[1], np.nan)
    for k, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if len(known):
            found[k] = np.median(known)
    return found


def _why(codes: NDArray[np.integer], used: int, pinned: float) -> str:
    if used < _LEAST_PAIRS:
        told = [f"{(codes == c).sum()} {why}" for c, why in LEFT_OUT.items() if (codes == c).any()]
        reasons = f" ({', '.join(told)})" if told else ""
        return f"{used} of {len(codes)} pairs can be compared, {_LEAST_PAIRS} are needed{reasons}"
    if pinned >= _PINNED_SHARE:
        return f"in {pinned:.0%} of its pairs both rows attend to the same key"
    return ""


def prompt_arrays(curved: Arrays, prompts: int) -> dict[str, NDArray[np.float64]]:
    """Curvature of every prompt, layer and head, and with keys permuted: what the judge reads."""
    prompt = curved["curvature_prompt"]
    return {
        name: prompt_means(curved[f"curvature_{part}"], prompt, prompts)
        for name, part in (("kappa", "kappa"), ("keys_permuted", "null"))
    }


def response_table(
    base: Arrays, swept: Mapping[Setting, Arrays], heads: pd.DataFrame, counts: Counts
) -> pd.DataFrame:
    """Curvature by setting, over all layers and for each; changes are within pairs of rows.

    ``base`` is the model itself, which stands in both sweeps. The heads that abstained there are
    left out of every setting, so that a curve always tells of the same heads.
    """
    ok = (heads["status"] == "ok").to_numpy().reshape(base["curvature_kappa"].shape[1:])
    kinds = sorted({setting.kind for setting in swept})
    found = [(kind, 1.0, base) for kind in kinds]
    found += [(setting.kind, setting.value, arrays) for setting, arrays in swept.items()]
    rows = []
    for kind, value, arrays in found:
        kappa = np.where(ok, arrays["curvature_kappa"].astype(np.float64), np.nan)
        change = kappa - base["curvature_kappa"]
        rows += _response_rows(kind, value, kappa, change, arrays["curvature_prompt"], counts)
    order = ["kind", "scope", "layer", "setting"]
    return pd.DataFrame(rows).sort_values(order, kind="stable", ignore_index=True)


def _response_rows(
    kind: str,
    value: float,
    kappa: NDArray[np.float64],
    change: NDArray[np.float64],
    prompt: NDArray[np.integer],
    counts: Counts,
) -> list[dict[str, object]]:
    pairs, layers, heads = kappa.shape
    each = np.repeat(prompt, heads)
    by_layer = [x.transpose(0, 2, 1).reshape(pairs * heads, layers) for x in (kappa, change)]
    whole = [x.reshape(-1, 1) for x in by_layer]
    rows: list[dict[str, object]] = []
    for scope, (values, changes), owner in (
        ("all", whole, np.repeat(each, layers)),
        ("layer", by_layer, each),
    ):
        points, interval = median_over_prompts(values, owner, counts)
        moved, moved_interval = median_over_prompts(changes, owner, counts)
        low, high = bounds_of(interval, len(points))
        moved_low, moved_high = bounds_of(moved_interval, len(points))
        rows += [
            {
                "kind": kind,
                "setting": value,
                "scope": scope,
                "layer": np.nan if scope == "all" else k + 1,
                "kappa": points[k],
                "low": low[k],
                "high": high[k],
                "change": moved[k],
                "change_low": moved_low[k],
                "change_high": moved_high[k],
                "pairs": int(np.isfinite(values[:, k]).sum()),
                "prompts": counts.shape[1],
            }
            for k in range(len(points))
        ]
    return rows


def evi_table(found: Arrays, evidence: Sequence[SegmentEvidence], counts: Counts) -> pd.DataFrame:
    """One row per step: slack, progress and the share of tokens that satisfy the inequality.

    A step of a segment that did not pass the gate abstains. So does the step into the last layer,
    which satisfies it by construction.
    """
    steps = found["evi_slack_model"].shape[1]
    prompt = found["evi_prompt"]
    table = pd.DataFrame({"step": np.arange(1, steps + 1)})
    for name in ("slack", "progress"):
        points, interval = median_over_prompts(found[f"evi_{name}_model"], prompt, counts)
        table[name] = points
        table[f"{name}_low"], table[f"{name}_high"] = bounds_of(interval, steps)
    for path in PATHS:
        label = "share" if path == "model" else f"share_{path}"
        points, interval = _share(_satisfied(found, path), prompt, counts)
        table[label] = points
        table[f"{label}_low"], table[f"{label}_high"] = bounds_of(interval, steps)
    known = np.isfinite(found["evi_progress_model"])
    table["energy_fell_share"] = _share(found["evi_fell_model"], prompt, counts)[0]
    table["kept_mass"] = _medians(found["evi_kept"][:, 1:])
    table["tokens"], table["left_out"] = known.sum(0), (~known).sum(0)
    numbers = [c for c in table.columns if c not in ("step", "tokens", "left_out", "kept_mass")]
    table["because"] = ""
    for segment in evidence:
        if segment.decision != "holds":
            inside = table["step"].between(segment.first, segment.last)
            table.loc[inside, "because"] = f"{VARIATION.name}: {segment.because}"
    blank = table["because"] == ""
    table.loc[blank & (table["step"] == steps), "because"] = "it ends at the target"
    table.loc[blank & (table["tokens"] == 0), "because"] = "top outcomes lack probability"
    table["status"] = np.where(table["because"] == "", "ok", "abstained")
    table.loc[table["status"] == "abstained", numbers] = np.nan
    return table


def _satisfied(found: Arrays, path: str) -> NDArray[np.float64]:
    """1 where some step size satisfies both inequalities, 0 where none, NaN where not known."""
    fell, slack = found[f"evi_fell_{path}"], found[f"evi_slack_{path}"]
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(fell), np.nan, ((fell > 0) & (slack >= 0)).astype(np.float64))


def _share(
    true: NDArray[np.float64], prompt: NDArray[np.integer], counts: Counts
) -> tuple[NDArray[np.float64], Interval | Unavailable]:
    known = np.isfinite(true)
    sums, sizes = (np.zeros((counts.shape[1], true.shape[1])) for _ in range(2))
    np.add.at(sums, prompt, np.where(known, true, 0.0))
    np.add.at(sizes, prompt, known.astype(np.float64))
    return mean_over_prompts(sums, sizes, counts)


def evi_share(
    found: Arrays, table: pd.DataFrame, counts: Counts, seed: int
) -> tuple[Measurement, Measurement]:
    """Share of token–steps that satisfy the inequality, on the path and in shuffled order."""
    speaking = (table["status"] == "ok").to_numpy()
    names = {"model": "EVI: share of steps", "shuffled": "EVI: share of steps, shuffled"}
    if not speaking.any():
        why = f"no step of the output path can be measured ({table['because'].iloc[0]})"
        first, second = (Measurement.abstained(name, why) for name in names.values())
        return first, second
    measured = []
    for path, name in names.items():
        each = _satisfied(found, path)[:, speaking].reshape(-1, 1)
        prompt = np.repeat(found["evi_prompt"], int(speaking.sum()))
        points, interval = _share(each, prompt, counts)
        if np.isnan(points[0]):
            why = "the top outcomes of every token lack probability"
            measured.append(Measurement.abstained(name, why))
            continue
        measured.append(
            Measurement(
                name=name,
                values=np.asarray(points[0]),
                unit="1",
                n=counts.shape[1],
                estimator="share of tokens and steps for which some step size satisfies the EVI",
                dtype="float64",
                seed=seed,
                interval=single(interval),
            )
        )
    return measured[0], measured[1]
