"""The samplers of a diffusion model: do ODE and SDE agree, how fast does their error fall."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.lab.progress import Progress
from flowscope.nets import bundled_path
from flowscope.records import Run, Unavailable, Verdict
from flowscope.runs.audit import Audit
from flowscope.runs.config import ImageConfig
from flowscope.runs.denoiser import denoiser_of, image_shape
from flowscope.runs.denoiser_loading import loaded_denoiser
from flowscope.runs.image_models import ImageModel, LearnedModel, MixtureModel
from flowscope.runs.image_readers import Reader, reader_of
from flowscope.runs.imager import DECIDING, PREDICTION, Imager
from flowscope.runs.loading import Loaded

__all__ = ["Image", "image", "image_of"]

_VALUES_PER_BIN = 10
_NOISE_LIKE = 0.5
_MIXTURE = {
    "images": 4096,
    "family_images": 2048,
    "information_images": 2048,
    "uturn_images": 4096,
    "steps": 200,
    "doubling": (200, 400, 800, 1600),
    "batch": 2048,
    "integrator": "euler",  # whose order shows at these numbers of steps; that of DDPM's does not
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Image:
    """A finished reading of samplers: its tables, and the run folder that holds them."""

    run: Run

    @property
    def parity(self) -> pd.DataFrame:
        """Distances of the flow from the SDE at every step, beside their null."""
        return self.run.read_table("parity")

    @property
    def weak_error(self) -> pd.DataFrame:
        """Log–log slopes of the error of sampling, by sampler and observable."""
        return self.run.read_table("weak_error_slope")

    @property
    def rotation(self) -> pd.DataFrame | Unavailable:
        """How much of the learned score turns, at each time."""
        return self._table("rotation")

    @property
    def uturn(self) -> pd.DataFrame | Unavailable:
        """What images come back as when they are noised to a time and brought back."""
        return self._table("uturn")

    @property
    def information(self) -> pd.DataFrame | Unavailable:
        """What a state knows of its class, at each step."""
        return self._table("information")

    @property
    def family(self) -> pd.DataFrame:
        """What each member of the family makes at equal numbers of steps."""
        return self.run.read_table("family")

    def _table(self, name: str) -> pd.DataFrame | Unavailable:
        if name in self.run.tables():
            return self.run.read_table(name)
        noted = {m.name: m.because for m in self.run.read_measurements()}
        return Unavailable(noted.get(name, "it was not measured"))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """I1 parity, I2 first order, I3 a gradient."""
        return self.run.read_verdicts()

    def report(self, folder: str | Path | None = None) -> Path:
        """Write ``report.html`` and the figures; into a copy of the run when a folder is given."""
        return Audit(run=self.run).report(folder)

    def to_json(self) -> dict[str, Any]:
        """A document of plain values: parity, weak error, rotation, U-turns."""
        base = Audit(run=self.run).to_json()
        base.pop("segments", None)
        resolved = self.run.read_manifest().config_resolved
        base["measured"] = {} if isinstance(resolved, Unavailable) else dict(resolved["measured"])
        whole = self.parity[self.parity["channel"] == "all"]
        return {
            **base,
            "parity": [_distances(row) for row in _plain(whole)],
            "weak_error": _slopes(self.weak_error),
            "rotation": _told(self.rotation),
            "uturn": _told(self.uturn),
            "information": _told(self.information),
            "family": _plain(self.family),
            "warning": self.warning,
        }

    @property
    def warning(self) -> str | None:
        """What speaks against the schedule, or for untrained weights; None if nothing does."""
        for one in self.run.read_measurements():
            if one.name == PREDICTION and float(one.numbers()) < _NOISE_LIKE:
                return (
                    f"At its last time the model's output has a correlation of "
                    f"{float(one.numbers()):.2f} with the noise it was given; that of a trained "
                    "predictor of noise is nearly 1. The weights are untrained, or the schedule "
                    "names another prediction type than the model's."
                )
        return None

    def __str__(self) -> str:
        lines = [f"{v.name}  {v.decision}  {v.because}" for v in self.verdicts]
        return "\n".join([*lines, f"run: {self.run.folder}"])

    def _repr_html_(self) -> str:
        return str(self.weak_error.to_html(index=False, escape=True))


def _distances(row: dict[str, Any]) -> dict[str, Any]:
    """One time of the parity: values, intervals and the null."""
    found = {name: row[name] for name in ("step", "time", "log_snr", "tv", "ks")}
    found["tv_interval"] = [row["tv_low"], row["tv_high"]]
    found["ks_interval"] = [row["ks_low"], row["ks_high"]]
    names = ("null", "null_high", "p")
    found["null"] = {f"{d}_{name}": row[f"{d}_{name}"] for d in ("tv", "ks") for name in names}
    return found


def _slopes(table: pd.DataFrame) -> dict[str, Any]:
    """The slope that is judged, of the flow, and all others."""
    rows = [
        row | {"interval": None if row["status"] != "ok" else [row["low"], row["high"]]}
        for row in _plain(table)
    ]
    judged = next(r for r in rows if r["sampler"] == "ode" and r["observable"] == DECIDING)
    names = ("sampler", "observable", "slope", "interval", "status", "because")
    return {**{name: judged[name] for name in names}, "all": rows}


def _told(table: pd.DataFrame | Unavailable) -> Any:
    if isinstance(table, Unavailable):
        return {"abstained": table.reason}
    rows = _plain(table)
    return [row | ({"interval": [row["low"], row["high"]]} if "low" in row else {}) for row in rows]


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return rows


def image(
    source: str | Path | nn.Module | Loaded | ImageModel | Any = None,
    *,
    scheduler: Any = None,
    reader: str | Path | Reader | None = None,
    classes: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Image:
    """Compare the probability flow of a diffusion model with its SDE, and read its score.

    Parameters
    ----------
    source
        A pipeline folder, a hub id, a pipeline or a model in memory; ``"mixture"`` or a
        `MixtureModel` for two Gaussians with their exact score; the bundled diffusion transformer
        when nothing is given.
    scheduler
        The schedule the model was trained with (a scheduler of diffusers, or its folder); the one
        of the pipeline by default. It must be variance preserving.
    reader
        What tells the class of an image: a function from images in [−1, 1] to class numbers, or the
        folder of an image classifier. The bundled one knows the bundled model's classes.
    classes
        Names of the classes, where the folder has none.
    out
        Run folder; a temporary one when not given. An unfinished run there is taken up again.
    progress
        Called with (stage, done, total).
    **settings
        Fields of `ImageConfig`: ``images``, ``steps``, ``doubling``, ``lams``, …

    Raises
    ------
    InvalidInputError
        For a setting or a schedule that does not fit, or too few images for the bins.
    UnsupportedModelError
        For a model that is no class-conditional or unconditional denoiser.
    """
    name = str(source) if isinstance(source, (str, Path)) else None
    told = {"scheduler": scheduler, "reader": reader}
    written = {key: str(x) for key, x in told.items() if isinstance(x, (str, Path))}
    config = ImageConfig.resolved({"model": name, **written, **settings})
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="flowscope-")) / "image"
    return _read(config, folder, progress, source, scheduler, reader, classes)


def image_of(config: ImageConfig, progress: Progress | None = None) -> Image:
    """The reading of a resolved configuration; what the command line runs."""
    return _read(config, None, progress, config.model, config.scheduler, config.reader, ())


def _read(
    config: ImageConfig,
    folder: Path | None,
    progress: Progress | None,
    source: Any,
    scheduler: Any,
    reader: Any,
    classes: Sequence[str],
) -> Image:
    _refuse(config)
    model = _model(source, config, scheduler, classes)
    if isinstance(model, MixtureModel):
        config = _for_mixture(config)
        if scheduler is not None or reader is not None:
            raise InvalidInputError(
                "A mixture has its own schedule and tells its classes itself; leave scheduler and "
                "reader out."
            )
    _refuse_sizes(config, model)
    if isinstance(model, LearnedModel):
        shape = image_shape(model.denoiser)
        chosen, named = reader_of(reader, classes=model.classes, shape=shape, device=model.device)
    else:
        chosen, named = model.read, "the side of the middle"
    return Image(run=Imager(model, chosen, named, config, folder, progress).run())


def _model(
    source: Any, config: ImageConfig, scheduler: Any, classes: Sequence[str]
) -> LearnedModel | MixtureModel:
    if isinstance(source, MixtureModel):
        return source
    if source == "mixture" and not Path("mixture").exists():
        return MixtureModel()
    source = bundled_path("image") if source is None else source
    denoiser = denoiser_of(
        source,
        loaded_denoiser(source, config),
        scheduler=scheduler,
        classes=classes,
        revision=config.revision,
    )
    return LearnedModel(denoiser=denoiser, guidance=config.guidance)


def _for_mixture(config: ImageConfig) -> ImageConfig:
    """Settings for states of a few values, which cost next to nothing, where none were given."""
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return ImageConfig.model_validate({**_MIXTURE, **given})


def _refuse(config: ImageConfig) -> None:
    wrong = [lam for lam in config.lams if not 0 <= lam <= 1]
    if wrong:
        raise InvalidInputError(f"lams must lie in [0, 1]; got {wrong[0]}.")
    doubled = all(second == 2 * first for first, second in pairwise(config.doubling))
    if min(config.doubling) < 1 or not doubled:
        raise InvalidInputError(
            "doubling must hold numbers of steps, of which each is twice the one before; got "
            f"{list(config.doubling)}. Take for instance 4, 8, 16."
        )


def _refuse_sizes(config: ImageConfig, model: ImageModel) -> None:
    _, height, width = model.shape
    for name, images in (("images", config.images), ("family_images", config.family_images)):
        values = images * height * width
        if values < _VALUES_PER_BIN * config.bins:
            raise InvalidInputError(
                f"{config.bins} bins need at least {_VALUES_PER_BIN * config.bins} values of each "
                f"channel; {images} images of {height} × {width} ({name}) have {values}. Take more "
                "images or fewer bins."
            )
    last = len(model.levels) - 1
    for name, steps in (("steps", config.steps), ("doubling", 2 * max(config.doubling))):
        if steps > last:
            raise InvalidInputError(
                f"{name} takes up to {steps} steps; the schedule has {last + 1} times, so that "
                f"{last} steps are the most."
            )
