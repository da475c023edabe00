"""One reading of replicas on its way: outcomes, modes, linear response, judgements, tables."""

import hashlib
import json
from pathlib import Path

from flowscope.errors import UnsupportedModelError
from flowscope.evidence import judge_commitment_order, judge_internal_gap, not_measured
from flowscope.instruments.sync.claims import GAP, ORDER
from flowscope.lab.progress import Counter, Progress
from flowscope.probes import Arrays
from flowscope.records import Measurement, Run, Unavailable, Verdict
from flowscope.runs.config import SyncConfig
from flowscope.runs.denoiser import Denoiser, image_shape
from flowscope.runs.denoiser_marks import denoiser_marks
from flowscope.runs.encoders import Encoder, encoder_mark
from flowscope.runs.mode_reading import ModeReading
from flowscope.runs.outcomes import Outcomes, strip
from flowscope.runs.propagation import Propagation
from flowscope.runs.sync_tables import (
    Times,
    agreement_table,
    commitment_table,
    commitment_times,
    effect_table,
    energy_table,
    gap_table,
    internal_gap_table,
)
from flowscope.runs.twin import refuse_broken_weights
from flowscope.runs.writing import RunWriter, manifest_of, own_folder

__all__ = ["Synchronizer"]

_AFTERWARDS = ("couplings", "interventions", "labels", "resamples", "draws", "band", "out", "kept",
               "propagation", "propagation_steps", "propagation_states", "device")  # fmt: skip


class Synchronizer:
    """Reads the replicas of one diffusion model into one run folder."""

    def __init__(
        self,
        denoiser: Denoiser,
        encoder: Encoder | Unavailable,
        encoder_name: str,
        config: SyncConfig,
        folder: Path | None,
        progress: Progress | None,
    ) -> None:
        self._denoiser, self._encoder, self._config = denoiser, encoder, config
        self._progress = progress or (lambda stage, done, total: None)
        self._fingerprint = _content_hash(denoiser, encoder, config)
        if folder is None:
            folder = own_folder(config.out, "sync", denoiser.loaded, self._fingerprint)
        classes = denoiser.classes
        manifest = manifest_of(
            denoiser.loaded,
            config,
            hashes={},
            measured={
                "pairs": config.pairs,
                "steps": config.steps,
                "classes": [classes[label] if classes else "all" for label in config.labels],
                "encoder": encoder_name,
            },
            seed=config.seed,
            command="sync",
        )
        self._writer = RunWriter(folder, manifest)

    def run(self) -> Run:
        """Measure, judge, write."""
        refuse_broken_weights(self._denoiser.loaded.model)
        times, first = self._outcomes()
        second = self._modes(times)
        return self._writer.finish([first, second])

    def _outcomes(self) -> tuple[Times, Verdict]:
        config, classes, run = self._config, self._denoiser.classes, self._writer.run
        counter = Counter(self._progress, "images")
        stage = Outcomes(
            self._denoiser, self._encoder, config, run, self._fingerprint, counter.advance
        )
        counter.total = stage.passes()
        curves = stage.curves()
        counter.finish()
        times = commitment_times(curves, config)
        without = {}
        if isinstance(self._encoder, Unavailable):
            without["feature"] = self._encoder.reason
            self._writer.note(Measurement.abstained("tau_spec", self._encoder.reason))
        self._writer.put("agreement", agreement_table(curves, times, classes, config))
        self._writer.put("commitment", commitment_table(times, curves, classes, without))
        gaps = gap_table(times, curves, classes)
        self._writer.put("commitment_gap", gaps)
        self._writer.put("coupling_effect", effect_table(times, config, classes))
        run.write_arrays("strip", strip(curves))
        return times, judge_commitment_order(gaps, claim=ORDER, seed=config.seed)

    def _modes(self, times: Times) -> Verdict:
        config = self._config
        couplings = (0.0, *(g for g in config.couplings if g))
        read_at = {g: self._read_at(g, times) for g in couplings}
        counter = Counter(self._progress, "modes", len(couplings) * config.steps)
        stage = ModeReading(
            self._denoiser, config, self._writer.run, self._fingerprint, counter.advance
        )
        readings: dict[float, Arrays] = {}
        try:
            for g in couplings:
                readings[g] = stage.read(g, [read_at[g]])
        except UnsupportedModelError as error:
            self._writer.note(Measurement.abstained("internal gap", str(error)))
            return not_measured(GAP, str(error))
        counter.finish()
        table = internal_gap_table(readings, read_at, config)
        self._writer.put("internal_gap", table)
        self._writer.put("energies", energy_table(readings, config))
        self._propagation(readings)
        return judge_internal_gap(table[table["g"] == 0], claim=GAP, seed=config.seed)

    def _propagation(self, readings: dict[float, Arrays]) -> None:
        if not self._config.propagation:
            self._writer.note(Measurement.abstained("propagation", "it was switched off"))
            return
        counter = Counter(self._progress, "blocks")
        stage = Propagation(
            self._denoiser,
            self._config,
            readings,
            self._writer.run,
            self._fingerprint,
            counter.advance,
        )
        counter.total = stage.work()
        tables = stage.tables()
        counter.finish()
        if isinstance(tables, Unavailable):
            self._writer.note(Measurement.abstained("propagation", tables.reason))
            return
        for name, table in tables.items():
            self._writer.put(name, table)

    def _read_at(self, g: float, times: Times) -> int:
        """The step of commitment under this coupling; else the control's; else the middle."""
        config = self._config
        label = config.labels[0]
        for key in ((label, g, False, "feature"), (label, 0.0, True, "feature")):
            time = times.get(key)
            if time is not None and time.status == "ok":
                return min(max(round(time.midpoint), 1), config.steps - 1)
        return config.steps // 2


def _content_hash(denoiser: Denoiser, encoder: Encoder | Unavailable, config: SyncConfig) -> str:
    """What decides the content of a shard, as one fingerprint.

    Couplings and classes are in the names of shards, so that a wider sweep takes up what a narrower
    one has finished; the interventions are not, because one walk serves all of them.
    """
    decides = {
        **denoiser_marks(denoiser),
        "encoder": encoder_mark(encoder, image_shape(denoiser), denoiser.device),
        "settings": config.model_dump(mode="json", exclude=set(_AFTERWARDS)),
        "interventions": config.interventions,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
