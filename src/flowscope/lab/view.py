"""What a judge sees of a run: tables, arrays and settings, and no model.

The verdicts of a run can therefore be made again from its folder alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.lab.claim import Missing
from flowscope.records import Run, Unavailable, Verdict
from flowscope.records.files import is_file

__all__ = ["Records"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Tables, arrays and settings of a run folder.

    Attributes
    ----------
    run
        The run folder.
    """

    run: Run

    def table(self, name: str, *columns: str) -> pd.DataFrame:
        """Table of that name.

        Raises
        ------
        Missing
            The run has no such table, or the table lacks one of these columns.
        """
        if name not in self.run.tables():
            raise Missing(f"this run has no table “{name}”")
        frame = self.run.read_table(name)
        absent = [column for column in columns if column not in frame]
        if absent:
            raise Missing(f"the table “{name}” has no column {', '.join(absent)}")
        return frame

    def arrays(self, name: str) -> Mapping[str, NDArray[Any]]:
        """Arrays of that name.

        Raises
        ------
        Missing
            The run has none.
        """
        if name not in self.run.arrays():
            raise Missing(f"this run has no arrays “{name}”")
        return self.run.read_arrays(name)

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Verdicts of the run by name; none while it is measured."""
        if not is_file(self.run.folder / "verdicts.json"):
            return {}
        return {verdict.name: verdict for verdict in self.run.read_verdicts()}

    @property
    def settings(self) -> Mapping[str, Any]:
        """Resolved settings of the run."""
        resolved = self.run.read_manifest().config_resolved
        return {} if isinstance(resolved, Unavailable) else resolved
