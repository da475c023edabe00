"""The depth audit: where a model moves its probability mass, where it has made up its mind."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from flowscope.errors import RecordError
from flowscope.records import Run, Unavailable, Verdict
from flowscope.report import render
from flowscope.report.choice import page_of
from flowscope.runs.auditor import Auditor, Progress
from flowscope.runs.batches import prompts_of
from flowscope.runs.comparison import Comparison, compared
from flowscope.runs.config import AuditConfig
from flowscope.runs.loading import Loaded
from flowscope.runs.preparation import chosen_texts, loaded_model, prepared

__all__ = ["Audit", "audit", "audited", "compared_folders", "rebuilt"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """A finished audit: its verdicts, its tables, and the run folder that holds them."""

    run: Run

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """P0 to P4, each with its reason."""
        return self.run.read_verdicts()

    @property
    def table(self) -> pd.DataFrame:
        """One row per layer: medians over tokens, intervals over prompts."""
        return self.run.read_table("layers")

    @property
    def segments(self) -> pd.DataFrame:
        """One row per segment of depth, with the decision of the gate and its reason."""
        return self.run.read_table("segments")

    def report(self, folder: str | Path | None = None) -> Path:
        """Write ``report.html`` and the figures; into a copy of the run when a folder is given."""
        run = self.run
        if folder is not None and Path(folder).absolute() != run.folder:
            target = Path(folder)
            if target.exists() and any(target.iterdir()):
                raise RecordError(f"{target} is not empty; give a new folder for the report.")
            shutil.copytree(run.folder, target, dirs_exist_ok=True)
            run = Run.open(target)
        render(run, page_of(run))
        return run.folder / "report.html"

    def to_json(self) -> dict[str, Any]:
        """A document of plain values: verdicts, segments, and where the tables are."""
        run, config = self.run, self.run.read_manifest().config_resolved
        resolved = {} if isinstance(config, Unavailable) else dict(config)
        names = run.tables()
        segments = run.read_table("segments") if "segments" in names else pd.DataFrame()
        return {
            "model": str(resolved.get("model", "")),
            "measured": {
                "prompts": resolved.get("measured", {}).get("prompts"),
                "tokens": resolved.get("measured", {}).get("tokens_measured"),
            },
            "verdicts": [_plain(verdict) for verdict in self.verdicts],
            "segments": json.loads(segments.to_json(orient="records")),
            "tables": {name: str(run.folder / "tables" / f"{name}.csv") for name in names},
            "run": str(run.folder),
            "report": str(run.folder / "report.html"),
        }

    def __str__(self) -> str:
        lines = [f"{v.name}  {v.decision:<8}  {v.because}" for v in self.verdicts]
        return "\n".join([f"audit of {_model_name(self.run)}", *lines, f"run: {self.run.folder}"])

    def _repr_html_(self) -> str:
        rows = pd.DataFrame(
            [{"": v.name, "decision": v.decision, "because": v.because} for v in self.verdicts]
        )
        return str(rows.to_html(index=False, escape=True))


def _plain(verdict: Verdict) -> dict[str, Any]:
    statistic = verdict.statistic
    interval = statistic.interval
    return {
        "name": verdict.name,
        "decision": verdict.decision,
        "statistic": float(statistic.numbers()) if statistic.status == "ok" else None,
        "interval": None
        if isinstance(interval, Unavailable)
        else [float(interval.low), float(interval.high)],
        "because": verdict.because,
        "claim": verdict.claim,
        "n": statistic.n,
    }


def rebuilt(folder: Path) -> Path:
    """Write the report of a run folder again, from its tables alone."""
    return Audit(run=Run.open(folder)).report()


def compared_folders(first: Path, second: Path) -> Comparison:
    """Compare the audits in two run folders."""
    return compared(Run.open(first), Run.open(second))


def _model_name(run: Run) -> str:
    config = run.read_manifest().config_resolved
    return "a model" if isinstance(config, Unavailable) else str(config.get("model", "a model"))


def audit(
    source: str | Path | nn.Module | Loaded | None = None,
    texts: Sequence[str] | Tensor | None = None,
    *,
    tokenizer: Any = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """Depth as transport: what every layer does to the distribution the model would give.

    Parameters
    ----------
    source
        Anything `load` takes; the bundled language model when nothing is given.
    texts
        Prompts (or images for a vision model); the packaged ones when nothing is given.
    tokenizer
        Used instead of the one found beside the weights.
    out
        Run folder; a temporary one when not given. An unfinished run there is taken up again.
    progress
        Called with (stage, done, total).
    **settings
        Fields of `AuditConfig`: ``prompts``, ``tokens``, ``batch``, ``seed``, …
    """
    name = str(source) if isinstance(source, (str, Path)) else None
    config = AuditConfig.resolved({"model": name, **settings})
    loaded = loaded_model(source, config, tokenizer)
    running, where = False, "given"
    if texts is None:
        texts, running, where = chosen_texts(config)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="flowscope-")) / "audit"
    prompts = prompts_of(
        loaded, texts, count=config.prompts, length=config.tokens, running=running, source=where
    )
    return Audit(run=Auditor(loaded, prompts, config, folder, progress).run())


def audited(config: AuditConfig, progress: Progress | None = None) -> Audit:
    """The audit of a resolved configuration; what the command line runs."""
    loaded, prompts = prepared(config)
    return Audit(run=Auditor(loaded, prompts, config, None, progress).run())
