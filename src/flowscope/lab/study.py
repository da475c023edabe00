"""Studies: an experiment of a source in one command, with a table of what agrees.

A study belongs to one instrument. It runs that instrument with settings of its own, may add stages
after those of the instrument, and states each claim of the source beside what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from flowscope.errors import InvalidInputError
from flowscope.lab import engine, registry
from flowscope.lab.claim import Table
from flowscope.lab.config import Config, read_settings
from flowscope.lab.engines.choice import LOCAL, EngineChoice
from flowscope.lab.instrument import Instrument, Stage, resolved_reference
from flowscope.lab.result import Result, plain_rows
from flowscope.lab.running.bars import displayed_progress
from flowscope.lab.running.progress import Progress
from flowscope.records import Run
from flowscope.report.parts.chance import Chance, chance_of_claims

__all__ = ["Reproduction", "Study", "reproduce"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment of a source on a model.

    Attributes
    ----------
    name, home
        Name of the study, which is also that of its table of claims; the package that declares it.
    source
        Number of the source that makes the claims.
    config
        Settings: those of the instrument as the group ``reading``, and the study's additions.
    reading
        Name of that group.
    settings
        File with the settings of the study, beside ``home``.
    statements
        Reference to a function of the finished run that returns the table of claims.
    stages
        What the study measures beyond its instrument.
    tables
        Tables that only the study writes, the table of claims among them.
    prepare
        Reference to ``(settings of the study) -> subject`` for a study that makes its subject
        itself, e.g. trains its networks: it takes no model, and the stages of its instrument do not
        run. Empty for a study of the instrument's subject.
    gpu
        Whether its settings take hours without a GPU: ``reproduce all --skip-gpu`` leaves it out.
    """

    name: str
    home: str
    source: str
    config: type[Config]
    reading: str
    settings: str
    statements: str
    stages: tuple[Stage, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    prepare: str = ""
    gpu: bool = False

    def resolve(self, reference: str) -> Any:
        """Object of a reference."""
        return resolved_reference(self.home, reference)

    @property
    def file(self) -> Path:
        """YAML file with the settings of the study."""
        return Path(str(files(self.home))) / self.settings

    @property
    def small(self) -> Mapping[str, Any]:
        """Settings that take minutes, of ``small.yaml``; nothing where the study has none."""
        file = self.file.with_name("small.yaml")
        return read_settings(file) if file.is_file() else {}

    @property
    def instrument(self) -> Instrument:
        """The instrument that the study runs."""
        return registry.instrument_of_study(self)

    @property
    def walk(self) -> tuple[Stage, ...]:
        """Stages of a run of the study, in their order."""
        return self.stages if self.prepare else (*self.instrument.stages, *self.stages)

    def resolved(
        self,
        reading: Mapping[str, Any],
        overrides: Sequence[str] = (),
        file: Path | None = None,
    ) -> Config:
        """Settings of the study: its file, then ``reading``, then the ``a.b=c`` overrides."""
        given = [
            f"{self.reading}.{name}={json.dumps(value)}"
            for name, value in reading.items()
            if value is not None
        ]
        return self.config.resolved({}, [*given, *overrides], self.file if file is None else file)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """A finished study: what its source says beside what was measured, in one run folder.

    Attributes
    ----------
    result
        Result of the study's instrument.
    study
        Name of the study.
    """

    result: Result
    study: str

    @property
    def run(self) -> Run:
        """The run folder."""
        return self.result.run

    @property
    def claims(self) -> pd.DataFrame:
        """One row per claim: what the source says, what was measured, whether they agree."""
        return self.run.read_table(self.study)

    @property
    def source(self) -> str:
        """Number of the source that makes the claims."""
        return registry.study(self.study).source

    @property
    def by_chance(self) -> Chance:
        """How many rows would disagree by chance if every claim of the source were true."""
        return chance_of_claims(self.claims)

    @property
    def abstained(self) -> bool:
        """A table of claims is a result, whatever the verdicts are."""
        return False

    def report(self, folder: str | Path | None = None, *, png: bool = False) -> Path:
        """Write ``report.html`` and return its path, as `flowscope.lab.Result.report` does."""
        return self.result.report(folder, png=png)

    def to_json(self) -> dict[str, Any]:
        """Document of plain values: the claims, what chance alone does, then the instrument's."""
        return {
            "study": self.study,
            "source": self.source,
            "claims": plain_rows(self.claims),
            "by_chance": self.by_chance.to_json(),
            "segments": [],
            **self.result.to_json(),
        }  # 0.1 wrote segments for every study

    def __str__(self) -> str:
        lines = [
            f"{row['item']}  {row['agrees']}  {row['measured']}" for row in plain_rows(self.claims)
        ]
        return "\n".join(
            [f"{self.study} on {self.result.model}", *lines, f"run: {self.run.folder}"]
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(self.claims.to_html(index=False, escape=True))


def reproduce(
    study: str,
    model: str | None = None,
    *,
    progress: Progress | bool | None = None,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    choice: EngineChoice = LOCAL,
    **reading: Any,
) -> Reproduction:
    """Run one experiment of the sources on a model and compare it with what they say.

    Parameters
    ----------
    study
        Its name, e.g. ``"track_t"``; ``flowscope reproduce --help`` lists them.
    model
        Anything a command takes: a folder, a hub id, a .gguf file; the bundled model when None.
    progress
        Whether bars are shown on standard error (default: in a terminal or a notebook), or a
        function that is called with (stage, done, total).
    file
        YAML file with settings to use instead of those that ship with the study.
    overrides
        ``"a.b=c"`` assignments, as ``--set`` takes them.
    choice
        Engine that makes the shards, by default this process alone.
    **reading
        Settings of the study's instrument that replace those of its file.

    Raises
    ------
    InvalidInputError
        For an unknown study or setting; the message suggests the nearest name. Also for a model
        that the study cannot take, because it makes its own.
    """
    plan = registry.study(study)
    if plan.prepare and model is not None:
        raise InvalidInputError(
            f"The study {plan.name} makes the networks that it measures and takes no model; got "
            f"{model!r}. Leave the model out, or read its field with: flowscope "
            f"{plan.instrument.name} {model}."
        )
    config = plan.resolved({"model": model, **reading}, overrides, file)
    settings: Config = getattr(config, plan.reading)
    with displayed_progress(progress) as advance:
        result = engine.run(
            plan.instrument, settings, progress=advance, study=(plan, config), choice=choice
        )
    return Reproduction(result=result, study=study)
