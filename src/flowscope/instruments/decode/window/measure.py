"""Apply the rules of the late-window certificate to the record of the reference.

A blank has a law in every pass until it is filled. A window of W steps holds W + 1 of its laws. The
*published* rule is that of source 000 §8.3, √(D_W/2) < smallest margin and no flip in the window;
*corrected* is √(W D_W/2) < half the margin, *path* ΣTV < half the margin. The rules *strict* and
*calibrated* add what its Table 1 names without defining it, as we read it: the divergence of a
window is at most δ, in Ω windows in a row, and the calibrated rule looks at the laws at temperature
τ = .5. None of the rules knows anything about the laws after its window: the rate of later flips
is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.evidence import mean_over_prompts, resampled_counts, share_interval
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.decode.filling.trace import Trace
from flowscope.instruments.decode.reference.measure import Part
from flowscope.instruments.decode.subject import DecodeBench
from flowscope.instruments.decode.window import TABLES
from flowscope.lab.claim import Abstention
from flowscope.records import Interval
from flowscope.simplex import PathSteps, WindowBounds, window_bounds

__all__ = ["RULES", "Rule", "window"]

_TENTHS = 10
Truths = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of the certificate.

    Attributes
    ----------
    test
        Which comparison is made.
    most, runs
        Largest divergence of a window, and windows in a row.
    cool
        Whether laws are taken at half the temperature.
    """

    test: str
    most: float = np.inf
    runs: int = 1
    cool: bool = False

    def passes(self, bounds: WindowBounds) -> Tensor:
        """Windows that pass."""
        made = {
            "published": bounds.passes_as_published,
            "corrected": bounds.passes,
            "path": bounds.passes_by_path,
        }[self.test] & (bounds.divergence <= self.most)
        if self.runs == 1:
            return made
        several = torch.zeros_like(made)
        if made.shape[-1] >= self.runs:
            several[..., self.runs - 1 :] = made.unfold(-1, self.runs, 1).all(-1)
        return several


RULES: Mapping[str, Rule] = {
    "published": Rule(test="published"),
    "corrected": Rule(test="corrected"),
    "path": Rule(test="path"),
    "strict, published": Rule(test="published", most=1e-8, runs=3),
    "strict, corrected": Rule(test="corrected", most=1e-8, runs=3),
    "calibrated, published": Rule(test="published", most=1e-6, runs=2, cool=True),
    "calibrated, corrected": Rule(test="corrected", most=1e-6, runs=2, cool=True),
}
"""Rules by name; δ, Ω and τ are those of source 000, Table 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Paths:
    """Laws of blanks along the passes of the reference, ``[blanks, passes]``.

    Attributes
    ----------
    prompt, length
        Prompt of each blank, and passes of that prompt's reference.
    masked, right, confidence
        Whether the blank is masked, whether its leading token is the final one, its probability.
    steps, cool
        Steps of the laws, and of the laws at half the temperature.
    """

    prompt: NDArray[np.int64]
    length: NDArray[np.int64]
    masked: Truths
    right: Truths
    confidence: Numbers
    steps: PathSteps
    cool: PathSteps


def window(bench: DecodeBench) -> None:
    """Write the tables ``window`` and ``coverage``.

    Raises
    ------
    Abstention
        No blank is masked for as many passes as the narrowest window has.
    """
    part: Part = bench.shared("parts")["test"]
    pieces = [_paths(batch.start, batch.trace) for batch in part.batches]
    longest = max(piece.masked.shape[1] for piece in pieces)
    widths = [width for width in bench.config.windows if width < longest]
    if not widths:
        raise Abstention(
            f"a window of {min(bench.config.windows)} passes needs a blank that is masked for "
            f"{min(bench.config.windows) + 1}; the longest reference has {longest}"
        )
    rows, curves = [], []
    for width in widths:
        for name, rule in RULES.items():
            found = [_certified(piece, width, rule) for piece in pieces]
            rows.append({"W": width, "rule": name, **_row(bench, pieces, found, width)})
            curves += [{"W": width, "rule": name, **point} for point in _curve(pieces, found)]
    bench.put("window", pd.DataFrame(rows, columns=list(TABLES["window"].schema)))
    bench.put("coverage", pd.DataFrame(curves, columns=list(TABLES["coverage"].schema)))


def _paths(start: int, trace: Trace) -> _Paths:
    there = trace.final >= 0
    rows = np.nonzero(there)[0]

    def paths(values: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.moveaxis(values, 0, -1)[there]

    def numbers(name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(paths(trace.laws[name]))).double()

    top = torch.from_numpy(np.ascontiguousarray(paths(trace.top))).long()
    steps = PathSteps(
        divergence=numbers("divergence")[:, 1:], variation=numbers("variation")[:, 1:],
        margin=numbers("first") - numbers("second"), top=top,
    )  # fmt: skip
    cool = replace(
        steps, divergence=numbers("cool_divergence")[:, 1:], margin=numbers("cool_margin")
    )
    final = np.repeat(trace.final[there][:, None], top.shape[1], 1)
    return _Paths(
        prompt=start + rows, length=trace.passes[rows], masked=paths(trace.masked).astype(bool),
        right=top.numpy() == final, confidence=numbers("first").numpy(), steps=steps, cool=cool,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class _Certified:
    """Windows that pass, ``[blanks, passes]`` by the pass of their last law, and flips in them."""

    passes: Truths
    ends: Truths
    flips: int

    @property
    def first(self) -> NDArray[np.int64]:
        """Pass, from 0, at which each blank is certified; −1 where it never is."""
        return np.where(self.passes.any(1), self.passes.argmax(1), -1)


def _certified(paths: _Paths, width: int, rule: Rule) -> _Certified:
    shape = paths.masked.shape
    made, ends = np.zeros(shape, bool), np.zeros(shape, bool)
    if shape[1] <= width:
        return _Certified(passes=made, ends=ends, flips=0)
    bounds = window_bounds(paths.cool if rule.cool else paths.steps, width)
    ends[:, width:] = paths.masked[:, width:]
    made[:, width:] = rule.passes(bounds).numpy() & paths.masked[:, width:]
    flips = int((made[:, width:] & ~bounds.same.numpy()).sum())
    return _Certified(passes=made, ends=ends, flips=flips)


def _row(
    bench: DecodeBench, pieces: list[_Paths], found: list[_Certified], width: int
) -> dict[str, float]:
    prompt = np.concatenate([piece.prompt for piece in pieces])
    first = np.concatenate([one.first for one in found])
    flips = np.concatenate(
        [_flips(piece, one.first) for piece, one in zip(pieces, found, strict=True)]
    )
    passing = sum(int(one.passes.sum()) for one in found)
    windows = sum(int(one.ends.sum()) for one in found)
    certified = first >= 0
    return {
        "blanks": len(first),
        "seen": sum(int(one.ends.any(1).sum()) for one in found),
        **_by_prompt("coverage", certified, np.ones_like(certified), prompt, bench),
        "steps": passing / windows if windows else np.nan,
        "inside_flips": sum(one.flips for one in found) / passing if passing else np.nan,
        **_by_prompt("later_flips", flips & certified, certified, prompt, bench),
        "confident_flips": _confident(pieces, found),
    }


def _flips(paths: _Paths, first: NDArray[np.int64]) -> Truths:
    """Whether the token at the first certified pass is not the final one."""
    return ~paths.right[np.arange(len(first)), np.maximum(first, 0)]


def _by_prompt(
    name: str, has: Truths, counts: Truths, prompt: NDArray[np.int64], bench: DecodeBench
) -> dict[str, float]:
    """Share of the counted blanks, with its interval over prompts.

    Where no blank of any prompt has it, or each one, a bootstrap would give an interval of no
    width: the end is then the Clopper–Pearson bound on the share of prompts with an exception.
    """
    size = int(prompt.max()) + 1
    sums, sizes = (_sums(prompt, x, size) for x in (has, counts))
    names = (name, f"{name}_low", f"{name}_high")
    if not sizes.any():
        return dict.fromkeys(names, np.nan)
    resampled = resampled_counts(size, resamples=bench.config.resamples, seed=bench.config.seed)
    point, interval = mean_over_prompts(sums, sizes, resampled, within=(0.0, 1.0))
    low, high = bounds_of(interval, 1)
    if point[0] in (0.0, 1.0):
        whole = share_interval(int(point[0]) * int((sizes > 0).sum()), int((sizes > 0).sum()))
        assert isinstance(whole, Interval)
        low, high = np.atleast_1d(whole.low), np.atleast_1d(whole.high)
    return dict(zip(names, (float(point[0]), float(low[0]), float(high[0])), strict=True))


def _sums(prompt: NDArray[np.int64], values: Truths, size: int) -> Numbers:
    """Sum over the blanks of each prompt, as a column."""
    return np.bincount(prompt, values.astype(float), size).astype(float)[:, None]


def _confident(pieces: list[_Paths], found: list[_Certified]) -> float:
    """Flips of equally many blanks at the same passes, chosen by confidence alone."""
    longest = max(piece.masked.shape[1] for piece in pieces)

    def joined(values: list[NDArray[np.generic]], nothing: float) -> NDArray[np.generic]:
        wide = [
            np.pad(x, ((0, 0), (0, longest - x.shape[1])), constant_values=nothing) for x in values
        ]
        return np.concatenate(wide)

    masked = joined([piece.masked for piece in pieces], False)
    right = joined([piece.right for piece in pieces], False)
    sure = np.where(masked, joined([piece.confidence for piece in pieces], np.nan), -1.0)
    first = np.concatenate([one.first for one in found])
    free, flips, total = np.ones(len(first), bool), 0, 0
    for number in np.unique(first[first >= 0]):
        now = np.where(free, sure[:, number], -1.0)
        chosen = np.argsort(-now, kind="stable")[: int((first == number).sum())]
        chosen = chosen[now[chosen] >= 0]
        flips, total = flips + int((~right[chosen, number]).sum()), total + len(chosen)
        free[chosen] = False
    return flips / total if total else float("nan")


def _curve(pieces: list[_Paths], found: list[_Certified]) -> list[dict[str, float]]:
    """Share of the blanks that are certified, and that are filled, by tenths of the passes."""
    length = np.concatenate([piece.length for piece in pieces])
    first = np.concatenate([one.first for one in found])
    last = np.concatenate([piece.masked.sum(1) for piece in pieces])
    points = []
    for tenth in range(1, _TENTHS + 1):
        made = np.floor(length * tenth / _TENTHS)
        points.append(
            {
                "progress": tenth / _TENTHS,
                "certified": float(((first >= 0) & (first < made)).mean()),
                "filled": float((last <= made).mean()),
            }
        )
    return points
