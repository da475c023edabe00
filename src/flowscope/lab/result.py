"""What an instrument returns: verdicts, tables and the run folder that holds them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from flowscope.errors import RecordError
from flowscope.lab.cards import card, fact_table, finding_list, verdict_table
from flowscope.lab.engines.sentence import work_sentence
from flowscope.lab.finding import Finding, findings_of
from flowscope.lab.instrument import Instrument
from flowscope.lab.registry import instrument_of
from flowscope.records import Interval, Measurement, Run, Unavailable, Verdict
from flowscope.records.files import is_leftover, is_lock
from flowscope.records.verdict_text import reason_text, verdict_label, verdict_line

if TYPE_CHECKING:
    from flowscope.lab.display.plots import Figures

__all__ = ["Result", "Tables", "open_run", "opened", "plain_rows"]


class Tables(Mapping[str, pd.DataFrame]):
    """Tables of a run, as attributes and by name."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._run.tables():
            raise KeyError(f"this run has no table {name!r}; it has {', '.join(self)}")
        return self._run.read_table(name)

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(str(error.args[0])) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.tables())

    def __len__(self) -> int:
        return len(self._run.tables())

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """A finished run of an instrument. Everything is read from the run folder.

    Attributes
    ----------
    run
        The run folder.
    """

    run: Run

    @property
    def instrument(self) -> Instrument:
        """The instrument that made the run."""
        return instrument_of(self.run)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts sorted by name, each with its reason."""
        return self.run.read_verdicts()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the run says in plain sentences, each with its number and what to do next."""
        return findings_of(self.instrument, self.run)

    @property
    def tables(self) -> Tables:
        """Tables of the run: ``result.tables.NAME`` or ``result.tables["NAME"]``."""
        return Tables(self.run)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]

    @property
    def table(self) -> pd.DataFrame:
        """The main table of the instrument."""
        return self.tables[self.instrument.main_table]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Resolved settings, with ``command``, ``model`` and ``measured``."""
        resolved = self.run.read_manifest().config_resolved
        return {} if isinstance(resolved, Unavailable) else resolved

    @property
    def model(self) -> str:
        """Where the model comes from."""
        return str(self.settings.get("model", ""))

    @property
    def abstained(self) -> bool:
        """Whether the run was to decide claims and decides none; the command exits with 3."""
        verdicts = self.verdicts
        decided = any(verdict.outcome in ("holds", "fails") for verdict in verdicts)
        return bool(verdicts) and not decided

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Seconds, device and share of the time of each stage; empty where none were recorded."""
        stages = self.run.read_manifest().stages
        return {} if isinstance(stages, Unavailable) else _plain(stages)

    @property
    def only(self) -> tuple[str, ...]:
        """Names of the claims and stages that the run was restricted to; empty if it was not."""
        return tuple(self.settings.get("only", ()))

    def table_or_reason(
        self, name: str, part: str = "", missing: str = "the part was not measured"
    ) -> pd.DataFrame | Unavailable:
        """A table, or why the run does not have it.

        Parameters
        ----------
        name
            Name of the table.
        part
            Name under which the reason was recorded, where it is not that of the table.
        missing
            The reason where none was recorded.
        """
        if name in self.run.tables():
            return self.run.read_table(name)
        reasons = {m.name: m.because for m in self.run.read_measurements()}
        if self.only:
            missing = f"this run measured only {', '.join(self.only)}"
        return Unavailable(reasons.get(part or name, missing))

    @property
    def figures(self) -> Figures:
        """Figures of the run by name, each with its title and caption."""
        from flowscope.lab.display.plots import Figures

        return Figures(self.run, self.instrument.resolve(self.instrument.page))

    def plot(self, name: str, backend: str = "plotly") -> Any:
        """Figure of the run, drawn from its tables.

        Parameters
        ----------
        name
            One of ``result.figures``.
        backend
            ``"plotly"`` for a `plotly.graph_objects.Figure`, ``"matplotlib"`` for a
            `matplotlib.figure.Figure`.

        Raises
        ------
        InvalidInputError
            There is no figure of that name, or no such back end.
        Missing
            The run lacks a table that the figure shows; the message is the one on the page.
        """
        return self.figures.draw(name, backend)

    def report(self, folder: str | Path | None = None, *, png: bool = False) -> Path:
        """Write ``report.html`` and return its path.

        Parameters
        ----------
        folder
            A new folder: the run is copied there first, and the page is written into the copy.
        png
            Whether each figure is also written as ``figures/NAME.png``.
        """
        from flowscope.report import render

        run = self.run
        if folder is not None and Path(folder).absolute() != run.folder:
            target = Path(folder)
            if target.exists() and any(target.iterdir()):
                raise RecordError(f"{target} is not empty; give a new folder for the report.")
            shutil.copytree(run.folder, target, ignore=_of_a_writer, dirs_exist_ok=True)
            run = Run.open(target)
        instrument = self.instrument
        render(run, instrument.resolve(instrument.page), with_png=png)
        return run.folder / "report.html"

    def judge(self) -> tuple[Verdict, ...]:
        """Judge again from the tables, by the rules of this version; return the verdicts.

        A verdict stays as it is where its stage has no judge, or where a table is missing.
        """
        from flowscope.lab.engine import rejudge

        rejudge(self)
        return self.verdicts

    @property
    def work(self) -> dict[str, Any]:
        """Which processes made the shards, with a sentence; empty where one made them all."""
        found = self.run.read_manifest().work
        sentence = "" if isinstance(found, Unavailable) else work_sentence(found)
        if isinstance(found, Unavailable) or not sentence:
            return {}
        return {**{name: _plain(found[name]) for name in found}, "sentence": sentence}

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: findings, verdicts, how much was read, where the tables are."""
        run, measured = self.run, self.settings.get("measured", {})
        return {
            "model": self.model,
            "measured": {
                name.removesuffix("_measured"): _plain(measured[name]) for name in measured
            },
            "findings": [finding.plain() for finding in self.findings],
            "verdicts": [_plain_verdict(verdict, self.instrument) for verdict in self.verdicts],
            "stages": self.stages,
            "work": self.work,
            "tables": {name: str(run.folder / "tables" / f"{name}.csv") for name in run.tables()},
            "run": str(run.folder),
            "report": str(run.folder / "report.html"),
        }

    def __str__(self) -> str:
        instrument = self.instrument
        lines = [
            verdict_line(
                v.name,
                instrument.title(v.name),
                v.outcome,
                v.because,
                v.strength,
                instrument.gates.get(v.name),
            )
            for v in self.verdicts
        ]
        heading = f"{instrument.name} of {self.model or 'a model'}"
        return "\n".join([heading, *lines, f"run: {self.run.folder}"])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the card of the run: findings, verdicts, tables and the run folder."""
        instrument = self.instrument
        rows = (
            (verdict_label(v.name, instrument.title(v.name)), v.outcome, v.strength,
             reason_text(v.because))
            for v in self.verdicts
        )  # fmt: skip
        facts = (("tables", ", ".join(self.tables)), ("run", str(self.run.folder)))
        return card(
            instrument.name,
            self.model or "a model",
            (),
            finding_list([finding.plain() for finding in self.findings]),
            verdict_table(
                rows,
                {
                    verdict_label(name, instrument.title(name)): words
                    for name, words in instrument.gates.items()
                },
            ),
            fact_table((name, value) for name, value in facts if value),
        )


def open_run(folder: str | Path) -> Result:
    """The result in a run folder, of the class of its instrument; no model is needed.

    Parameters
    ----------
    folder
        A run folder of any instrument, e.g. one that ``flowscope runs`` lists.

    Raises
    ------
    RecordError
        The folder is no run, or is of a newer version of flowscope.
    InvalidInputError
        The run names an instrument that is not installed.
    """
    if not isinstance(folder, (str, Path)):
        raise RecordError(f"a run folder is given by its path; got {type(folder).__name__}.")
    run = Run.open(folder)
    instrument = instrument_of(run)
    result: Result = instrument.resolve(instrument.result)(run=run)
    return result


opened = open_run
"""The earlier name of `open_run`."""


def _of_a_writer(folder: str, names: list[str]) -> set[str]:
    """Files that belong to a process that writes the run: its lock, and what is half written."""
    paths = (Path(folder) / name for name in names)
    return {path.name for path in paths if is_lock(path) or is_leftover(path)}


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as plain values; None where there is no number."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _plain_verdict(verdict: Verdict, instrument: Instrument) -> dict[str, Any]:
    statistic = verdict.statistic
    return {
        "name": verdict.name,
        "title": instrument.title(verdict.name),
        "gate": verdict.name in instrument.gates,
        "gate_words": list(instrument.gates.get(verdict.name, ())),
        "decision": verdict.decision,
        "outcome": verdict.outcome,
        "strength": verdict.strength,
        "statistic": _single_number(statistic),
        "interval": _plain_ends(statistic.interval),
        "null": _single_number(verdict.null),
        "effect": _plain_number(verdict.effect),
        "effect_interval": _plain_ends(verdict.interval),
        "p": _plain_number(verdict.p),
        "because": verdict.because,
        "claim": verdict.claim,
        "n": statistic.n,
    }


def _single_number(measurement: Measurement | Unavailable) -> float | None:
    if isinstance(measurement, Unavailable) or measurement.status != "ok":
        return None
    return _plain_number(float(measurement.numbers()))


def _plain_number(value: Any) -> float | None:
    """A number that JSON can hold; None where there is none, or where it is not finite."""
    if isinstance(value, Unavailable) or not math.isfinite(value):
        return None
    return float(value)


def _plain_ends(interval: Interval | Unavailable) -> list[float | None] | None:
    """Both ends of an interval; None for an end that is open."""
    if isinstance(interval, Unavailable):
        return None
    return [_plain_number(float(interval.low)), _plain_number(float(interval.high))]
