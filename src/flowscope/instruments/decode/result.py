"""What ``flowscope decode`` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from flowscope.instruments.decode.trial import SECONDS
from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Decode"]

_POLICY = (
    "kind", "threshold", "passes", "rows", "reference_passes", "saved", "same", "accuracy",
    "certified", "alpha", "delta", "n",
)  # fmt: skip


class Decode(Result):
    """Policies and windows of a run, and the run folder that holds them."""

    @property
    def policies(self) -> pd.DataFrame:
        """What every policy costs and changes on the fresh prompts."""
        return self.tables["policies"]

    @property
    def thresholds(self) -> pd.DataFrame:
        """The calibrated threshold of each policy, or why it has none."""
        return self.tables["thresholds"]

    @property
    def window(self) -> pd.DataFrame | Unavailable:
        """What a window of passes certifies, and later flips."""
        return self.table_or_reason("window")

    @property
    def _seconds(self) -> dict[str, float]:
        """Mean time of a prompt by policy and kind; none for what an earlier run measured."""
        for one in self.run.read_measurements():
            if one.name == SECONDS and one.status == "ok":
                names = [str(name) for name in one.coordinates["policy"]]
                times = zip(names, map(float, one.numbers()), strict=True)
                return {name: value for name, value in times if math.isfinite(value)}
        return {}

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: policies, thresholds, windows and the verdicts."""
        document = super().to_json()
        policies = self.table_or_reason("policies", "trial")
        window = self.window
        return {
            **document,
            "task": document["measured"].get("task", ""),
            "policies": []
            if isinstance(policies, Unavailable)
            else [_policy(row, self._seconds) for row in plain_rows(policies)],
            "thresholds": plain_rows(self.tables["thresholds"])
            if "thresholds" in self.tables
            else [],
            "window": [] if isinstance(window, Unavailable) else plain_rows(window),
        }


def _policy(row: dict[str, Any], seconds: Mapping[str, float]) -> dict[str, Any]:
    ends = {
        f"{name}_interval": [row[f"{name}_low"], row[f"{name}_high"]]
        for name in ("same", "saved", "accuracy")
    }
    times = {
        "seconds": seconds.get(f"{row['policy']}, {row['kind']}"),
        "reference_seconds": seconds.get("reference, published"),
    }
    return {"name": row["policy"], **{name: row[name] for name in _POLICY}, **times, **ends}
