"""One reading of the heads on its way: measure, compare with controls, portray, dial, write."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from flowscope.evidence import Reference, judge_irreversibility, resampled_counts
from flowscope.instruments.heads.claims import DIRECTED, TRAINED
from flowscope.lab import Claim
from flowscope.lab.progress import Progress
from flowscope.probes.portrait import portrait
from flowscope.probes.weights import weight_ratios
from flowscope.records import Measurement, Run, Unavailable, Verdict, library_versions
from flowscope.runs.config import HeadsConfig
from flowscope.runs.dials import Dial, dial_table
from flowscope.runs.head_reading import HeadReading, read_heads
from flowscope.runs.head_tables import geometry_table, irreversibility, with_weight_ratios
from flowscope.runs.loading import Loaded
from flowscope.runs.material import Material
from flowscope.runs.twin import fresh_twin, refuse_broken_weights
from flowscope.runs.writing import RunWriter, manifest_of, own_folder

__all__ = ["Geometer"]

_CLAIMS: dict[Reference, Claim] = {"random weights": TRAINED, "keys permuted": DIRECTED}


class Geometer:
    """Reads the heads of one model on one material into one run folder."""

    def __init__(
        self,
        loaded: Loaded,
        material: Material,
        config: HeadsConfig,
        folder: Path | None,
        progress: Progress | None,
    ) -> None:
        self._loaded, self._material, self._config = loaded, material, config
        self._progress = progress or (lambda stage, done, total: None)
        self._fingerprint = self._content_hash()
        if folder is None:
            folder = own_folder(config.out, "heads", loaded, self._fingerprint)
        manifest = manifest_of(
            loaded,
            config,
            hashes={"tokens": material.data_hash, "texts": material.text_hash},
            measured={
                "prompts": material.size,
                "tokens_measured": material.tokens,
                "material": material.source,
            },
            seed=config.seed,
            command="heads",
        )
        self._writer = RunWriter(folder, manifest)
        few = min(config.control_prompts, material.size)
        self._counts, self._few_counts = (
            resampled_counts(size, resamples=config.resamples, seed=config.seed)
            for size in (material.size, few)
        )

    def run(self) -> Run:
        """Measure, judge, write."""
        refuse_broken_weights(self._loaded.model)
        reading = self._read(self._loaded, None, "heads", self._writer.run)
        if reading.crossed:
            self._writer.note(Measurement.abstained("cross-attention", _crossed(reading.crossed)))
        references = self._references()
        table = self._table(reading, references)
        self._writer.put("geometry", table)
        self._portrait()
        self._dials()
        verdicts = [self._judged(reading, name, other, table) for name, other in references.items()]
        return self._writer.finish(verdicts)

    def _judged(
        self,
        reading: HeadReading,
        reference: Reference,
        other: HeadReading | Unavailable,
        table: pd.DataFrame,
    ) -> Verdict:
        told = irreversibility(
            reading,
            reference,
            other,
            table,
            self._counts,
            self._few_counts,
            seed=self._config.seed,
        )
        return judge_irreversibility(
            told.production,
            told.null,
            claim=_CLAIMS[reference],
            reference=reference,
            effect=told.effect,
            interval=told.interval,
            labels=told.labels,
            chain=self._config.chain,
        )

    def _content_hash(self) -> str:
        """What decides the content of a shard, as one fingerprint."""
        config = self._config
        decides = {
            "weights": str(self._loaded.weight_hash),
            "data": self._material.data_hash,
            "batch": config.batch,
            "chain": config.chain,
            "damping": config.damping if config.chain == "damped" else 0,
            "versions": {name: str(version) for name, version in library_versions().items()},
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _read(
        self,
        loaded: Loaded,
        most: int | None,
        stage: str,
        run: Run | None = None,
        permuted: bool = False,
    ) -> HeadReading:
        total = self._material.size if most is None else min(most, self._material.size)
        return read_heads(
            loaded.model,
            self._material.batches(most),
            walk=self._config.chain,
            damping=self._config.damping,
            permuted=permuted,
            run=run,
            fingerprint=self._fingerprint,
            advance=self._counter(stage, total),
        )

    def _counter(self, stage: str, total: int) -> Callable[[int], None]:
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self._progress(stage, min(done, total), total)

        return advance

    def _references(self) -> dict[Reference, HeadReading | Unavailable]:
        """What the heads are compared with, on the first few prompts."""
        if not self._config.controls:
            off = Unavailable("controls were switched off")
            return {"random weights": off, "keys permuted": off}
        few = self._few_counts.shape[1]
        twin = fresh_twin(self._loaded.model, self._config.seed)
        fresh: HeadReading | Unavailable
        if isinstance(twin, Unavailable):
            fresh = twin
        else:
            fresh = self._read(replace(self._loaded, model=twin), few, "random weights")
        if self._config.chain == "unmasked":
            permuted: HeadReading | Unavailable = self._read(
                self._loaded, few, "keys permuted", permuted=True
            )
        else:
            permuted = Unavailable("the mask is part of this chain: its keys cannot be permuted")
        return {"random weights": _first(fresh, few), "keys permuted": _first(permuted, few)}

    def _table(
        self, reading: HeadReading, references: dict[Reference, HeadReading | Unavailable]
    ) -> pd.DataFrame:
        config = self._config
        table = geometry_table(
            reading, references, self._counts, chain=config.chain, level=config.level
        )
        first = next(self._material.batches(1))
        return with_weight_ratios(table, weight_ratios(self._loaded.model, first.inputs))

    def _portrait(self) -> None:
        self._progress("portrait", 0, 1)
        config = self._config
        inputs, tokens = self._sentence()
        found = portrait(
            self._loaded.model,
            inputs,
            chain=config.chain,
            damping=config.damping,
            charge=config.charge,
        )
        self._progress("portrait", 1, 1)
        if isinstance(found, Unavailable):
            self._writer.note(Measurement.abstained("portrait", found.reason))
            return
        self._writer.run.write_arrays("portrait", found)
        n = found["law"].shape[-1]
        words = tokens if len(tokens) == n else [str(k) for k in range(n)]
        self._writer.put("sentence", pd.DataFrame({"position": range(n), "token": words}))

    def _sentence(self) -> tuple[dict[str, Any], list[str]]:
        """One short sequence for the portrait: the inputs of a pass, and its tokens as text."""
        prompts, tokenizer = self._material.prompts, self._loaded.tokenizer
        first = next(self._material.batches(1))
        if isinstance(prompts, Unavailable) or prompts.images or isinstance(tokenizer, Unavailable):
            return first.inputs, []
        ids = prompts.items[0]
        if self._config.sentence is not None:
            special = self._loaded.kind not in ("causal_lm", "seq2seq")
            ids = tokenizer(self._config.sentence, add_special_tokens=special)["input_ids"]
        shown = [int(i) for i in ids[: self._config.shown_tokens]]
        device = next(iter(first.inputs.values())).device
        row = torch.tensor([shown], device=device)
        inputs = {"input_ids": row}
        if self._loaded.kind == "seq2seq":
            inputs["decoder_input_ids"] = row
        return inputs, [str(tokenizer.decode([i])) for i in shown]

    def _dials(self) -> None:
        config, prompts = self._config, self._material.prompts
        if not config.dials:
            return
        if isinstance(prompts, Unavailable):
            self._writer.note(Measurement.abstained("dials", prompts.reason))
            return
        few, dials = prompts.first(self._few_counts.shape[1]), _dials(config)
        found = dial_table(
            self._loaded,
            few,
            dials,
            self._few_counts,
            batch=config.batch,
            layers=[layer - 1 for layer in config.dial_layers] or None,
            heads=list(config.dial_heads) or None,
            seed=config.seed,
            draws=config.draws,
            advance=self._counter("dials", len(few) * (1 + (1 + config.draws) * len(dials))),
        )
        if isinstance(found, Unavailable):
            self._writer.note(Measurement.abstained("dials", found.reason))
        else:
            self._writer.put("dials", found)


def _crossed(layers: int) -> str:
    return (
        f"{layers} layers attend to another sequence too: its queries and keys are not the same "
        "tokens, so there is no diagonal and no chain; only a bridge "
        "(flowscope.markov.kernel_bridge) applies"
    )


def _first(reading: HeadReading | Unavailable, few: int) -> HeadReading | Unavailable:
    """A batch is read whole; what goes beyond the few prompts is left out of a comparison."""
    if isinstance(reading, Unavailable):
        return reading
    return replace(reading, arrays={name: v[:few] for name, v in reading.arrays.items()})


def _dials(config: HeadsConfig) -> list[Dial]:
    named = {
        "metric": config.metric,
        "exact": config.exact,
        "flux": config.flux,
        "alpha": config.alpha,
        "temperature": config.temperatures,
        "square": config.squares,
    }
    return [Dial(kind=kind, value=value) for kind, values in named.items() for value in values]  # type: ignore[arg-type]
