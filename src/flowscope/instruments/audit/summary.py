"""From scalars per token to the tables of an audit: medians over tokens, intervals over prompts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from flowscope.evidence import Counts, mean_over_prompts, median_over_prompts, resampled_counts
from flowscope.evidence.intervals import single
from flowscope.flows import Jump, Segment, concentration, jump_report, relative_variation
from flowscope.instruments.audit.claims import VARIATION
from flowscope.instruments.audit.variation_rule import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.records import Interval, Measurement, Unavailable
from flowscope.simplex import locking_bound

__all__ = [
    "Locking",
    "head_table",
    "jump_table",
    "layer_table",
    "locking_depth_table",
    "locking_of",
    "placed_layers",
    "prompt_medians",
    "relative_steps",
    "segment_statistics",
    "segment_table",
    "telling_row",
    "token_table",
]

_STATES = ("entropy", "p_max", "tail_mass", "margin", "mobility_frobenius", "mobility_trace")
_STEPS = ("oscillation", "total_variation", "kl_divergence", "first_order")
_EDGES = np.concatenate([[0.0], np.logspace(-6, 0, 13)])
COLLAPSED, LOCKED = 0.05, 1e-3


def relative_steps(depth: Arrays) -> NDArray[np.float64]:
    """‖Δz‖² / ‖z‖² after the step, per token and step; 0 where neither moves nor is."""
    step, state = depth["step_sq"].astype(np.float64), depth["state_sq"][:, 1:].astype(np.float64)
    return np.divide(step, state, out=np.zeros_like(step), where=state > 0)


def layer_table(depth: Arrays, counts: Counts) -> pd.DataFrame:
    """One row per layer, 0 (the embedding) to L: medians over tokens with intervals."""
    layers = depth["state_sq"].shape[1]
    table = pd.DataFrame({"layer": np.arange(layers)})
    columns = {"relative_step": relative_steps(depth)}
    columns |= {name: depth[name] for name in (*_STATES, *_STEPS) if name in depth}
    for name, values in columns.items():
        points, interval = median_over_prompts(values, depth["prompt"], counts)
        _put(table, name, points, interval)
    if "argmax" in depth:
        agrees = depth["argmax"] == depth["argmax"][:, -1:]
        _put_share(table, "agreement", agrees, depth, counts)
        _put_share(table, "locked_share", depth["mobility_trace"] < LOCKED, depth, counts)
    return table


def _put_share(
    table: pd.DataFrame, name: str, true: NDArray[Any], depth: Arrays, counts: Counts
) -> None:
    """Add the share of tokens for which something is true."""
    same = true.astype(np.float64)
    sums = np.zeros((counts.shape[1], same.shape[1]))
    np.add.at(sums, depth["prompt"], same)
    sizes = np.bincount(depth["prompt"].astype(np.int64), minlength=counts.shape[1])
    wide = np.repeat(sizes[:, None], same.shape[1], 1).astype(np.float64)
    _put(table, name, *mean_over_prompts(sums, wide, counts))


def _put(
    table: pd.DataFrame,
    name: str,
    points: NDArray[np.float64],
    interval: Interval | Unavailable,
) -> None:
    """Add a column with its bounds; a column of steps has no entry at layer 0."""
    blank = np.full(len(table) - len(points), np.nan)
    table[name] = np.concatenate([blank, points])
    if isinstance(interval, Interval):
        table[f"{name}_low"] = np.concatenate([blank, np.asarray(interval.low)])
        table[f"{name}_high"] = np.concatenate([blank, np.asarray(interval.high)])


def segment_statistics(
    depth: Arrays, segment: Segment, counts: Counts, threshold: float
) -> tuple[float, Interval | Unavailable, float]:
    """Median over tokens of S̄ on a segment, its interval, and the share of tokens above."""
    steps = slice(segment.first - 1, segment.last)
    states = slice(segment.first, segment.last + 1)
    each = relative_variation(depth["step_sq"][:, steps], depth["state_sq"][:, states])
    values = np.asarray(each, np.float64)[:, None]
    points, interval = median_over_prompts(values, depth["prompt"], counts)
    return float(points[0]), single(interval), float((values > threshold).mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class Locking:
    """How movement depends on tail mass, over the steps of passing segments."""

    table: pd.DataFrame
    correlation: Measurement
    null: Measurement
    exceeded: int
    steps: int
    informative: float


def locking_of(
    depth: Arrays, segments: Sequence[SegmentEvidence], counts: Counts, seed: int
) -> Locking | Unavailable:
    """The locking curve with the exact bound beside it, or why there is none."""
    steps = [s for g in segments if g.decision == "holds" for s in range(g.first - 1, g.last)]
    if not steps:
        return Unavailable(f"no segment of layers passed {VARIATION.name} {VARIATION.title}")
    tail = depth["tail_mass"][:, steps].astype(np.float64)
    moved = depth["total_variation"][:, steps].astype(np.float64)
    bound = _bound(tail, depth["oscillation"][:, steps].astype(np.float64))
    rng = np.random.default_rng(seed)
    found = _correlations(tail, moved, depth["prompt"], len(counts[0]))
    shuffled = _correlations(tail, moved, depth["prompt"], len(counts[0]), rng)
    return Locking(
        table=_locking_table(tail.ravel(), moved.ravel(), bound.ravel()),
        correlation=_mean_correlation("rank correlation of tail mass and TV", found, counts, seed),
        null=_mean_correlation("the same, shuffled within prompts", shuffled, counts, seed),
        exceeded=int((moved > bound + 1e-5).sum()),
        steps=int(moved.size),
        informative=float((bound < 0.99).mean()),
    )


def _bound(tail: NDArray[np.float64], oscillation: NDArray[np.float64]) -> NDArray[np.float64]:
    """The exact bound; it knows p through its tail mass only, and from a half on not even that."""
    half = np.minimum(tail, 0.5)
    return np.asarray(locking_bound(np.stack([1 - half, half], -1), oscillation))


def _correlations(
    tail: NDArray[np.float64],
    moved: NDArray[np.float64],
    prompt: NDArray[np.generic],
    prompts: int,
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Spearman correlation within each prompt; NaN where a prompt has no spread."""
    found = np.full(prompts, np.nan)
    for number in range(prompts):
        x, y = tail[prompt == number].ravel(), moved[prompt == number].ravel()
        if len(x) > 2 and np.ptp(x) > 0 and np.ptp(y) > 0:
            found[number] = spearmanr(x, y if rng is None else rng.permutation(y)).statistic
    return found


def _mean_correlation(
    name: str, each: NDArray[np.float64], counts: Counts, seed: int
) -> Measurement:
    known = ~np.isnan(each)
    if not known.any():
        return Measurement.abstained(name, "no prompt has spread in tail mass and movement")
    sums = np.where(known, each, 0.0)[:, None]
    points, interval = mean_over_prompts(sums, known[:, None].astype(float), counts)
    return Measurement(
        name=name,
        values=np.asarray(points[0]),
        unit="1",
        n=int(known.sum()),
        estimator="mean over prompts of the Spearman correlation within a prompt",
        dtype="float64",
        seed=seed,
        interval=single(interval),
    )


def _locking_table(
    tail: NDArray[np.float64], moved: NDArray[np.float64], bound: NDArray[np.float64]
) -> pd.DataFrame:
    place = np.clip(np.searchsorted(_EDGES, tail, side="right") - 1, 0, len(_EDGES) - 2)
    rows = []
    for number in range(len(_EDGES) - 1):
        here = place == number
        if here.any():
            q25, q50, q75 = np.quantile(moved[here], [0.25, 0.5, 0.75])
            rows.append(
                {
                    "tail_mass_low": _EDGES[number],
                    "tail_mass_high": _EDGES[number + 1],
                    "n": int(here.sum()),
                    "tv_median": q50,
                    "tv_q25": q25,
                    "tv_q75": q75,
                    "bound_median": float(np.median(bound[here])),
                    "informative_share": float((bound[here] < 0.99).mean()),
                }
            )
    return pd.DataFrame(rows)


def locking_depth_table(depth: Arrays) -> pd.DataFrame:
    """How many tokens have made up their mind for good at each layer."""
    argmax = depth["argmax"]
    layers = argmax.shape[1]
    differs = argmax != argmax[:, -1:]
    last_change = np.where(differs.any(1), layers - 1 - differs[:, ::-1].argmax(1), -1)
    count = np.bincount(last_change + 1, minlength=layers)
    return pd.DataFrame(
        {"layer": np.arange(layers), "count": count, "share": count / max(count.sum(), 1)}
    )


def head_table(
    heads: Arrays, fresh: Arrays, *, resamples: int = 200, seed: int = 0
) -> pd.DataFrame:
    """Entropy share of every head with its interval, beside the same heads with random weights."""
    sums, sizes = heads["head_entropy"], heads["head_rows"]
    prompts, layers, width = sums.shape
    counts = resampled_counts(prompts, resamples=resamples, seed=seed)
    flat = [x.reshape(prompts, -1).astype(np.float64) for x in (sums, sizes)]
    points, interval = mean_over_prompts(flat[0], flat[1], counts)
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(1, layers + 1), width),
            "head": np.tile(np.arange(width), layers),
            "entropy_share": points,
        }
    )
    table["low"] = table["high"] = np.nan
    table["collapsed"] = False
    if isinstance(interval, Interval):
        table["low"], table["high"] = np.asarray(interval.low), np.asarray(interval.high)
        table["collapsed"] = table["high"] < COLLAPSED
    table["random_weights"] = np.nan
    if fresh:
        total = fresh["head_rows"].sum(0).astype(np.float64)
        table["random_weights"] = (fresh["head_entropy"].sum(0) / np.maximum(total, 1)).ravel()
    return table


def placed_layers(layers: pd.DataFrame, evidence: Sequence[SegmentEvidence]) -> pd.DataFrame:
    """The layer table with the segment each layer belongs to; layer 0 belongs to none."""
    table = layers.assign(segment=-1, segment_kind="start", status="ok")
    for number, segment in enumerate(evidence):
        inside = table["layer"].between(segment.first, segment.last)
        table.loc[inside, "segment"] = number
        table.loc[inside, "segment_kind"] = segment.kind
        table.loc[inside, "status"] = "ok" if segment.decision == "holds" else "abstained"
    return table


def segment_table(
    depth: Arrays, evidence: Sequence[SegmentEvidence], chord: NDArray[np.float64]
) -> pd.DataFrame:
    """One row per segment: the gate, its controls, and the shape of the path."""
    rows = []
    for number, segment in enumerate(evidence):
        squares = depth["step_sq"][:, segment.first - 1 : segment.last].astype(np.float64)
        known = segment.interval if isinstance(segment.interval, Interval) else None
        length = float(np.median(np.sqrt(squares).sum(1)))
        rows.append(
            {
                "segment": number,
                "kind": segment.kind,
                "first_layer": segment.first,
                "last_layer": segment.last,
                "relative_variation": segment.relative_variation,
                "low": known.low if known else np.nan,
                "high": known.high if known else np.nan,
                "share_above": segment.share_above,
                "threshold": segment.threshold,
                "random_weights": _or_nan(segment.random_weights),
                "linear_interpolation": _or_nan(segment.linear_interpolation),
                "total_variation": length,
                "path_length": length,
                "quadratic_variation": float(np.median(squares.sum(1))),
                "concentration": float(np.median(concentration(squares))),
                "tortuosity": length / chord[number] if chord[number] > 0 else np.nan,
                "mass_residual": segment.mass_residual,
                "mass_bound": segment.mass_bound,
                "decision": segment.decision,
                "because": segment.because,
            }
        )
    return pd.DataFrame(rows)


def _or_nan(value: float | Unavailable) -> float:
    return float("nan") if isinstance(value, Unavailable) else value


def jump_table(layers: pd.DataFrame) -> pd.DataFrame:
    """The jumps: how far each goes, and how much longer it is than its neighbours."""
    steps, moved = (layers[name].to_numpy()[1:] for name in ("relative_step", "total_variation"))
    names = [field.name for field in fields(Jump)]
    return pd.DataFrame([asdict(jump) for jump in jump_report(steps, moved)], columns=names)


def prompt_medians(depth: Arrays) -> dict[str, NDArray[np.generic]]:
    """Per prompt and layer, the median over its tokens: what two runs are compared by."""
    prompts = int(depth["prompt"].max()) + 1
    columns = {"relative_step": relative_steps(depth)}
    columns |= {name: depth[name] for name in (*_STATES, *_STEPS) if name in depth}
    found: dict[str, NDArray[np.generic]] = {}
    for name, values in columns.items():
        each = [np.median(values[depth["prompt"] == p], 0) for p in range(prompts)]
        found[name] = np.stack(each).astype(np.float64)
    return found


def token_table(depth: Arrays, prompts: int, positions: int) -> pd.DataFrame:
    """Every layer of the first positions of the first prompts, for a map to look at."""
    rows = np.nonzero((depth["prompt"] < prompts) & (depth["position"] < positions))[0]
    layers = depth["state_sq"].shape[1]
    table = pd.DataFrame(
        {
            "prompt": np.repeat(depth["prompt"][rows], layers),
            "position": np.repeat(depth["position"][rows], layers),
            "layer": np.tile(np.arange(layers), len(rows)),
        }
    )
    for name in ("mobility_frobenius", "entropy", "p_max", "argmax"):
        table[name] = depth[name][rows].ravel()
    blank = np.full((len(rows), 1), np.nan)
    table["total_variation"] = np.hstack([blank, depth["total_variation"][rows]]).ravel()
    return table


def telling_row(depth: Arrays, prompts: int) -> int:
    """A row of the first prompts that makes up its mind half-way: the path worth drawing."""
    rows = np.nonzero(depth["prompt"] < prompts)[0]
    argmax = depth["argmax"][rows]
    late = (argmax != argmax[:, -1:]).sum(1)
    return int(rows[np.argmin(np.abs(late - argmax.shape[1] // 2))])
