"""One experiment of the sources in one command: an audit, what it lacks, and a table of claims."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.evidence import resampled_counts
from flowscope.records import Run, Unavailable
from flowscope.runs.audit import Audit, prepared
from flowscope.runs.auditor import Auditor, Progress
from flowscope.runs.batches import Prompts, batches_of
from flowscope.runs.bridge_reading import bridge_control, bridge_reading, central
from flowscope.runs.calibration import calibration
from flowscope.runs.flow_stage import AHEAD
from flowscope.runs.identification import identification_table
from flowscope.runs.loading import Loaded
from flowscope.runs.paths import Paths, following_tokens, sampled_paths
from flowscope.runs.statements import statement_table
from flowscope.runs.studies import TrackT, study_file

__all__ = ["Reproduction", "reproduce", "reproduced"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """A finished study: its claims beside what was measured, in the folder of its audit."""

    run: Run
    study: str

    @property
    def claims(self) -> pd.DataFrame:
        """One row per claim: what the source says, what was measured, whether they agree."""
        return self.run.read_table(self.study)

    @property
    def audit(self) -> Audit:
        """The audit underneath."""
        return Audit(run=self.run)

    def to_json(self) -> dict[str, Any]:
        """A document of plain values."""
        claims = json.loads(self.claims.to_json(orient="records"))
        return {"study": self.study, "claims": claims, **self.audit.to_json()}


def reproduce(
    study: str,
    model: str | None = None,
    *,
    progress: Progress | None = None,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    **audit: Any,
) -> Reproduction:
    """One experiment of the sources on a model, and where the two disagree.

    Parameters
    ----------
    study
        Its name, e.g. ``"track_t"`` (`studies` lists them).
    model
        Anything a command takes: a folder, a hub id, a .gguf file; the bundled model when None.
    progress
        Called with (stage, done, total).
    file
        Settings to use instead of those that ship with the study.
    overrides
        ``"a.b=c"`` assignments, as ``--set`` takes them.
    **audit
        Fields of `AuditConfig` that replace those of the study.

    Raises
    ------
    InvalidInputError
        For an unknown study or setting.
    """
    chosen = study_file(study) if file is None else file
    given = {"model": model, **audit}
    own = [
        f"audit.{name}={json.dumps(value)}" for name, value in given.items() if value is not None
    ]
    return reproduced(TrackT.resolved({}, [*own, *overrides], chosen), progress)


def reproduced(config: TrackT, progress: Progress | None = None) -> Reproduction:
    """Run a study; its audit, if it was run before in the same folder, is taken up again.

    Parameters
    ----------
    config
        As `TrackT.resolved` gives it, from the study's YAML and what was overridden.
    progress
        Called with (stage, done, total).
    """
    told: Progress = progress or (lambda stage, done, total: None)
    loaded, prompts = prepared(config.audit)
    run = Auditor(loaded, prompts, config.audit, None, progress).run()
    more = _More(config, loaded, prompts, run, told)
    more.identification()
    more.from_paths()
    run.write_table(config.study, statement_table(run))
    return Reproduction(run=run, study=config.study)


@dataclass(frozen=True, eq=False)
class _More:
    """What the study measures beyond the audit."""

    config: TrackT
    loaded: Loaded
    prompts: Prompts
    run: Run
    progress: Progress

    def _longest(self) -> tuple[int, int] | None:
        """First and last layer of the longest segment that passed P0."""
        if "segments" not in self.run.tables():
            return None
        table = self.run.read_table("segments")
        passing = table[table["decision"] == "holds"]
        if passing.empty:
            return None
        lengths = (passing["last_layer"] - passing["first_layer"]).to_numpy()
        row = passing.iloc[int(lengths.argmax())]
        return int(row["first_layer"]), int(row["last_layer"])

    def identification(self) -> None:
        """Same weights with finer steps, on the longest segment that passed P0."""
        longest = self._longest()
        if longest is None or self.prompts.images:
            return
        few = self.prompts.first(self.config.refined_prompts)
        table = identification_table(
            self.loaded.model,
            lambda: batches_of(self.loaded, few, self.config.audit.batch),
            self.config.refinements,
            first=longest[0],
            last=longest[1],
            positions=self.config.refined_positions,
            rank=self.config.refined_rank,
            advance=lambda done, total: self.progress("refining", done, total),
        )
        if not isinstance(table, Unavailable):
            self.run.write_table("identification", table)

    def from_paths(self) -> None:
        """What needs paths again: the bridge equation, and the temperature of the output."""
        if self.prompts.images:
            return
        audit = self.config.audit
        paths = sampled_paths(
            self.loaded.model,
            batches_of(self.loaded, self.prompts, audit.batch),
            prompts=len(self.prompts),
            positions=audit.flow_positions,
            close=1,
        )
        if not isinstance(paths, Unavailable):
            self._bridge(paths)
            self._output_temperature(paths)

    def _bridge(self, paths: Paths) -> None:
        """The HJB residual over the central layers of the longest segment, and its control."""
        longest, audit = self._longest(), self.config.audit
        if longest is None:
            return
        first, last = longest
        self.progress("bridge", 0, 2)
        layers = central(paths, first, last, audit.rotation_layers, audit.rotation_rank, audit.seed)
        told = []
        if not isinstance(layers, Unavailable):
            control = bridge_control(layers, 1 / paths.layers, audit.seed)
            for done, (name, one) in enumerate({"model": layers, "bridge": control}.items()):
                found = bridge_reading(one, audit.seed)
                self.progress("bridge", done + 1, 2)
                if not isinstance(found, Unavailable):
                    told.append(found.assign(data=name))
        if len(told) == 2:
            self.run.write_table("bridge", pd.concat(told, ignore_index=True))

    def _output_temperature(self, paths: Paths) -> None:
        """Mobility and calibration as the temperature of the output is swept."""
        kind, audit = self.loaded.kind, self.config.audit
        if kind not in AHEAD:
            return
        self.progress("calibration", 0, 1)
        found = calibration(
            paths,
            following_tokens(paths, self.prompts.items, ahead=AHEAD[kind]),
            self.config.output_temperatures,
            resampled_counts(len(self.prompts), resamples=audit.resamples, seed=audit.seed),
            seed=audit.seed,
        )
        self.run.write_table("output_temperature", found.table)
        self.run.write_measurements([*self.run.read_measurements(), found.gain])
        self.progress("calibration", 1, 1)
