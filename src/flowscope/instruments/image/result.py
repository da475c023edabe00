"""What ``flowscope image`` returns."""

from __future__ import annotations

from typing import Any

import pandas as pd

from flowscope.instruments.image.findings import could_have_seen
from flowscope.instruments.image.prediction import PREDICTION
from flowscope.instruments.image.step_sizes import DECIDING
from flowscope.lab.result import Result, plain_rows
from flowscope.records import Unavailable

__all__ = ["Image"]


_NOISE_LIKE = 0.5


class Image(Result):
    """A finished comparison of samplers: its tables, and the run folder that holds them."""

    @property
    def parity(self) -> pd.DataFrame:
        """Distances of the flow from the SDE at every step, with their null."""
        return self.tables["parity"]

    @property
    def weak_error(self) -> pd.DataFrame:
        """Log–log slopes of the error of sampling, by sampler and observable."""
        return self.tables["weak_error_slope"]

    @property
    def rotation(self) -> pd.DataFrame | Unavailable:
        """How much of the learned score turns, at each time."""
        return self.table_or_reason("rotation")

    @property
    def uturn(self) -> pd.DataFrame | Unavailable:
        """What images come back as when they are noised to a time and denoised again."""
        return self.table_or_reason("uturn")

    @property
    def information(self) -> pd.DataFrame | Unavailable:
        """What a state knows of its class, at each step."""
        return self.table_or_reason("information")

    @property
    def family(self) -> pd.DataFrame:
        """What each member of the family makes at equal numbers of steps."""
        return self.tables["family"]

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: parity, weak error, rotation, U-turns."""
        parity = self.table_or_reason("parity")
        slopes = self.table_or_reason("weak_error_slope")
        family = self.table_or_reason("family")
        return {
            **super().to_json(),
            "parity": _whole(parity),
            "weak_error": _rows_or_reason(slopes)
            if isinstance(slopes, Unavailable)
            else _slopes(slopes),
            "rotation": _rows_or_reason(self.rotation),
            "uturn": _rows_or_reason(self.uturn),
            "information": _rows_or_reason(self.information),
            "family": _rows_or_reason(family)
            if isinstance(family, Unavailable)
            else plain_rows(family),
            "could_have_seen": could_have_seen(self.tables),
            "warning": self.warning,
        }

    @property
    def warning(self) -> str | None:
        """Evidence of untrained weights or of a wrong schedule; None if there is none."""
        for one in self.run.read_measurements():
            if one.name == PREDICTION and float(one.numbers()) < _NOISE_LIKE:
                return (
                    f"At its last time the model's output has a correlation of "
                    f"{float(one.numbers()):.2f} with the noise it was given; that of a trained "
                    "predictor of noise is nearly 1. The weights are untrained, or the schedule "
                    "names another prediction type than the model's."
                )
        return None


def _whole(parity: pd.DataFrame | Unavailable) -> Any:
    """Distances over all channels together, or why there are none."""
    if isinstance(parity, Unavailable):
        return {"abstained": parity.reason}
    return [_distances(row) for row in plain_rows(parity[parity["channel"] == "all"])]


def _distances(row: dict[str, Any]) -> dict[str, Any]:
    """One time of the parity: values, intervals and the null."""
    document = {name: row[name] for name in ("step", "time", "log_snr", "tv", "ks")}
    document["tv_interval"] = [row["tv_low"], row["tv_high"]]
    document["ks_interval"] = [row["ks_low"], row["ks_high"]]
    names = ("null", "null_high", "p")
    document["null"] = {f"{d}_{name}": row[f"{d}_{name}"] for d in ("tv", "ks") for name in names}
    return document


def _slopes(table: pd.DataFrame) -> dict[str, Any]:
    """The slope that is judged, of the flow, and all others."""
    rows = [
        row | {"interval": None if row["status"] != "ok" else [row["low"], row["high"]]}
        for row in plain_rows(table)
    ]
    judged = next(r for r in rows if r["sampler"] == "ode" and r["observable"] == DECIDING)
    names = ("sampler", "observable", "slope", "interval", "status", "because")
    return {**{name: judged[name] for name in names}, "all": rows}


def _rows_or_reason(table: pd.DataFrame | Unavailable) -> Any:
    if isinstance(table, Unavailable):
        return {"abstained": table.reason}
    rows = plain_rows(table)
    return [row | ({"interval": [row["low"], row["high"]]} if "low" in row else {}) for row in rows]
