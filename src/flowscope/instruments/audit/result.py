"""What ``flowscope audit`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows

__all__ = ["Audit"]


class Audit(Result):
    """A finished audit: its verdicts, its tables, and the run folder that holds them."""

    @property
    def segments(self) -> pd.DataFrame:
        """One row per segment of depth, with the decision of the gate and its reason."""
        return self.tables["segments"]

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: verdicts, segments, and where the tables are."""
        known = "segments" in self.run.tables()
        return {**super().to_json(), "segments": plain_rows(self.segments) if known else []}
