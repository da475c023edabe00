"""One audit on its way: measure, compare with controls, judge, write."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from flowscope.evidence import (
    SegmentEvidence,
    judge_locking,
    judge_variation,
    not_measured,
    resampled_counts,
)
from flowscope.flows import Segment, segments_of
from flowscope.instruments.audit.claims import CLAIMS, CONTRACTION, LOCKING, VARIATION
from flowscope.lab.progress import Progress
from flowscope.records import Run, Unavailable, Verdict, library_versions
from flowscope.runs import summary
from flowscope.runs.batches import Batch, Prompts, batches_of
from flowscope.runs.config import AuditConfig
from flowscope.runs.contraction_stage import ContractionStage
from flowscope.runs.flow_stage import FlowStage
from flowscope.runs.loading import Loaded
from flowscope.runs.measuring import Measured, Sampling, measured
from flowscope.runs.second_look import SecondLook, second_look
from flowscope.runs.twin import fresh_twin, refuse_broken_weights
from flowscope.runs.writing import RunWriter, manifest_of, own_folder

__all__ = ["Auditor", "Progress"]

_SHOWN_PROMPTS, _SHOWN_POSITIONS = 4, 64
_LOGITS_HELD = 2**26


class Auditor:
    """Measures one model on one set of prompts into one run folder.

    An unfinished run in the folder is taken up where it was; a run of other weights, texts or
    library versions there is simply not this run, and its shards are not used.
    """

    def __init__(
        self,
        loaded: Loaded,
        prompts: Prompts,
        config: AuditConfig,
        folder: Path | None,
        progress: Progress | None,
    ) -> None:
        self._loaded, self._prompts = loaded, prompts
        self._config = config = _fitted(config, loaded.model, prompts)
        self._progress = progress or (lambda stage, done, total: None)
        self._few = prompts.first(config.control_prompts)
        self._fingerprint = self._content_hash()
        if folder is None:
            folder = own_folder(config.out, "audit", loaded, self._fingerprint)
        self._writer = self._opened(folder)
        self._run, self._put, self._note = self._writer.run, self._writer.put, self._writer.note
        self._counts = resampled_counts(len(prompts), resamples=config.resamples, seed=config.seed)

    def run(self) -> Run:
        """Measure, judge, write."""
        refuse_broken_weights(self._loaded.model)
        found = self._measured(self._loaded, self._prompts, "measuring", self._run)
        layers = summary.layer_table(found.depth, self._counts)
        if found.space == "output":
            verdicts = self._output(found, layers)
        else:
            verdicts = self._hidden(found, layers)
        return self._writer.finish(verdicts)

    def _content_hash(self) -> str:
        """What decides the content of a shard, as one fingerprint."""
        decides = {
            "weights": str(self._loaded.weight_hash),
            "data": self._prompts.data_hash,
            "batch": self._config.batch,
            "pairs": self._config.curvature_pairs,
            "versions": {name: str(version) for name, version in library_versions().items()},
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _opened(self, folder: Path) -> RunWriter:
        prompts = self._prompts
        manifest = manifest_of(
            self._loaded,
            self._config,
            hashes={"tokens": prompts.data_hash, "texts": prompts.text_hash},
            measured={"prompts": len(prompts), "tokens_measured": prompts.tokens},
            seed=self._config.seed,
        )
        return RunWriter(folder, manifest)

    def _measured(
        self, loaded: Loaded, prompts: Prompts, stage: str, run: Run | None = None
    ) -> Measured:
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self._progress(stage, done, len(prompts))

        batches = batches_of(loaded, prompts, self._config.batch)
        # The null is asked of the model itself, not of its control.
        sampling = Sampling(pairs=self._config.curvature_pairs, null=run is not None)
        return measured(
            loaded.model,
            batches,
            sampling=sampling,
            run=run,
            fingerprint=self._fingerprint,
            advance=advance,
        )

    def _control(self) -> Measured | Unavailable:
        if not self._config.controls:
            return Unavailable("controls were switched off")
        twin = fresh_twin(self._loaded.model, self._config.seed)
        if isinstance(twin, Unavailable):
            return twin
        return self._measured(replace(self._loaded, model=twin), self._few, "random weights")

    def _output(self, found: Measured, layers: pd.DataFrame) -> list[Verdict]:
        segments = segments_of(layers["relative_step"].to_numpy()[1:])
        control = self._control()
        row = summary.telling_row(found.depth, min(self._config.batch, len(self._prompts)))
        self._progress("second look", 0, 1)
        look = second_look(self._model, self._few_batches(), segments, row)
        self._progress("second look", 1, 1)
        evidence = [self._evidence(found, control, look, s, i) for i, s in enumerate(segments)]
        self._write(layers, found, evidence, look, control)
        self._put("simplex_path", self._named_path(look.path, found, row))
        self._put("tokens", self._token_table(found))
        seed = self._config.seed
        n, dtype = len(self._prompts), "float32"
        locking = summary.locking_of(found.depth, evidence, self._counts, seed)
        verdicts = {
            VARIATION.name: judge_variation(evidence, claim=VARIATION, n=n, dtype=dtype, seed=seed)
        }
        if isinstance(locking, Unavailable):
            verdicts[LOCKING.name] = not_measured(LOCKING, locking.reason)
        else:
            self._put("locking", locking.table)
            verdicts[LOCKING.name] = judge_locking(
                locking.correlation,
                locking.null,
                claim=LOCKING,
                exceeded=locking.exceeded,
                steps=locking.steps,
                informative=locking.informative,
            )
        path = self._contraction.output_path(evidence, segments)
        verdicts[CONTRACTION.name] = self._curvature(found, control, path)
        verdicts |= self._flow.verdicts(evidence)
        return [verdicts[claim.name] for claim in CLAIMS]

    @property
    def _model(self) -> nn.Module:
        return self._loaded.model

    def _few_batches(self) -> Iterator[Batch]:
        return batches_of(self._loaded, self._few, self._config.batch)

    def _evidence(
        self,
        found: Measured,
        control: Measured | Unavailable,
        look: SecondLook,
        segment: Segment,
        number: int,
    ) -> SegmentEvidence:
        threshold = self._config.threshold
        value, interval, above = summary.segment_statistics(
            found.depth, segment, self._counts, threshold
        )
        fresh: float | Unavailable
        if isinstance(control, Unavailable):
            fresh = control
        else:
            few = resampled_counts(len(self._few), resamples=2, seed=0)
            fresh, _, _ = summary.segment_statistics(control.depth, segment, few, threshold)
        return SegmentEvidence(
            first=segment.first,
            last=segment.last,
            kind=segment.kind,
            relative_variation=value,
            interval=interval,
            share_above=above,
            mass_residual=look.mass_residual,
            mass_bound=_mass_bound(look.vocabulary),
            threshold=threshold,
            random_weights=fresh,
            linear_interpolation=float(look.straight[number]),
        )

    def _write(
        self,
        layers: pd.DataFrame,
        found: Measured,
        evidence: list[SegmentEvidence],
        look: SecondLook,
        control: Measured | Unavailable,
    ) -> None:
        self._put("layers", summary.placed_layers(layers, evidence))
        self._put("segments", summary.segment_table(found.depth, evidence, look.chord))
        self._put("jumps", summary.jump_table(layers))
        self._put("locking_depth", summary.locking_depth_table(found.depth))
        self._run.write_arrays("prompts", summary.prompt_medians(found.depth))
        self._write_heads(found, control)

    def _write_heads(self, found: Measured, control: Measured | Unavailable) -> None:
        if found.heads:
            fresh = {} if isinstance(control, Unavailable) else control.heads
            seed, resamples = self._config.seed, self._config.resamples
            table = summary.head_table(found.heads, fresh, resamples=resamples, seed=seed)
            self._put("heads", table)

    def _hidden(self, found: Measured, layers: pd.DataFrame) -> list[Verdict]:
        """A model without an output over outcomes: its states vary, its attention contracts."""
        self._put("layers", layers.assign(space="hidden", status="abstained"))
        self._run.write_arrays("prompts", summary.prompt_medians(found.depth))
        control = self._control()
        self._write_heads(found, control)
        self._contraction.no_output_path(found.because)
        verdicts = {CONTRACTION.name: self._curvature(found, control)}
        return [verdicts.get(claim.name) or not_measured(claim, found.because) for claim in CLAIMS]

    def _curvature(
        self, found: Measured, control: Measured | Unavailable, path: str = ""
    ) -> Verdict:
        fresh = control if isinstance(control, Unavailable) else control.curvature
        return self._contraction.verdict(found.curvature, fresh, path)

    @property
    def _contraction(self) -> ContractionStage:
        config = self._config
        few = resampled_counts(len(self._few), resamples=config.resamples, seed=config.seed)
        return ContractionStage(
            model=self._model,
            config=config,
            counts=self._counts,
            few_counts=few,
            few_batches=self._few_batches,
            put=self._put,
            note=self._note,
            progress=self._progress,
        )

    @property
    def _flow(self) -> FlowStage:
        return FlowStage(
            model=self._model,
            kind=self._loaded.kind,
            prompts=self._prompts,
            config=self._config,
            counts=self._counts,
            batches=lambda: batches_of(self._loaded, self._prompts, self._config.batch),
            put=self._put,
            note=self._note,
            progress=self._progress,
        )

    def _token_table(self, found: Measured) -> pd.DataFrame:
        table = summary.token_table(found.depth, _SHOWN_PROMPTS, _SHOWN_POSITIONS)
        ids = [
            self._prompts.items[p][q] if not self._prompts.images else 0
            for p, q in zip(table["prompt"], table["position"], strict=True)
        ]
        table["token"] = ["image" if self._prompts.images else self._word(int(i)) for i in ids]
        table["top_token"] = [self._word(int(i)) for i in table.pop("argmax")]
        return table

    def _named_path(self, path: pd.DataFrame, found: Measured, row: int) -> pd.DataFrame:
        for name in ("first", "second"):
            path[f"{name}_token"] = self._word(int(path.pop(f"{name}_id").iloc[0]))
        path["prompt"] = int(found.depth["prompt"][row])
        path["position"] = int(found.depth["position"][row])
        return path

    def _word(self, outcome: int) -> str:
        labels: Any = getattr(self._model.config, "id2label", None)
        if self._prompts.images and labels:
            return str(labels.get(outcome, outcome))
        if isinstance(self._loaded.tokenizer, Unavailable):
            return str(outcome)
        return str(self._loaded.tokenizer.decode([outcome]))


def _fitted(config: AuditConfig, model: nn.Module, prompts: Prompts) -> AuditConfig:
    """The same configuration with a batch whose logits fit into the buffer of the depth meter."""
    outcomes = getattr(getattr(model, "config", None), "vocab_size", None) or 1
    longest = 1 if prompts.images else max(len(item) for item in prompts.items)
    batch = max(min(config.batch, _LOGITS_HELD // (longest * int(outcomes))), 1)
    return config.model_copy(update={"batch": batch})


def _mass_bound(outcomes: int) -> float:
    """How far a float64 softmax may miss one: it adds its terms in a few lanes, one by one."""
    lanes = max(float(np.sqrt(outcomes)), 4.0) + outcomes / 8
    return lanes * float(np.finfo(np.float64).eps)
