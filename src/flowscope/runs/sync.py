"""Coupled replicas of a diffusion model: when they commit, at which scale, in which layer."""

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.lab.progress import Progress
from flowscope.nets import bundled_path
from flowscope.records import Run, Unavailable, Verdict
from flowscope.runs.audit import Audit
from flowscope.runs.config import SyncConfig
from flowscope.runs.denoiser import Denoiser, denoiser_of, image_shape
from flowscope.runs.denoiser_loading import loaded_denoiser
from flowscope.runs.encoders import Encoder, encoder_of
from flowscope.runs.loading import Loaded
from flowscope.runs.synchronizer import Synchronizer

__all__ = ["Sync", "sync", "sync_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sync:
    """A finished reading of replicas: its tables, and the run folder that holds them."""

    run: Run

    @property
    def commitment(self) -> pd.DataFrame:
        """Midpoints by class, coupling and measure, each with its interval or why there is none."""
        return self.run.read_table("commitment")

    @property
    def commitment_gap(self) -> pd.DataFrame:
        """Steps by which fine detail commits after coarse structure."""
        return self.run.read_table("commitment_gap")

    @property
    def internal_gap(self) -> pd.DataFrame | Unavailable:
        """The gap between leading and trailing modes by coupling and layer, beside its null."""
        if "internal_gap" in self.run.tables():
            return self.run.read_table("internal_gap")
        noted = {m.name: m.because for m in self.run.read_measurements()}
        return Unavailable(noted.get("internal gap", "it was not measured"))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """R1, coarse before fine, and R2, an internal gap without coupling."""
        return self.run.read_verdicts()

    def report(self, folder: str | Path | None = None) -> Path:
        """Write ``report.html`` and the figures; into a copy of the run when a folder is given."""
        return Audit(run=self.run).report(folder)

    def to_json(self) -> dict[str, Any]:
        """A document of plain values: commitment times per g, and the gap per layer."""
        base = Audit(run=self.run).to_json()
        base.pop("segments", None)
        resolved = self.run.read_manifest().config_resolved
        base["measured"] = {} if isinstance(resolved, Unavailable) else dict(resolved["measured"])
        internal = self.internal_gap
        return {
            **base,
            "tau_spec": _times(self.commitment, "feature"),
            "tau_coarse": _times(self.commitment, "coarse"),
            "tau_fine": _times(self.commitment, "fine"),
            "commitment_gap": _plain(self.commitment_gap),
            "gap": {"abstained": internal.reason}
            if isinstance(internal, Unavailable)
            else _plain(internal),
        }

    def __str__(self) -> str:
        lines = [f"{v.name}  {v.decision}  {v.because}" for v in self.verdicts]
        for row in _times(self.commitment, "feature"):
            tied = "shared noise" if row["control"] else f"g = {row['g']:g}"
            lines.append(f"{row['class']}, {tied}: tau_spec {_in_words(row)}")
        return "\n".join([*lines, f"run: {self.run.folder}"])

    def _repr_html_(self) -> str:
        return str(self.commitment.to_html(index=False, escape=True))


def _times(table: pd.DataFrame, measure: str) -> list[dict[str, Any]]:
    rows = []
    for row in _plain(table[table["measure"] == measure]):
        found = {name: row[name] for name in ("label", "class", "g", "control", "n", "status")}
        ok = row["status"] == "ok"
        found["midpoint"] = row["midpoint"] if ok else row["status"]
        found["interval"] = [row["low"], row["high"]] if ok else None
        rows.append(found | {"because": row["because"]})
    return rows


def _in_words(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['status']} ({row['because']})"
    low, high = row["interval"]
    return f"{row['midpoint']:.1f} [{low:.1f}, {high:.1f}]"


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return rows


def sync(
    source: str | Path | nn.Module | Loaded | Any = None,
    *,
    scheduler: Any = None,
    encoder: str | Path | Encoder | None = None,
    classes: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Sync:
    """When and where two coupled generations of a diffusion model commit to one outcome.

    Parameters
    ----------
    source
        A pipeline folder, a hub id, a pipeline or a model in memory; the bundled diffusion
        transformer when nothing is given.
    scheduler
        The schedule the model was trained with (a scheduler of diffusers, or its folder); the one
        of the pipeline by default. It must be variance preserving.
    encoder
        What says how alike two images are: a function from images in [−1, 1] to features, or the
        folder of an image model. The bundled one reads images of 1 × 28 × 28.
    classes
        Names of the classes, where the folder has none.
    out
        Run folder; a temporary one when not given. An unfinished run there is taken up again.
    progress
        Called with (stage, done, total).
    **settings
        Fields of `SyncConfig`: ``pairs``, ``steps``, ``couplings``, ``labels``, …

    Raises
    ------
    InvalidInputError
        For a setting or a schedule that does not fit.
    UnsupportedModelError
        For a model that is no class-conditional or unconditional denoiser.
    """
    name = str(source) if isinstance(source, (str, Path)) else None
    told = {"scheduler": scheduler, "encoder": encoder}
    written = {key: str(x) for key, x in told.items() if isinstance(x, (str, Path))}
    config = SyncConfig.resolved({"model": name, **written, **settings})
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="flowscope-")) / "sync"
    return _synced(config, folder, progress, source, scheduler, encoder, classes)


def sync_of(config: SyncConfig, progress: Progress | None = None) -> Sync:
    """The reading of a resolved configuration; what the command line runs."""
    return _synced(config, None, progress, config.model, config.scheduler, config.encoder, ())


def _synced(
    config: SyncConfig,
    folder: Path | None,
    progress: Progress | None,
    source: Any,
    scheduler: Any,
    encoder: Any,
    classes: Sequence[str],
) -> Sync:
    source = bundled_path("image") if source is None else source
    _refuse(config)
    denoiser = denoiser_of(
        source,
        loaded_denoiser(source, config),
        scheduler=scheduler,
        classes=classes,
        revision=config.revision,
    )
    _refuse_labels(config, denoiser)
    shape = image_shape(denoiser)
    chosen, named = encoder_of(encoder, shape=shape, device=denoiser.device)
    job = Synchronizer(denoiser, chosen, named, config, folder, progress)
    return Sync(run=job.run())


def _refuse(config: SyncConfig) -> None:
    wrong = [g for g in config.couplings if not 0 <= g <= 1 or math.isnan(g)]
    if wrong:
        raise InvalidInputError(f"couplings must lie in [0, 1]; got {wrong[0]}.")
    for name, values in (("couplings", config.couplings), ("labels", config.labels)):
        if len({f"{value:g}" for value in values}) < len(values):  # shards are named by six digits
            raise InvalidInputError(
                f"{name} must differ from each other within six digits; got {list(values)}."
            )
    if config.pairs // 2 < 2 * config.band:
        raise InvalidInputError(
            f"Bands of {config.band} leading and {config.band} trailing modes need "
            f"{4 * config.band} pairs, because half of them make the modes; got {config.pairs}. "
            "Take more pairs or a smaller band."
        )
    if config.interventions > config.steps + 1:
        raise InvalidInputError(
            f"{config.interventions} interventions do not fit into {config.steps} steps; there are "
            f"{config.steps + 1} places for them."
        )


def _refuse_labels(config: SyncConfig, denoiser: Denoiser) -> None:
    known = len(denoiser.classes)
    if not known and config.labels != (0,):
        raise InvalidInputError("This model takes no class labels; leave labels out.")
    wrong = [label for label in config.labels if known and not 0 <= label < known]
    if wrong:
        raise InvalidInputError(
            f"labels must lie between 0 and {known - 1} ({denoiser.classes[0]} … "
            f"{denoiser.classes[-1]}); got {wrong[0]}."
        )
