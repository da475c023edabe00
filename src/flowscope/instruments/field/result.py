"""What ``flowscope field`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Field"]

_ABSENT = "the run has no forecast; its measurements say why"


class Field(Result):
    """What each block does to the tokens: one row each, and the run folder that holds them."""

    @property
    def forecast(self) -> pd.DataFrame | Unavailable:
        """What changes of single blocks cost."""
        return self.table_or_reason("forecast", missing=_ABSENT)

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: every block, forecasts and the verdicts."""
        named = {"blocks": "blocks", "forecast": "forecast"}
        rows = {
            key: plain_rows(self.tables[name]) if name in self.tables else []
            for key, name in named.items()
        }
        return {**super().to_json(), **rows}
