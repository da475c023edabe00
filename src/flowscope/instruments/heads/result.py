"""What ``flowscope heads`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Heads"]


class Heads(Result):
    """The Markov geometry of every head: one row each, and the run folder that holds them."""

    @property
    def dials(self) -> pd.DataFrame | Unavailable:
        """Change of the loss for each dial, with a random perturbation of equal norm."""
        return self.table_or_reason("dials", missing="dials are switched off")

    @property
    def abstained(self) -> bool:
        """Whether no head can be labelled; a run without heads decides as any other."""
        if not self._read:
            return super().abstained
        return bool((self.table["label"] == "refused").all())

    @property
    def _read(self) -> bool:
        """Whether the run read the heads; one of a selected stage may not."""
        return self.instrument.main_table in self.tables

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: every head, the verdicts, and where the tables are."""
        rows = plain_rows(self.table) if self._read else []
        for row in rows:
            low, high = row["entropy_production_low"], row["entropy_production_high"]
            row["interval"] = None if low is None or high is None else [low, high]
        labels = plain_rows(self.tables["labels"]) if "labels" in self.tables else []
        chain = self.settings.get("chain")
        return {**super().to_json(), "chain": chain, "heads": rows, "labels": labels}

    def __str__(self) -> str:
        if not self._read:
            return super().__str__()
        first, *lines = super().__str__().splitlines()
        top = self.table.nlargest(10, "entropy_production")
        shown = [
            f"layer {row['layer']} head {row['head']}: {row['entropy_production']:.3g} nats per "
            f"step, {row['label']}"
            for _, row in top.iterrows()
        ]
        return "\n".join([first, *lines[:-1], *shown, lines[-1]])
