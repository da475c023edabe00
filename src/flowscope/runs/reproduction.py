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
from flowscope.runs.calibration import calibration
from flowscope.runs.flow_stage import AHEAD
from flowscope.runs.identification import identification_table
from flowscope.runs.loading import Loaded
from flowscope.runs.paths import following_tokens, sampled_paths
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
    more.output_temperature()
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

    def identification(self) -> None:
        """Same weights with finer steps, on the longest segment that passed P0."""
        segments = self.run.read_table("segments") if "segments" in self.run.tables() else None
        if segments is None:
            return
        passing = segments[segments["decision"] == "holds"]
        if passing.empty or self.prompts.images:
            return
        lengths = (passing["last_layer"] - passing["first_layer"]).to_numpy()
        longest = passing.iloc[int(lengths.argmax())]
        few = self.prompts.first(self.config.refined_prompts)
        table = identification_table(
            self.loaded.model,
            lambda: batches_of(self.loaded, few, self.config.audit.batch),
            self.config.refinements,
            first=int(longest["first_layer"]),
            last=int(longest["last_layer"]),
            positions=self.config.refined_positions,
            rank=self.config.refined_rank,
            advance=lambda done, total: self.progress("refining", done, total),
        )
        if not isinstance(table, Unavailable):
            self.run.write_table("identification", table)

    def output_temperature(self) -> None:
        """Mobility and calibration as the temperature of the output is swept."""
        kind, audit = self.loaded.kind, self.config.audit
        if kind not in AHEAD:
            return
        self.progress("calibration", 0, 1)
        paths = sampled_paths(
            self.loaded.model,
            batches_of(self.loaded, self.prompts, audit.batch),
            prompts=len(self.prompts),
            positions=audit.flow_positions,
            close=1,
        )
        if isinstance(paths, Unavailable):
            return
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
