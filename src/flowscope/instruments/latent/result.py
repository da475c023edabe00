"""What ``flowscope latent`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Latent"]

_ABSENT = "the run has no such table; its measurements say why"


class Latent(Result):
    """The cloud of tokens at every layer: tables, verdicts and the run folder that holds them."""

    @property
    def flow(self) -> pd.DataFrame | Unavailable:
        """Change of entropy in every block and its terms, and the effective potential."""
        return self.table_or_reason("rates", missing=_ABSENT)

    @property
    def clustering(self) -> pd.DataFrame | Unavailable:
        """Attention of every block beside attention of particles on a sphere."""
        return self.table_or_reason("clustering", missing=_ABSENT)

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: every layer, clustering and the verdicts."""
        named = {"samples": "samples", "layers": "layers", "clustering": "clustering"}
        rows = {
            key: plain_rows(self.tables[name]) if name in self.tables else []
            for key, name in named.items()
        }
        return {**super().to_json(), **rows}
