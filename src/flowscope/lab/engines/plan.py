"""The plan of a run: what a worker must know to measure the same, ``workers/plan.json``.

The settings are those that were given, before the instrument resolved them: a worker resolves them
itself, and is refused where that leads to another run (`flowscope.lab.running.identity`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowscope.errors import RecordError
from flowscope.lab import registry
from flowscope.lab.config import Config
from flowscope.records.files import is_file, read_file, write_file

if TYPE_CHECKING:
    from flowscope.lab.instrument import Instrument
    from flowscope.lab.study import Study

__all__ = ["WORKERS", "Plan", "read_plan"]

WORKERS = "workers"
"""Folder in the run folder for all that several processes tell each other."""

_NAME = "plan.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, in values that a file holds.

    Attributes
    ----------
    instrument, settings
        Name of the instrument, and its settings.
    study, study_settings
        Name of the study and its settings; empty outside a study.
    only
        Claims and stages that were chosen.
    folder
        Where relative paths of the settings begin.
    """

    instrument: str
    settings: Mapping[str, Any]
    study: str = ""
    study_settings: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    folder: str = field(default_factory=os.getcwd)

    @classmethod
    def of(
        cls,
        instrument: Instrument,
        config: Config,
        only: Sequence[str],
        study: Study | None,
        settings: Config | None,
    ) -> Plan:
        """Plan of a run before its subject is prepared."""
        return cls(
            instrument=instrument.name,
            settings=config.model_dump(mode="json"),
            study="" if study is None else study.name,
            study_settings={} if settings is None else settings.model_dump(mode="json"),
            only=tuple(only),
        )

    @property
    def config(self) -> Config:
        """Settings of the instrument."""
        return registry.instrument(self.instrument).config.model_validate(dict(self.settings))

    @property
    def study_config(self) -> Config | None:
        """Settings of the study; None outside a study."""
        if not self.study:
            return None
        return registry.study(self.study).config.model_validate(dict(self.study_settings))

    def write(self, run: Path) -> None:
        """Write the plan into a run folder."""
        write_file(run / WORKERS / _NAME, (json.dumps(asdict(self), indent=1) + "\n").encode())


def read_plan(run: Path) -> Plan | None:
    """Plan of a run folder; None where it has none.

    Raises
    ------
    RecordError
        The file is there and is no plan.
    """
    path = run / WORKERS / _NAME
    if not is_file(path):
        return None
    try:
        content = json.loads(read_file(path))
        return Plan(**{**content, "only": tuple(content["only"])})
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(
            f"{path} should be the plan of a run, as flowscope writes it, and cannot be read. "
            "Delete it and run the command with --plan again."
        ) from error
