"""One small run of each instrument as a user makes it, for the suite over all instruments."""

import json
import os
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.instruments.decode.folders import denoiser_folder
from tests.instruments.prompts import TEXTS
from tests.models.synthetic_pipelines import pixel_folder
from typer.testing import CliRunner

from flowscope.cli import app
from flowscope.lab.registry import instrument
from flowscope.lab.result import Result, open_run

__all__ = ["SMALL", "TinyRun", "command", "shown", "tiny_options", "tiny_runs"]

READING = ["--set", "resamples=20", "--set", "batch=2", "--set", "control_prompts=2"]
SMALL = {
    "audit": READING,
    "heads": [
        *READING, "--tokens", "24", "--set", "flux=[0.0]", "--set", "metric=[]",
        "--set", "exact=[]", "--set", "alpha=[]", "--set", "temperatures=[]",
        "--set", "squares=[]",
    ],
    "field": [
        *READING, "--tokens", "24", "--set", "twins=1", "--set", "draws=4",
        "--set", "jacobian_tokens=4", "--set", "products=2", "--set", "write_scales=[0.5]",
        "--set", "residual_scales=[0.97]",
    ],
    "sync": [
        "--pairs", "8", "--steps", "6", "--couplings", ".2,1", "--labels", "0,2",
        "--set", "interventions=6", "--set", "resamples=20", "--set", "draws=39",
        "--set", "kept=3", "--set", "twins=2",
    ],
    "image": [
        "--images", "16", "--steps", "5", "--doubling", "2,4", "--lams", "0,.5,1", "--bins", "8",
        "--set", "family_images=12", "--set", "rotation_times=1", "--set", "rank=2",
        "--set", "information_images=9", "--set", "uturn_images=8", "--set", "uturn_times=2",
        "--set", "resamples=20", "--set", "draws=39", "--set", "batch=8",
    ],
    "decode": [
        "--task", "sudoku-4x4", "--prompts", "12", "--calibration", "60", "--alpha", ".2",
        "--policy", "threshold,prophet,draft", "--set", "windows=[3,2]", "--set", "maps=2",
        "--set", "resamples=20",
    ],
}  # fmt: skip
PIPELINES = ("sync", "image")


@dataclass(frozen=True, kw_only=True)
class TinyRun:
    """A finished run. Tests read it; one that writes takes a copy of the folder.

    Attributes
    ----------
    options
        What the command was given; not where the run folder is made, nor ``--json``.
    outcome
        Exit code and streams of the command.
    """

    name: str
    options: list[str]
    outcome: Any

    @property
    def document(self) -> dict[str, Any]:
        """What the command printed."""
        return json.loads(self.outcome.stdout)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.document["run"])

    @property
    def result(self) -> Result:
        """The result, opened anew."""
        return open_run(self.folder)


def command(*arguments: object) -> Any:
    """Run a command of flowscope in a terminal of eighty columns."""
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "80"})


def shown(name: str, document: dict[str, Any]) -> str:
    """What a terminal of eighty columns shows of a document."""
    one, text = instrument(name), StringIO()
    one.resolve(one.headline)(document, Console(file=text, width=80))
    return text.getvalue()


def tiny_options(name: str, inputs: Path) -> list[str]:
    """Model, texts and sizes of the small run; the inputs are made where they are not there."""
    if name in PIPELINES:
        if not (inputs / "pipeline").exists():
            pixel_folder(inputs / "pipeline", names=["cat", "dog", "owl"])
        return [str(inputs / "pipeline"), *SMALL[name]]
    if name == "decode":
        if not (inputs / "denoiser").exists():
            denoiser_folder(inputs / "denoiser")
        return [str(inputs / "denoiser"), *SMALL[name]]
    texts = inputs / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return ["--text", str(texts), *SMALL[name]]


def tiny_runs(folder: Path) -> Any:
    """Function of an instrument's name that runs it once below a folder."""
    made: dict[str, TinyRun] = {}

    def run(name: str) -> TinyRun:
        if name not in made:
            options = tiny_options(name, folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", os.fstat)  # what a flush does is tested with records
                outcome = command(name, *options, "--out", folder / "out", "--json")
            assert outcome.exit_code in (0, 3), outcome.stderr
            made[name] = TinyRun(name=name, options=options, outcome=outcome)
        return made[name]

    return run
