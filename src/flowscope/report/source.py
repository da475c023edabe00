"""What the report reads: the tables, arrays, verdicts, measurements and manifest of a run.

A table, or a column, that is not there raises :class:`~flowscope.records.Missing`, which names
it; the page shows that sentence where the figure would be. A file that *is* there and was
changed since it was written is an error: nothing is shown from a damaged run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.records import (
    Interval,
    Manifest,
    Measurement,
    Missing,
    Run,
    Unavailable,
    Verdict,
)
from flowscope.records.files import is_file, read_file
from flowscope.records.manifest import JUDGING, UNFINISHED
from flowscope.report.parts.downloads import MOST_BYTES
from flowscope.report.spec import Findings, Page

__all__ = ["Source", "column", "read_source", "words"]

_NAMED = 4
"""Files that the caution on a mixed folder names."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Everything the page of a run is built from."""

    page: Page
    manifest: Manifest
    verdicts: tuple[Verdict, ...]
    measurements: tuple[Measurement, ...]
    tables: Mapping[str, pd.DataFrame]
    arrays: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """The tables that a page can hold as a whole, as CSV."""
    findings: Findings = ()
    """What the run says in plain sentences."""
    caution: str = ""
    """Why the numbers are not those of one finished run; empty if they are."""

    def table(self, name: str, *columns: str) -> pd.DataFrame:
        """Table of that name.

        Raises
        ------
        Missing
            The run has no such table, or the table lacks rows or one of these columns.
        """
        frame = self.tables.get(name)
        if frame is None:
            raise Missing(f"this run has no table “{name}” ({self.page.purposes[name]})")
        absent = [wanted for wanted in columns if wanted not in frame]
        if absent:
            raise Missing(f"the table “{name}” has no column {', '.join(absent)}")
        if frame.empty:
            raise Missing(f"the table “{name}” has no rows")
        return frame

    def rows(self, name: str, *columns: str) -> pd.DataFrame:
        """Table of that name if it is there and has these columns, else a table without rows."""
        try:
            return self.table(name, *columns)
        except Missing:
            return pd.DataFrame()

    def withheld(self, lack: Missing, *verdicts: str) -> Missing:
        """Why a table is not there: the reason of its verdicts where none of them was measured.

        Parameters
        ----------
        lack
            What is missing, which is said where the verdicts were measured or give two reasons.
        verdicts
            Names of the verdicts that are judged on the table.
        """
        judged = [verdict for verdict in self.verdicts if verdict.name in verdicts]
        reasons = {verdict.statistic.because for verdict in judged}
        silent = all(verdict.statistic.status != "ok" for verdict in judged)
        return Missing(reasons.pop()) if silent and len(reasons) == 1 else lack

    def noted(self, lack: Missing, *names: str) -> Missing:
        """Why something is not there: the reason of the last of these measurements that abstained.

        Parameters
        ----------
        lack
            What is missing, which is said where none of the measurements abstained.
        names
            Names of measurements.
        """
        reasons = {m.name: m.because for m in reversed(self.measurements) if m.status != "ok"}
        said = [reasons[name] for name in names if name in reasons]
        return Missing(said[-1]) if said else lack

    def why(self, lack: Missing, *names: str, table: str = "", verdicts: Sequence[str] = ()
            ) -> Missing:  # fmt: skip
        """Why a figure is not there, in the words that a reader is shown.

        Parameters
        ----------
        lack
            What is missing.
        names
            Measurements whose reason is given instead where they abstained; the last one counts.
        table, verdicts
            Where this table is not there, the common reason of these verdicts is given instead,
            if none of them was measured.
        """
        if table and table not in self.tables:
            lack = self.withheld(lack, *verdicts)
        return self.noted(lack, *names)

    @property
    def study(self) -> bool:
        """Whether this run is a study of a source: it holds a table that only a study writes."""
        return any(name in self.tables for name in self.page.study_tables)

    @property
    def expected(self) -> dict[str, str]:
        """Tables that a run of this kind should have, and what each is for."""
        of_study = self.page.study_tables if self.study else {}
        alone = any(name in self.tables for name in self.page.alone)
        return {**({} if alone else self.page.tables), **of_study}

    def setting(self, name: str) -> Any:
        """Entry of the resolved configuration, or of the given one; None where there is none."""
        for config in (self.manifest.config_resolved, self.manifest.config_given):
            if isinstance(config, Mapping) and name in config:
                return config[name]
        return None

    @property
    def model(self) -> str:
        """Name of the model, as the configuration gives it."""
        for config in (self.manifest.config_resolved, self.manifest.config_given):
            if isinstance(config, Mapping) and isinstance(config.get("model"), str):
                return _last_part(str(config["model"]))
        return "unnamed model"

    def units(self, *names: str) -> str:
        """How many units (prompts, pairs, …) stand behind a figure, in words.

        Measurements of these names are asked, then verdicts, then the verdict that the page names
        as its basis, which is judged on the same units.
        """
        known = next((m.n for m in self._stated(*names) if m.n), 0)
        measured = self.setting("measured") if self.page.counted else None
        if not known and isinstance(measured, Mapping):
            known = measured.get(self.page.counted, 0)
        what = self.page.units
        return f"n = {known} {what}" if known else f"the number of {what} was not recorded"

    @property
    def usual_intervals(self) -> str:
        """How the intervals of the page were made where no caption says so; else empty."""
        verdicts = (v for v in self.verdicts if v.name == self.page.basis)
        made = next((v.statistic.interval for v in verdicts), None)
        return _method(made) if isinstance(made, Interval) else ""

    def basis(self, *names: str) -> str:
        """How many units stand behind a figure, and how its intervals were made if unusually."""
        intervals = (m.interval for m in self._stated(*names))
        made = next((i for i in intervals if isinstance(i, Interval)), None)
        if made is None:
            return f"{self.units(*names)}; how the intervals were made was not recorded"
        method = _method(made)
        said = "" if method == self.usual_intervals else f"; intervals: {method}"
        return f"{self.units(*names)}{said}"

    def _stated(self, *names: str) -> list[Measurement]:
        own = [m for name in names for m in self.measurements if m.name == name]
        keys = (*names, self.page.basis)
        return own + [v.statistic for name in keys for v in self.verdicts if v.name == name]


def _method(interval: Interval) -> str:
    return f"{100 * interval.level:g}\u00a0%, {interval.method}"


def _last_part(model: str) -> str:
    """Name of a model; of a path to a folder, the folder: the way there is in the manifest."""
    if model.startswith(("/", "~", ".")) or "\\" in model:
        return PurePath(model.replace("\\", "/")).name or model
    return model


def read_source(run: Run, page: Page) -> Source:
    """Read the tables and arrays that the page declares from a run folder, verified.

    Raises
    ------
    RecordError
        A file is there and damaged.
    """
    present = [name for name in run.tables() if name in page.purposes]
    manifest = run.read_manifest()
    return Source(
        page=page,
        manifest=manifest,
        caution=_caution(run, manifest),
        verdicts=run.read_verdicts() if is_file(run.folder / "verdicts.json") else (),
        measurements=run.read_measurements() if is_file(run.folder / "measurements.json") else (),
        tables={name: run.read_table(name) for name in present},
        texts=_texts(run, present),
        findings=page.findings(run),
        arrays={name: run.read_arrays(name) for name in run.arrays() if name in page.arrays},
    )


def _caution(run: Run, manifest: Manifest) -> str:
    """Sentence for the first screen of a run that is unfinished or mixed."""
    time = manifest.wall_time
    if isinstance(time, Unavailable) and time.reason == UNFINISHED.reason:
        return (
            "This run has not finished: it is being measured, or it was interrupted. Tables and "
            "verdicts are missing or incomplete. Run the same command again to finish it."
        )
    if isinstance(manifest.files, Unavailable) and manifest.files.reason == JUDGING.reason:
        return (
            "The verdicts of this run are being made again, or that was interrupted. Judge it once "
            "more with flowscope report RUN --judge."
        )
    strange = run.strange_files()
    if not strange:
        return ""
    named = ", ".join(strange[:_NAMED]) + (" and others" if len(strange) > _NAMED else "")
    return (
        f"This folder is mixed: {named} did not come from the run that the manifest describes, or "
        "changed after it. Do not use these numbers: measure again into another folder."
    )


def _texts(run: Run, names: Sequence[str]) -> dict[str, str]:
    contents = {name: read_file(run.folder / "tables" / f"{name}.csv") for name in names}
    return {name: csv.decode() for name, csv in contents.items() if len(csv) <= MOST_BYTES}


def column(frame: pd.DataFrame, name: str) -> list[float]:
    """Numbers of a column; NaN where there is none, or no such column."""
    if name not in frame:
        return [math.nan] * len(frame)
    return [float(cell) for cell in pd.to_numeric(frame[name], errors="coerce")]


def words(frame: pd.DataFrame, name: str) -> list[str]:
    """Text of a column; empty where there is none, or no such column."""
    if name not in frame:
        return [""] * len(frame)
    return ["" if _absent(cell) else str(cell) for cell in frame[name]]


def _absent(cell: Any) -> bool:
    return cell is None or cell is pd.NA or (isinstance(cell, float) and math.isnan(cell))
