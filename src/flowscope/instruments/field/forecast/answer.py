"""``result.forecast``: the table of the run, which can be called for other changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas as pd

from flowscope.records import Unavailable

__all__ = ["ForecastTable", "NoForecast"]

Ask = Callable[..., pd.DataFrame]


class ForecastTable(pd.DataFrame):
    """What changes of single blocks cost; called with changes, it forecasts those."""

    _metadata: ClassVar[list[str]] = ["_ask"]
    _ask: Ask

    @classmethod
    def of(cls, table: pd.DataFrame, ask: Ask) -> ForecastTable:
        """A table, and the function that answers a call."""
        made = cls(table)
        made._ask = ask
        return made

    def __call__(self, changes: Any, model: Any = None, **more: Any) -> pd.DataFrame:
        """Forecast other changes; see `Field.forecast`."""
        return self._ask(changes, model, **more)


@dataclass(frozen=True)
class NoForecast(Unavailable):
    """Why a run has no table of forecasts; it can be called all the same."""

    ask: Ask = field(repr=False, compare=False, kw_only=True)

    def __call__(self, changes: Any, model: Any = None, **more: Any) -> pd.DataFrame:
        """Forecast changes; see `Field.forecast`."""
        return self.ask(changes, model, **more)
