"""What ``flowscope field`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.instruments.field.forecast.answer import ForecastTable, NoForecast
from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Field"]

_ABSENT = "the run has none; its measurements say why"


class Field(Result):
    """What each block does to the tokens: one row each, and the run folder that holds them."""

    @property
    def forecast(self) -> ForecastTable | NoForecast:
        """What changes of single blocks cost; call it to forecast others.

        ``result.forecast(changes, model=None, *, texts=None, tokenizer=None, draws=None)`` takes
        pairs (layer, change), layers from 1 as in the table, with `Skip`, `Quantise` or `Scale`
        of `flowscope.probes.field.changes`. One set of backward passes over half of the prompts
        serves all of them; the change with the largest forecast and three others at random are
        measured on the other half. The model of the run is loaded again where none is given, with
        its texts; a model or texts that were given in Python are given again.
        """
        table = self.table_or_reason("forecast", missing=_ABSENT)
        if isinstance(table, Unavailable):
            return NoForecast(table.reason, ask=self._forecast_of)
        return ForecastTable.of(table, self._forecast_of)

    def _forecast_of(self, changes: Any, model: Any = None, **more: Any) -> pd.DataFrame:
        ask = self.instrument.resolve("forecast.call.forecast_of_run")
        rows: pd.DataFrame = ask(self.run, self.settings, changes, model, **more)
        return rows

    @property
    def interventions(self) -> pd.DataFrame | Unavailable:
        """What scaling or removing writes, residual and norms of all blocks does."""
        return self.table_or_reason("interventions", missing=_ABSENT)

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: every block, forecasts, interventions and the verdicts."""
        names = ("blocks", "forecast", "forecast_kinds", "interventions")
        rows = {
            name: plain_rows(self.tables[name]) if name in self.tables else [] for name in names
        }
        return {**super().to_json(), **rows}
