"""The flow stage of an audit: whether depth is a flow, and how much of it turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import Counts, not_measured
from flowscope.instruments.audit import adequacy_tables as tables
from flowscope.instruments.audit.adequacy import Adequacy, forecasts_of
from flowscope.instruments.audit.adequacy_rule import judge_adequacy
from flowscope.instruments.audit.claims import ADEQUACY, VARIATION
from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.audit.depth_loss import (
    depth_loss_table,
    free_layers,
    losses_along,
    mobility_and_loss,
)
from flowscope.instruments.audit.paths import Paths, following_tokens
from flowscope.instruments.audit.variation_rule import SegmentEvidence
from flowscope.models.prompts import Prompts
from flowscope.records import Measurement, Unavailable, Verdict

__all__ = ["AHEAD", "FlowStage"]

AHEAD = {"causal_lm": 1, "masked_lm": 0}


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowStage:
    """What the verdicts on adequacy and rotation need of an audit on its way.

    Attributes
    ----------
    kind, prompts, config
        What the audited model does, on what it is audited, and how.
    counts
        Resampled prompts.
    put, note, progress
        Takes a table by its name; takes a measurement; is told (stage, done, total).
    """

    kind: str
    prompts: Prompts
    config: AuditConfig
    counts: Counts
    put: Callable[[str, pd.DataFrame], None]
    note: Callable[[Measurement], None]
    progress: Callable[[str, int, int], None]

    def obstacle(self, passing: Sequence[SegmentEvidence]) -> str:
        """Why there are no paths to read; empty where there are.

        Parameters
        ----------
        passing
            Segments that passed the gate on variation.
        """
        if self.config.flow_positions == 0:
            return "the measurement is switched off (flow_positions is 0)"
        if self.prompts.images:
            return "the model pools its positions before the output: tokens have no path"
        if not passing:
            return f"no segment of layers passed {VARIATION.name} {VARIATION.title}"
        return ""

    def adequacy(self, paths: Paths, passing: Sequence[SegmentEvidence]) -> Verdict:
        """Forecasts of a fitted flow on every passing segment, and the verdict on them."""
        config, total = self.config, 2 * len(passing)
        done, found, reasons = 0, [], []

        def advance() -> None:
            nonlocal done
            done += 1
            self.progress("flow", done, total)

        self.progress("flow", 0, total)
        for segment in passing:
            part = forecasts_of(
                paths,
                segment,
                rank=config.flow_rank,
                rich=config.drift_features == "rich",
                seed=config.seed,
                advance=advance,
            )
            if isinstance(part, Unavailable):
                reasons.append(f"{segment.layers}: {part.reason}")
            else:
                found.append(part)
        self.progress("flow", total, total)
        if not found:
            return not_measured(ADEQUACY, "; ".join(reasons))
        self._write(found)
        moving = [part for part in found if not part.stopped]
        if not moving:
            why = "; ".join(f"{part.segment.layers}: {part.stopped}" for part in found)
            return not_measured(ADEQUACY, f"the fitted flow cannot be integrated: {why}")
        return self._judged(moving)

    def _write(self, found: Sequence[Adequacy]) -> None:
        self.put("adequacy", tables.adequacy_table(found, self.counts))
        self.put("adequacy_clouds", tables.cloud_table(found, self.config.seed))
        self.put("drifts", tables.fit_table(found))
        self.put("overlay", tables.overlay_table(found, self.counts))

    def _judged(self, found: Sequence[Adequacy]) -> Verdict:
        seed = self.config.seed
        budget = tables.budget_reading(found, seed)
        words = ""
        if not isinstance(budget, Unavailable):
            self.put("budget", budget.table)
            self.note(budget.correlation)
            words = budget.words
        onward = tables.skill_of(found, "onward", self.counts, seed)
        near = tables.skill_of(found, "one layer", self.counts, seed)
        self.note(near)
        return judge_adequacy(
            onward,
            claim=ADEQUACY,
            one_step=near,
            best=tables.best_skill(found, self.counts),
            segments={part.segment.layers: "/".join(dict.fromkeys(part.chosen)) for part in found},
            budget=words,
        )

    def depth_loss(self, paths: Paths) -> None:
        """000's second prediction: what the last layers are worth, beside the mobility left."""
        if self.kind not in AHEAD:
            return
        targets = following_tokens(paths, self.prompts.items, ahead=AHEAD[self.kind])
        rows = self._judged_rows(paths, targets)
        if not len(rows):
            return
        self.progress("depth loss", 0, 1)
        loss, mobility = losses_along(paths, rows, targets)
        prompt = paths.prompt[rows]
        table = depth_loss_table(loss, mobility, prompt, self.counts)
        table["free"] = table["removed"] <= free_layers(table)
        self.put("depth_loss", table)
        told = mobility_and_loss(loss, mobility, prompt, self.counts, self.config.seed)
        self.note(told)
        self.progress("depth loss", 1, 1)

    def _judged_rows(self, paths: Paths, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens with something to name: two out of every looked-at one, so as not to take long."""
        wanted = np.flatnonzero(targets >= 0)
        most = 2 * len(paths.close)
        every: NDArray[np.int64] = wanted[:: max(1, -(-len(wanted) // most))]
        return every
