r"""Decide on which layers the depth can be read as a flow: a gate, not an achievement.

Per segment of depth the number is the median over tokens of
$\bar S_L = \sum \lVert\Delta z\rVert^2 / \sum \lVert z\rVert^2$, and the mass residual
$\max |\sum p - 1|$ in float64. Cuts that are chosen on some prompts make the segments between them
look smooth on these prompts, so that the prompts are split into two halves: segments are cut on one
half and $\bar S$ is read on the other, both ways. A segment passes if the whole interval is at most
the limit, fails if the whole interval is above it, and is undecided otherwise. A layer is readable
if it passes both ways; layers on which the halves disagree are undecided and are named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import pandas as pd

from flowscope.evidence import MINIMUM_UNITS
from flowscope.evidence.verdicts import no_verdict, not_measured, pure_number
from flowscope.instruments.audit.units import distinct_prompts
from flowscope.instruments.audit.variation import VARIATION
from flowscope.lab.view import Records
from flowscope.records import Decision, Interval, Measurement, Unavailable, Verdict

__all__ = [
    "SegmentEvidence",
    "Stretch",
    "interval_decision",
    "judge",
    "judge_gate",
    "layer_words",
    "least_length",
    "stretches",
]

State = Literal["holds", "fails", "abstains", "jump"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SegmentEvidence:
    """One segment of depth and what decides whether the theory applies to it.

    ``crossed`` is what the two halves of the prompts decide together; without it the number of all
    prompts decides.
    """

    first: int
    last: int
    kind: Literal["segment", "jump"]
    relative_variation: float
    interval: Interval | Unavailable
    share_above: float
    mass_residual: float
    mass_bound: float
    threshold: float
    random_weights: float | Unavailable
    linear_interpolation: float | Unavailable
    crossed: Decision | None = None

    @property
    def layers(self) -> str:
        """The layers in words."""
        return (
            f"layer {self.first}" if self.first == self.last else f"layers {self.first}–{self.last}"
        )

    @property
    def decision(self) -> Decision:
        """Whether the gate is passed here."""
        if self.kind == "jump":
            return "abstains"
        if self.mass_residual > self.mass_bound:
            return "fails"
        if self.crossed is not None:
            return self.crossed
        return "holds" if self.relative_variation <= self.threshold else "fails"

    @property
    def because(self) -> str:
        """The figure that decided."""
        if self.kind == "jump":
            return (
                f"{self.layers} is a jump (relative step {self.relative_variation:.3g}): "
                "a description that is continuous in depth does not apply"
            )
        if self.mass_residual > self.mass_bound:
            return (
                f"probabilities miss a sum of 1 by {self.mass_residual:.2g}, more than the bound "
                f"{self.mass_bound:.2g}"
            )
        if self.crossed is not None:
            return self._crossed_reason
        side = "at most" if self.relative_variation <= self.threshold else "above"
        return (
            f"the relative variation of {self.layers} is {self.relative_variation:.3g}, {side} the "
            f"limit {self.threshold:g}"
        )

    @property
    def _crossed_reason(self) -> str:
        number = f"the relative variation of {self.layers} is {self.relative_variation:.3g}"
        if self.crossed == "abstains":
            return (
                f"{number}, limit {self.threshold:g}: the two halves of the prompts disagree there "
                "or leave it open"
            )
        side = "at most" if self.crossed == "holds" else "above"
        return f"{number}, {side} the limit {self.threshold:g} on both halves of the prompts"


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Neighbouring layers with one answer: readable (holds), not, undecided (abstains), a jump."""

    first: int
    last: int
    state: State


def interval_decision(low: float, high: float, limit: float) -> Decision:
    """Decide a segment by the interval of its relative variation.

    >>> [interval_decision(*ends, 0.15) for ends in ((0.1, 0.15), (0.1, 0.2), (0.16, 0.2))]
    ['holds', 'abstains', 'fails']
    """
    return "holds" if high <= limit else "fails" if low > limit else "abstains"


def least_length(layers: int) -> float:
    """Layers that a segment needs, as the segmentation of depth asks for them."""
    return max(3.0, layers / 6)


def stretches(gate: pd.DataFrame) -> list[Stretch]:
    """Join what each half of the prompts says of each layer, in order of depth.

    A layer that one half calls a jump and the other rough is not readable either way. Layers that
    pass both ways but are fewer than a segment needs are a jump: too short to be judged.

    Parameters
    ----------
    gate
        The table ``gate``: for each half that gave the cuts, segments that cover the depth.
    """
    sides = [_by_layer(rows) for _, rows in gate.groupby("cuts_from", sort=True)]
    depth = max(sides[0])
    marked = [
        (
            layer,
            tuple(side[layer][0] for side in sides),
            _joined([side[layer][1] for side in sides]),
        )
        for layer in range(1, depth + 1)
    ]
    joined = []
    for (_, state), group in groupby(marked, key=lambda item: item[1:]):
        layers = [item[0] for item in group]
        short = state == "holds" and len(layers) < least_length(depth)
        joined.append(Stretch(first=layers[0], last=layers[-1], state="jump" if short else state))
    return joined


def _by_layer(rows: pd.DataFrame) -> dict[int, tuple[int, State]]:
    """First layer of the segment of every layer, and its answer."""
    columns = (rows[name] for name in ("first_layer", "last_layer", "kind", "decision"))
    return {
        layer: (int(first), "jump" if kind == "jump" else decision)
        for first, last, kind, decision in zip(*columns, strict=True)
        for layer in range(int(first), int(last) + 1)
    }


def _joined(states: Sequence[State]) -> State:
    if len(set(states)) == 1:
        return states[0]
    return "fails" if set(states) == {"fails", "jump"} else "abstains"


def layer_words(spans: Iterable[Stretch]) -> str:
    """Layers of stretches in words; neighbours are joined.

    >>> pieces = ((1, 1), (2, 3), (5, 5))
    >>> layer_words(Stretch(first=a, last=b, state="jump") for a, b in pieces)
    '1–3, 5'
    """
    joined: list[list[int]] = []
    for span in spans:
        if joined and span.first == joined[-1][1] + 1:
            joined[-1][1] = span.last
        else:
            joined.append([span.first, span.last])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in joined)


_COLUMNS = ("cuts_from", "first_layer", "last_layer", "kind", "relative_variation", "low", "high")


def judge(records: Records) -> list[Verdict]:
    """Decide from the tables of a run on which layers its depth can be read as a flow."""
    gate = records.table("gate", *_COLUMNS, "threshold", "random_weights", "decision")
    segments = records.table("segments", "mass_residual", "mass_bound")
    units = len(distinct_prompts(records.arrays("prompts")))
    lost = bool((segments["mass_residual"] > segments["mass_bound"]).any())
    seed = int(records.settings["seed"])
    return [judge_gate(gate, units=units, lost_mass=lost, seed=seed)]


def judge_gate(
    gate: pd.DataFrame, *, units: int, lost_mass: bool = False, seed: int = 0
) -> Verdict:
    """Decide on which layers the path is smooth enough to be read as a flow.

    Parameters
    ----------
    gate
        The table ``gate``.
    units
        Number of different prompts.
    lost_mass
        Whether probabilities miss a sum of 1 by more than rounding.
    seed
        Of the run.
    """
    spans = stretches(gate)
    depth = spans[-1].last
    if (gate["kind"] == "jump").all():
        least = int(-(-least_length(depth) // 1))
        return not_measured(
            VARIATION,
            f"no {least} layers in a row lie between jumps (the model has {depth}), so that there "
            "is no stretch of depth to read",
        )
    readable = [span for span in spans if span.state == "holds"]
    rows = _rows_behind(gate, readable)
    decision: Decision = "holds" if readable else "abstains"
    if lost_mass or {span.state for span in spans} <= {"fails", "jump"}:
        decision = "fails"
    because = _reason(spans, rows, lost_mass)
    if units < MINIMUM_UNITS:
        decision = "abstains"
        needed = f"at least {MINIMUM_UNITS} different prompts are needed; this run has {units}"
        because = f"layers that later stages read: {because}; {no_verdict(needed)}"
    elif decision == "abstains":
        because = f"{because}; {no_verdict('no layer passes on both halves of the prompts')}"
    return _verdict(rows, decision, because, units=units, seed=seed)


def _rows_behind(gate: pd.DataFrame, readable: Sequence[Stretch]) -> pd.DataFrame:
    """Segments of each half that hold the longest readable stretch; else the longest of each."""
    regular = gate[gate["kind"] == "segment"]
    if readable:
        longest = max(readable, key=lambda span: span.last - span.first)
        first, last = regular["first_layer"], regular["last_layer"]
        return regular[(first <= longest.first) & (last >= longest.last)]
    length = regular["last_layer"] - regular["first_layer"]
    return regular.loc[length.groupby(regular["cuts_from"]).idxmax()]


def _reason(spans: Sequence[Stretch], rows: pd.DataFrame, lost_mass: bool) -> str:
    if lost_mass:
        return "probabilities miss a sum of 1 by more than rounding"
    words = {
        state: layer_words(span for span in spans if span.state in kinds)
        for state, kinds in _KINDS.items()
    }
    parts = [f"layers {words['read']}" if words["read"] else "no layers"]
    parts += [f"{words['open']} undecided"] if words["open"] else []
    parts += [f"{words['closed']} too rough or a jump"] if words["closed"] else []
    columns = (rows[name].astype(float) for name in ("relative_variation", "low", "high"))
    numbers = " and ".join(
        f"{value:.3g}" + ("" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]")
        for value, low, high in zip(*columns, strict=True)
    )
    where = " on the two halves of the prompts" if len(rows) > 1 else ""
    fresh = rows["random_weights"].mean()
    twin = "" if pd.isna(fresh) else f", {fresh:.3g} with random weights"
    limit = float(rows["threshold"].iloc[0])
    return f"{'; '.join(parts)}; relative variation {numbers}{where}, limit {limit:g}{twin}"


_KINDS: Mapping[str, tuple[State, ...]] = {
    "read": ("holds",),
    "open": ("abstains",),
    "closed": ("fails", "jump"),
}


def _verdict(
    rows: pd.DataFrame, decision: Decision, because: str, *, units: int, seed: int
) -> Verdict:
    """The verdict, by the segment of the two whose interval reaches furthest up."""
    reach = rows["high"].fillna(rows["relative_variation"]).to_numpy()
    row = rows.iloc[int(reach.argmax())]
    limit, value = float(row["threshold"]), float(row["relative_variation"])
    interval: Interval | Unavailable = Unavailable("one prompt has no interval")
    effect_interval = interval
    if not pd.isna(row["low"]):
        method = "median over tokens, prompts as units; cuts from the other half of the prompts"
        low, high = float(row["low"]), float(row["high"])
        interval = Interval(low=low, high=high, level=0.95, method=method)
        effect_interval = Interval(low=limit - high, high=limit - low, level=0.95, method=method)
    null: Measurement | Unavailable = Unavailable("the random-weights twin could not be made")
    made = {"n": units, "estimator": "median over tokens", "dtype": "float32", "seed": seed}
    if not pd.isna(row["random_weights"]):
        fresh = float(row["random_weights"])
        null = pure_number("relative_variation of random weights", fresh, **made)  # type: ignore[arg-type]
    return Verdict(
        name=VARIATION.name,
        claim=VARIATION.says,
        statistic=pure_number("relative_variation", value, interval=interval, **made),  # type: ignore[arg-type]
        null=null,
        effect=limit - value,
        interval=effect_interval,
        decision=decision,
        because=because,
    )
