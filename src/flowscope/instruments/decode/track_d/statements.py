"""What source 000 says of diffusion language models (Track D), beside what a run measured.

The source's models are others (8 billion parameters, four tasks), and its δ, Ω and τ are named but
not defined: our reading stands in `flowscope.instruments.decode.window.measure`. Numbers are judged
by sign and order, not by size.
"""

from __future__ import annotations

import math

import pandas as pd

from flowscope.lab.statements import (
    Agreement,
    Statement,
    chance_of,
    not_compared,
    side_of,
    statement_rows,
)
from flowscope.records import Run

__all__ = ["certificate_statements"]

_TABLE = "8.3, Table 1"
_ANOTHER = "the model and the task are others"


def certificate_statements(run: Run) -> pd.DataFrame:
    """Every statement of Track D against the tables of a run."""
    reading = _Reading(run)
    makers = [
        reading.strict,
        reading.calibrated,
        reading.widths,
        reading.inside,
        reading.stability,
        reading.corrected,
        reading.beyond_confidence,
        reading.prophet,
        reading.threshold,
        reading.tasks,
    ]
    return statement_rows(makers)


class _Reading:
    """Looks numbers up in a run; what is not there is "not measured"."""

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, set(run.tables())

    def _row(self, rule: str, width: float | None = None) -> dict[str, float]:
        """Row of a rule; the widest window without a width. Empty where there is none."""
        if "window" not in self._known:
            return {}
        frame = self._run.read_table("window")
        frame = frame[frame["rule"] == rule]
        width = frame["W"].max() if width is None and len(frame) else width
        frame = frame[frame["W"] == width]
        return {str(k): v for k, v in frame.iloc[0].to_dict().items()} if len(frame) else {}

    def strict(self) -> Statement:
        says = "with the strict setting (δ = 1e-8, Ω = 3) coverage is 0.00 % on all tasks"
        rule = f"yes when no blank is certified at either width; {_ANOTHER}"
        rows = [self._row("strict, published", width) for width in (12, 8)]
        if not all(rows):
            return not_compared("strict coverage", _TABLE, says, rule)
        shares = [row["coverage"] for row in rows]
        return Statement(
            item="strict coverage", where=_TABLE, says=says, rule=rule,
            measured=f"{shares[0]:.2%} at W = 12, {shares[1]:.2%} at W = 8 (sudoku; δ read as the "
            "largest divergence of a window, Ω as windows in a row)",
            agrees="yes" if not any(shares) else "no",
        )  # fmt: skip

    def calibrated(self) -> Statement:
        says = "with τ = .5, δ = 1e-6, Ω = 2 coverage at W = 12 is 6.25 % on sudoku, up to 6.25 %"
        rule = (
            f"yes when some blanks are certified and the interval ends below one half; {_ANOTHER}"
        )
        row = self._row("calibrated, published", 12)
        if not row:
            return not_compared("calibrated coverage", _TABLE, says, rule)
        low, high = row["coverage_low"], row["coverage_high"]
        agrees: Agreement = "yes" if row["coverage"] > 0 and high < 0.5 else "no"
        return Statement(
            item="calibrated coverage", where=_TABLE, says=says, rule=rule,
            measured=f"{row['coverage']:.2%} [{low:.2%}, {high:.2%}] at W = 12 (τ read as the "
            "temperature of the laws)",
            agrees=agrees, by_chance=chance_of(),
        )  # fmt: skip

    def widths(self) -> Statement:
        says = "coverage at W = 12 (6.25 %) exceeds coverage at W = 8 (0.00 %) on sudoku"
        rule = (
            "an identity: a window of 12 that passes holds windows of 8 that pass, because their "
            "divergence is smaller, their least margin larger and they hold no more flips; so no "
            "model can agree"
        )
        wide, narrow = (self._row("published", width) for width in (12, 8))
        if not wide or not narrow:
            return not_compared("coverage by width", _TABLE, says, rule)
        return Statement(
            item="coverage by width", where=_TABLE, says=says, rule=rule,
            measured=f"{wide['coverage']:.1%} at W = 12, {narrow['coverage']:.1%} at W = 8",
            agrees="yes" if wide["coverage"] > narrow["coverage"] else "no",
        )  # fmt: skip

    def inside(self) -> Statement:
        says = "no flips occur across a window that passes"
        rule = "yes when no passing window holds two leading tokens, by any rule (a theorem)"
        if "window" not in self._known:
            return not_compared("flips inside", "8.3", says, rule)
        frame = self._run.read_table("window")
        frame = frame[frame["inside_flips"].notna()]
        flips = float(frame["inside_flips"].max()) if len(frame) else 0.0
        return Statement(
            item="flips inside", where="8.3", says=says, rule=rule,
            measured=f"{flips:.2%} of the passing windows, by the rule with most",
            agrees="yes" if not flips else "no",
        )  # fmt: skip

    def _stable(self, item: str, rule_name: str, says: str) -> Statement:
        rule = "no when a certified blank is filled with another token later"
        row = self._row(rule_name)
        if not row or math.isnan(row["later_flips"]):
            return not_compared(item, "8.3", says, rule, "no blank is certified on this model")
        flips = row["later_flips"]
        return Statement(
            item=item, where="8.3", says=says, rule=rule,
            measured=f"W = {row['W']:g}: {row['coverage']:.1%} of the blanks are certified, "
            f"{flips:.1%} [{row['later_flips_low']:.1%}, {row['later_flips_high']:.1%}] of these "
            "are filled with another token later",
            agrees="no" if flips > 0 else "cannot be told",
        )  # fmt: skip

    def stability(self) -> Statement:
        return self._stable(
            "label stability", "published", "the certificate guarantees label stability"
        )

    def corrected(self) -> Statement:
        return self._stable(
            "the same, corrected",
            "corrected",
            "the certificate guarantees label stability (here with √(W D/2) and half the margin)",
        )

    def beyond_confidence(self) -> Statement:
        says = "the certificate is a deploy-time guard that confidence alone is not"
        rule = (
            "later flips of certified blanks against those of equally many blanks at the same "
            "passes with the highest confidence: yes when the interval lies below, no when above"
        )
        row = self._row("published")
        if not row or math.isnan(row["later_flips"]) or math.isnan(row["confident_flips"]):
            return not_compared("beyond confidence", "8.3, N.5", says, rule)
        other = row["confident_flips"]
        low, high = row["later_flips_low"], row["later_flips_high"]
        return Statement(
            item="beyond confidence", where="8.3, N.5", says=says, rule=rule,
            measured=f"certified: {row['later_flips']:.1%} [{low:.1%}, {high:.1%}] change later; "
            f"by confidence: {other:.1%}",
            agrees=side_of(other - high, other - low), by_chance=chance_of(),
        )  # fmt: skip

    def _published(self, policy: str, item: str, where: str, says: str) -> Statement:
        rule = "same answers as the reference: no when the interval lies below 95 %, yes above"
        if "policies" not in self._known:
            return not_compared(item, where, says, rule)
        frame = self._run.read_table("policies")
        frame = frame[(frame["policy"] == policy) & (frame["kind"] == "published")]
        if not len(frame):
            return not_compared(item, where, says, rule, "the policy was not asked for")
        row = frame.iloc[0]
        return Statement(
            item=item, where=where, says=says, rule=rule,
            measured=f"{row['same']:.1%} [{row['same_low']:.1%}, {row['same_high']:.1%}] of the "
            f"answers stay, {row['saved']:.0%} of the passes are left out",
            agrees=side_of(row["same_low"], row["same_high"], above=0.95), by_chance=chance_of(),
        )  # fmt: skip

    def prophet(self) -> Statement:
        return self._published(
            "prophet", "Prophet's thresholds", "arXiv 2508.19982",
            "committing at mean logit gaps of 7.5, 5 and 2.5 keeps the quality",
        )  # fmt: skip

    def threshold(self) -> Statement:
        return self._published(
            "threshold", "a threshold of .9", "Fast-dLLM, arXiv 2505.22618",
            "filling all tokens above .9 costs almost nothing",
        )  # fmt: skip

    def tasks(self) -> Statement:
        return not_compared(
            "GSM8K, MATH, countdown", _TABLE,
            "coverage at W = 12, calibrated: 4.69 %, 1.56 %, 0.00 %",
            "not compared: the bundled denoiser fills sudoku; a loaded LLaDA or Dream model can "
            "be given in Python",
        )  # fmt: skip
