"""Track T of source 000: an audit, finer steps, the bridge equation, temperatures of the output."""

from dataclasses import dataclass

import pandas as pd

from flowscope.evidence import resampled_counts
from flowscope.lab.progress import Progress
from flowscope.records import Run, Unavailable
from flowscope.runs.auditor import Auditor
from flowscope.runs.batches import Prompts, batches_of
from flowscope.runs.bridge_reading import bridge_control, bridge_reading, central
from flowscope.runs.calibration import calibration
from flowscope.runs.flow_stage import AHEAD
from flowscope.runs.identification import identification_table
from flowscope.runs.loading import Loaded
from flowscope.runs.paths import Paths, following_tokens, sampled_paths
from flowscope.runs.preparation import prepared
from flowscope.runs.studies import TrackT
from flowscope.runs.track_t_statements import track_t_statement_table

__all__ = ["track_t_run"]


def track_t_run(config: TrackT, progress: Progress) -> Run:
    """Run the study; its audit, if it was run before in the same folder, is taken up again."""
    loaded, prompts = prepared(config.audit)
    run = Auditor(loaded, prompts, config.audit, None, progress).run()
    more = _More(config, loaded, prompts, run, progress)
    more.identification()
    more.from_paths()
    run.write_table(config.study, track_t_statement_table(run))
    return run


@dataclass(frozen=True, eq=False)
class _More:
    """What the study measures beyond the audit."""

    config: TrackT
    loaded: Loaded
    prompts: Prompts
    run: Run
    progress: Progress

    def _longest(self) -> tuple[int, int] | None:
        """First and last layer of the longest segment that passed the gate on variation."""
        if "segments" not in self.run.tables():
            return None
        table = self.run.read_table("segments")
        passing = table[table["decision"] == "holds"]
        if passing.empty:
            return None
        lengths = (passing["last_layer"] - passing["first_layer"]).to_numpy()
        row = passing.iloc[int(lengths.argmax())]
        return int(row["first_layer"]), int(row["last_layer"])

    def identification(self) -> None:
        """Same weights with finer steps, on the longest segment that passed the gate."""
        longest = self._longest()
        if longest is None or self.prompts.images:
            return
        few = self.prompts.first(self.config.refined_prompts)
        table = identification_table(
            self.loaded.model,
            lambda: batches_of(self.loaded, few, self.config.audit.batch),
            self.config.refinements,
            first=longest[0],
            last=longest[1],
            positions=self.config.refined_positions,
            rank=self.config.refined_rank,
            advance=lambda done, total: self.progress("refining", done, total),
        )
        if not isinstance(table, Unavailable):
            self.run.write_table("identification", table)

    def from_paths(self) -> None:
        """What needs paths again: the bridge equation, and the temperature of the output."""
        if self.prompts.images:
            return
        audit = self.config.audit
        paths = sampled_paths(
            self.loaded.model,
            batches_of(self.loaded, self.prompts, audit.batch),
            prompts=len(self.prompts),
            positions=audit.flow_positions,
            close=1,
        )
        if not isinstance(paths, Unavailable):
            self._bridge(paths)
            self._output_temperature(paths)

    def _bridge(self, paths: Paths) -> None:
        """The HJB residual over the central layers of the longest segment, and its control."""
        longest, audit = self._longest(), self.config.audit
        if longest is None:
            return
        first, last = longest
        self.progress("bridge", 0, 2)
        layers = central(paths, first, last, audit.rotation_layers, audit.rotation_rank, audit.seed)
        told = []
        if not isinstance(layers, Unavailable):
            control = bridge_control(layers, 1 / paths.layers, audit.seed)
            for done, (name, one) in enumerate({"model": layers, "bridge": control}.items()):
                found = bridge_reading(one, audit.seed)
                self.progress("bridge", done + 1, 2)
                if not isinstance(found, Unavailable):
                    told.append(found.assign(data=name))
        if len(told) == 2:
            self.run.write_table("bridge", pd.concat(told, ignore_index=True))

    def _output_temperature(self, paths: Paths) -> None:
        """Mobility and calibration as the temperature of the output is swept."""
        kind, audit = self.loaded.kind, self.config.audit
        if kind not in AHEAD:
            return
        self.progress("calibration", 0, 1)
        found = calibration(
            paths,
            following_tokens(paths, self.prompts.items, ahead=AHEAD[kind]),
            self.config.output_temperatures,
            resampled_counts(len(self.prompts), resamples=audit.resamples, seed=audit.seed),
            seed=audit.seed,
        )
        self.run.write_table("output_temperature", found.table)
        self.run.write_measurements([*self.run.read_measurements(), found.gain])
        self.progress("calibration", 1, 1)
