"""What the report reads: the tables, arrays, verdicts, measurements and manifest of a run.

A table, or a column, that is not there is an :class:`~flowscope.records.Unavailable` that names
it; the page repeats that sentence where the figure would stand. A file that *is* there and was
changed since it was written is an error: nothing is shown from a damaged run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from flowscope.records import Interval, Manifest, Measurement, Run, Unavailable, Verdict
from flowscope.records.files import is_file

__all__ = [
    "GEOMETRY_STUDY_TABLES",
    "GEOMETRY_TABLES",
    "IMAGE_STUDY_TABLES",
    "IMAGE_TABLES",
    "REPLICA_EXTRAS",
    "REPLICA_STUDY_TABLES",
    "REPLICA_TABLES",
    "STUDY_TABLES",
    "TABLES",
    "Source",
    "Span",
    "column",
    "read_source",
    "spans",
    "words",
]

TABLES = {
    "layers": "every quantity along depth",
    "segments": "the segments of the depth and their gate",
    "jumps": "the steps that are too large to be part of a segment",
    "locking": "how far a step moves the output, by tail mass",
    "locking_depth": "the layer from which the top token never changes",
    "tokens": "the token-by-layer map",
    "heads": "attention entropy by layer and head",
    "simplex_path": "one path on the simplex",
    "curvature": "curvature of attention by layer and head",
    "curvature_response": "curvature under other temperatures and key norms",
    "evi": "the evolution variational inequality along the output path",
    "adequacy": "how well a fitted flow forecasts the layers of other prompts",
    "adequacy_clouds": "forecast and true states compared as clouds of points",
    "drifts": "the kinds of drift that were fitted",
    "overlay": "how far each layer moves the output beside what bounds it",
    "budget": "the error of the forecast beside the budget of each token",
    "depth_loss": "what the last layers of a language model are worth",
    "rotation": "the share of the motion that turns, by layer",
}
"""Tables of a depth audit, and what each is for."""

STUDY_TABLES = {
    "track_t": "what the source says beside what was measured",
    "identification": "the same weights with finer steps",
    "output_temperature": "mobility, loss and calibration by temperature of the output",
}
"""Tables that only a study writes; a plain audit is not told that it lacks them."""

GEOMETRY_TABLES = {
    "geometry": "how irreversible each head is",
    "sentence": "the tokens of the sentence that the heads are shown on",
    "dials": "the loss with one part of the scores turned up or down",
}
"""Tables of a run of the heads, and what each is for."""

GEOMETRY_STUDY_TABLES = {
    "diffusion_attention": "what the source says beside what was measured",
    "identities": "the identities of the source and how exactly they hold",
}
"""Tables that only a study of source 002 writes."""

REPLICA_TABLES = {
    "agreement": "how alike two replicas end, by the step at which they were let go",
    "commitment": "the step at which each kind of agreement sets in",
    "commitment_gap": "how many steps fine detail commits after coarse structure",
    "internal_gap": "the gap between leading and trailing modes, by layer",
    "energies": "the energy of leading and trailing modes over the reverse steps",
}
"""Tables of a run of coupled replicas, and what each is for."""

REPLICA_EXTRAS = {
    "coupling_effect": "how much the coupling moves the step at which two replicas commit",
    "propagation": "how one block multiplies a difference, and through which channel",
    "mode_commitment": "when each mode was predicted to commit and when it did",
}
"""Tables that a run of coupled replicas may have; it is not told that it lacks them."""

REPLICA_STUDY_TABLES = {"synchronization_gap": "what the source says beside what was measured"}
"""Tables that only a study of source 004 writes."""

IMAGE_TABLES = {
    "parity": "how far apart the histograms of the two samplers are, by time",
    "weak_error": "how much an observable moves when the number of steps doubles",
    "weak_error_slope": "how fast that falls as the number of steps grows",
    "smoothness": "the size of the steps of both samplers, by time",
    "paths": "the length of the paths of both samplers",
    "rotation": "the share of the learned score that turns, by time",
    "information": "what the state knows of its class, by time",
    "uturn": "whether images noised to a time and brought back are of the same class",
    "family": "accuracy and histograms from ODE to SDE, by number of steps",
}
"""Tables of a run of an image model, and what each is for."""

IMAGE_STUDY_TABLES = {"track_i": "what the source says beside what was measured"}
"""Tables that only a study of the image track of source 000 writes."""

_OF_HEADS = {**GEOMETRY_TABLES, **GEOMETRY_STUDY_TABLES}
_OF_REPLICAS = {**REPLICA_TABLES, **REPLICA_EXTRAS, **REPLICA_STUDY_TABLES}
_OF_IMAGES = {**IMAGE_TABLES, **IMAGE_STUDY_TABLES}
_KNOWN = {**_OF_IMAGES, **TABLES, **STUDY_TABLES, **_OF_HEADS, **_OF_REPLICAS}
_COMMANDS = ("heads", "sync", "image")
_ARRAYS = ("portrait", "strip", "samples", "uturn_strip")


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """Everything the report is built from."""

    manifest: Manifest
    verdicts: tuple[Verdict, ...]
    measurements: tuple[Measurement, ...]
    tables: Mapping[str, pd.DataFrame]
    arrays: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    def table(self, name: str, *columns: str) -> pd.DataFrame | Unavailable:
        """Table of that name if it is there, has rows and these columns; else what is missing."""
        frame = self.tables.get(name)
        if frame is None:
            purpose = self.expected.get(name, _KNOWN[name])
            return Unavailable(f"this run has no table “{name}” ({purpose})")
        missing = [wanted for wanted in columns if wanted not in frame]
        if missing:
            return Unavailable(f"the table “{name}” has no column {', '.join(missing)}")
        if frame.empty:
            return Unavailable(f"the table “{name}” has no rows")
        return frame

    def withheld(self, lack: Unavailable, *verdicts: str) -> Unavailable:
        """Why a table is not there: the reason of its verdicts where none of them was measured.

        Parameters
        ----------
        lack
            What is missing, which is said where the verdicts were measured or give two reasons.
        verdicts
            Names of the verdicts that are judged on the table.
        """
        own = [verdict for verdict in self.verdicts if verdict.name in verdicts]
        reasons = {verdict.because for verdict in own}
        silent = all(verdict.statistic.status != "ok" for verdict in own)
        return Unavailable(reasons.pop()) if silent and len(reasons) == 1 else lack

    def noted(self, lack: Unavailable, name: str) -> Unavailable:
        """Why something is not there: the reason of its measurement where that abstained."""
        own = [m for m in self.measurements if m.name == name and m.status != "ok"]
        return Unavailable(own[0].because) if own else lack

    @property
    def of_heads(self) -> bool:
        """Whether this run is about the heads, and no depth audit."""
        return self._about("heads", _OF_HEADS)

    @property
    def of_replicas(self) -> bool:
        """Whether this run is about coupled replicas, and no depth audit."""
        return self._about("sync", _OF_REPLICAS)

    @property
    def of_images(self) -> bool:
        """Whether this run is about a model of images and its samplers."""
        return self._about("image", _OF_IMAGES)

    def _about(self, command: str, own: Mapping[str, str]) -> bool:
        """Whether the command says so, or there is none and only tables of this kind are there."""
        given = self.setting("command")
        if given in _COMMANDS:
            return bool(given == command)
        shared = [name for name in own if name in TABLES]
        return any(name in self.tables for name in own if name not in shared) and not any(
            name in self.tables for name in TABLES if name not in shared
        )

    @property
    def study(self) -> bool:
        """Whether this run is a study of a source, and not only an audit."""
        return any(name in self.tables for name in self._study_tables)

    @property
    def _study_tables(self) -> Mapping[str, str]:
        if self.of_replicas:
            return REPLICA_STUDY_TABLES
        if self.of_images:
            return IMAGE_STUDY_TABLES
        return GEOMETRY_STUDY_TABLES if self.of_heads else STUDY_TABLES

    @property
    def expected(self) -> dict[str, str]:
        """Tables that a run of this kind should have, and what each is for."""
        own = GEOMETRY_TABLES if self.of_heads else TABLES
        own = REPLICA_TABLES if self.of_replicas else own
        own = IMAGE_TABLES if self.of_images else own
        return {**own, **(self._study_tables if self.study else {})}

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
        """How many prompts stand behind a figure, in words.

        Measurements of these names are asked, then verdicts, then the gate P0 (of a run of the
        heads M1), which is judged on the same prompts.
        """
        known = next((m.n for m in self._stated(*names) if m.n), 0)
        measured = self.setting("measured") if self.of_heads else None
        if not known and isinstance(measured, Mapping):
            known = measured.get("prompts", 0)
        return f"n = {known} prompts" if known else "the number of prompts was not recorded"

    def basis(self, *names: str) -> str:
        """How many prompts stand behind a figure and how its intervals were made, in words."""
        intervals = (m.interval for m in self._stated(*names))
        made = next((i for i in intervals if isinstance(i, Interval)), None)
        if made is None:
            return f"{self.units(*names)}; how the intervals were made was not recorded"
        return f"{self.units(*names)}; intervals: {100 * made.level:g}\u00a0%, {made.method}"

    def _stated(self, *names: str) -> list[Measurement]:
        own = [m for name in names for m in self.measurements if m.name == name]
        keys = (*names, "M1" if self.of_heads else "P0")
        return own + [v.statistic for name in keys for v in self.verdicts if v.name == name]


def _last_part(model: str) -> str:
    """Name of a model; of a path to a folder, the folder: the way there is in the manifest."""
    if model.startswith(("/", "~", ".")) or "\\" in model:
        return PurePath(model.replace("\\", "/")).name or model
    return model


def read_source(run: Run) -> Source:
    """Read what a report needs from a run folder, verified.

    Raises
    ------
    RecordError
        A file is there and damaged.
    """
    present = [name for name in run.tables() if name in _KNOWN]
    return Source(
        manifest=run.read_manifest(),
        verdicts=run.read_verdicts() if is_file(run.folder / "verdicts.json") else (),
        measurements=run.read_measurements() if is_file(run.folder / "measurements.json") else (),
        tables={name: run.read_table(name) for name in present},
        arrays={name: run.read_arrays(name) for name in run.arrays() if name in _ARRAYS},
    )


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


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of depth, by its first and last layer, and what the gate said of it."""

    first: int
    last: int
    kind: str
    passes: bool
    because: str


def spans(source: Source) -> list[Span]:
    """Stretches of depth in order: from the table of segments, else from the one of layers."""
    frame = source.table("segments", "first_layer", "last_layer")
    if isinstance(frame, Unavailable):
        return _spans_of_layers(source)
    rows = zip(
        column(frame, "first_layer"),
        column(frame, "last_layer"),
        words(frame, "kind"),
        words(frame, "decision"),
        words(frame, "because"),
        strict=True,
    )
    found = [
        Span(first=int(a), last=int(b), kind=kind, passes=decision == "holds", because=because)
        for a, b, kind, decision, because in rows
        if not (math.isnan(a) or math.isnan(b))
    ]
    return sorted(found, key=lambda span: span.first)


def _spans_of_layers(source: Source) -> list[Span]:
    frame = source.table("layers", "layer", "segment", "status")
    if isinstance(frame, Unavailable):
        return []
    layers, segments = column(frame, "layer"), column(frame, "segment")
    kinds, states = words(frame, "segment_kind"), words(frame, "status")
    found = []
    for segment in sorted({number for number in segments if not math.isnan(number)}):
        rows = [k for k, number in enumerate(segments) if number == segment and layers[k] > 0]
        if rows:
            found.append(
                Span(
                    first=int(min(layers[k] for k in rows)),
                    last=int(max(layers[k] for k in rows)),
                    kind=kinds[rows[0]],
                    passes=all(states[k] == "ok" for k in rows),
                    because="",
                )
            )
    return sorted(found, key=lambda span: span.first)
