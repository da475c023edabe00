"""One experiment of the sources in one command: what it measures, and a table of claims."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.lab.progress import Progress
from flowscope.records import Run, Unavailable
from flowscope.runs.audit import Audit
from flowscope.runs.config import Config
from flowscope.runs.regime_study import diffusion_attention_run
from flowscope.runs.studies import (
    DiffusionAttention,
    SynchronizationGap,
    TrackI,
    TrackT,
    study_file,
)
from flowscope.runs.sync_study import synchronization_gap_run
from flowscope.runs.track_i import track_i_run
from flowscope.runs.track_t import track_t_run

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """A finished study: its claims beside what was measured, in one run folder."""

    run: Run
    study: str

    @property
    def claims(self) -> pd.DataFrame:
        """One row per claim: what the source says, what was measured, whether they agree."""
        return self.run.read_table(self.study)

    @property
    def source(self) -> str:
        """Number of the source that makes the claims."""
        return _STUDIES[self.study].source

    def report(self, folder: str | Path | None = None) -> Path:
        """Write ``report.html`` and the figures; into a copy of the run when a folder is given."""
        return Audit(run=self.run).report(folder)

    def to_json(self) -> dict[str, Any]:
        """A document of plain values."""
        claims = json.loads(self.claims.to_json(orient="records"))
        base = Audit(run=self.run).to_json()
        resolved = self.run.read_manifest().config_resolved
        if not isinstance(resolved, Unavailable) and resolved.get("command") in ("sync", "image"):
            base["measured"] = dict(resolved["measured"])
        return {"study": self.study, "source": self.source, "claims": claims, **base}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Study:
    """A study: its settings, the group of them that says what is read, its source, its job."""

    config: type[Config]
    reading: str
    source: str
    job: Callable[[Any, Progress], Run]


def reproduce(
    study: str,
    model: str | None = None,
    *,
    progress: Progress | None = None,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    **reading: Any,
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
    **reading
        Fields of the study's `AuditConfig`, `HeadsConfig`, `SyncConfig` or `ImageConfig` that
        replace those of its file.

    Raises
    ------
    InvalidInputError
        For an unknown study or setting.
    """
    chosen = study_file(study)
    if study not in _STUDIES:
        raise InvalidInputError(f"The study {study!r} has settings and no code to run them.")
    plan, given = _STUDIES[study], {"model": model, **reading}
    own = [
        f"{plan.reading}.{name}={json.dumps(value)}"
        for name, value in given.items()
        if value is not None
    ]
    config = plan.config.resolved({}, [*own, *overrides], chosen if file is None else file)
    run = plan.job(config, progress or (lambda stage, done, total: None))
    return Reproduction(run=run, study=study)


_STUDIES = {
    "diffusion_attention": _Study(
        config=DiffusionAttention, reading="heads", source="002", job=diffusion_attention_run
    ),
    "synchronization_gap": _Study(
        config=SynchronizationGap, reading="sync", source="004", job=synchronization_gap_run
    ),
    "track_i": _Study(config=TrackI, reading="image", source="000", job=track_i_run),
    "track_t": _Study(config=TrackT, reading="audit", source="000", job=track_t_run),
}
