"""What ``flowscope field`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Field"]

_ABSENT = "the run has none; its measurements say why"


class Field(Result):
    """What each block does to the tokens: one row each, and the run folder that holds them."""

    @property
    def forecast(self) -> pd.DataFrame | Unavailable:
        """What changes of single blocks cost."""
        return self.table_or_reason("forecast", missing=_ABSENT)

    @property
    def interventions(self) -> pd.DataFrame | Unavailable:
        """What scaling or removing writes, residual and norms of all blocks does."""
        return self.table_or_reason("interventions", missing=_ABSENT)

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: every block, forecasts, interventions and the verdicts."""
        names = ("blocks", "forecast", "interventions")
        rows = {
            name: plain_rows(self.tables[name]) if name in self.tables else [] for name in names
        }
        return {**super().to_json(), **rows}
