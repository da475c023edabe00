"""The heads of a model as Markov chains: how irreversible, which tokens, what manifold."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from flowscope.lab.progress import Progress
from flowscope.records import Run, Unavailable, Verdict
from flowscope.runs.audit import Audit
from flowscope.runs.config import HeadsConfig
from flowscope.runs.geometer import Geometer
from flowscope.runs.loading import Loaded
from flowscope.runs.material import material_of
from flowscope.runs.preparation import loaded_model

__all__ = ["Heads", "heads", "heads_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Heads:
    """A finished reading of the heads: one row each, and the run folder that holds them."""

    run: Run

    @property
    def table(self) -> pd.DataFrame:
        """One row per head: quantities with intervals, beside random weights, and the label."""
        return self.run.read_table("geometry")

    @property
    def dials(self) -> pd.DataFrame | Unavailable:
        """Change of the loss for each dial beside a random perturbation of equal norm."""
        if "dials" in self.run.tables():
            return self.run.read_table("dials")
        noted = {m.name: m.because for m in self.run.read_measurements()}
        return Unavailable(noted.get("dials", "dials were switched off"))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """M1 and M2: against random weights, and against permuted keys."""
        return self.run.read_verdicts()

    def report(self, folder: str | Path | None = None) -> Path:
        """Write ``report.html`` and the figures; into a copy of the run when a folder is given."""
        return Audit(run=self.run).report(folder)

    def to_json(self) -> dict[str, Any]:
        """A document of plain values: every head, the verdict, and where the tables are."""
        base = Audit(run=self.run).to_json()
        config = self.run.read_manifest().config_resolved
        resolved = {} if isinstance(config, Unavailable) else dict(config)
        base.pop("segments")
        return {**base, "chain": resolved.get("chain"), "heads": _plain(self.table)}

    def __str__(self) -> str:
        lines = [f"{v.name}  {v.decision}  {v.because}" for v in self.verdicts]
        return "\n".join([*lines, *_furthest(self.table), f"run: {self.run.folder}"])

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, escape=True))


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    for row in rows:
        low, high = row["entropy_production_low"], row["entropy_production_high"]
        row["interval"] = None if low is None or high is None else [low, high]
    return rows


def _furthest(table: pd.DataFrame, count: int = 10) -> list[str]:
    top = table.nlargest(count, "entropy_production")
    return [
        f"layer {row['layer']} head {row['head']}: {row['entropy_production']:.3g} nats per step, "
        f"{row['label']}"
        for _, row in top.iterrows()
    ]


def heads(
    source: str | Path | nn.Module | Loaded | None = None,
    texts: Sequence[str] | Tensor | None = None,
    *,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Heads:
    """The Markov geometry of every head of a model.

    Parameters
    ----------
    source
        Anything `load` takes; the bundled language model when nothing is given.
    texts
        Prompts, or images for a vision model; the packaged ones when nothing is given. A model
        that reads neither is read on noise of the right shape, and the run says so.
    inputs
        Keyword arguments of the forward pass instead, one mapping per batch.
    tokenizer
        Used instead of the one found beside the weights.
    out
        Run folder; a temporary one when not given. An unfinished run there is taken up again.
    progress
        Called with (stage, done, total).
    **settings
        Fields of `HeadsConfig`: ``chain``, ``damping``, ``prompts``, ``tokens``, ``dials``, …

    Raises
    ------
    InvalidInputError
        For a setting that does not exist, or material that the model cannot read.
    UnsupportedModelError
        When no head has a chain.
    """
    name = str(source) if isinstance(source, (str, Path)) else None
    config = HeadsConfig.resolved({"model": name, **settings})
    loaded = loaded_model(source, config, tokenizer)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="flowscope-")) / "heads"
    material = material_of(loaded, config, texts, inputs)
    return Heads(run=Geometer(loaded, material, config, folder, progress).run())


def heads_of(config: HeadsConfig, progress: Progress | None = None) -> Heads:
    """The reading of a resolved configuration; what the command line runs."""
    loaded = loaded_model(config.model, config, None)
    material = material_of(loaded, config)
    return Heads(run=Geometer(loaded, material, config, None, progress).run())
