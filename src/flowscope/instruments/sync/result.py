"""What ``flowscope sync`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Sync"]


class Sync(Result):
    """A finished measurement of coupled replicas, and the run folder that holds its tables."""

    @property
    def commitment(self) -> pd.DataFrame:
        """Midpoints by class, coupling and measure, each with its interval or why it has none."""
        return self.tables["commitment"]

    @property
    def commitment_gap(self) -> pd.DataFrame:
        """Steps by which fine detail commits after coarse structure."""
        return self.tables["commitment_gap"]

    @property
    def internal_gap(self) -> pd.DataFrame | Unavailable:
        """The gap between leading and trailing modes by coupling and layer, with its null."""
        return self.table_or_reason("internal_gap", "internal gap")

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: commitment times per g, and the gap per layer."""
        internal = self.internal_gap
        return {
            **super().to_json(),
            "tau_spec": _times(self.commitment, "feature"),
            "tau_coarse": _times(self.commitment, "coarse"),
            "tau_fine": _times(self.commitment, "fine"),
            "commitment_gap": plain_rows(self.commitment_gap),
            "gap": {"abstained": internal.reason}
            if isinstance(internal, Unavailable)
            else plain_rows(internal),
        }

    def __str__(self) -> str:
        *lines, folder = super().__str__().splitlines()
        for row in _times(self.commitment, "feature"):
            coupling = "shared noise" if row["control"] else f"g = {row['g']:g}"
            lines.append(f"{row['class']}, {coupling}: tau_spec {_in_words(row)}")
        return "\n".join([*lines, folder])


def _times(table: pd.DataFrame, measure: str) -> list[dict[str, Any]]:
    rows = []
    for row in plain_rows(table[table["measure"] == measure]):
        names = ("label", "class", "g", "control", "n", "status")
        document = {name: row[name] for name in names}
        ok = row["status"] == "ok"
        document["midpoint"] = row["midpoint"] if ok else row["status"]
        document["interval"] = [row["low"], row["high"]] if ok else None
        rows.append(document | {"because": row["because"]})
    return rows


def _in_words(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['status']} ({row['because']})"
    low, high = row["interval"]
    return f"{row['midpoint']:.1f} [{low:.1f}, {high:.1f}]"
