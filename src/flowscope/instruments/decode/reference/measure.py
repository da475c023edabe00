"""Fill every prompt by the reference and record every pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.instruments.decode.answers import correct_answers, same_answers
from flowscope.instruments.decode.filling.loop import filled
from flowscope.instruments.decode.filling.trace import RECORDED, Recorder, Trace, blank_places
from flowscope.instruments.decode.policies.verified import Reference
from flowscope.instruments.decode.reference import TABLES
from flowscope.instruments.decode.subject import DecodeBench
from flowscope.lab.running.progress import Counter
from flowscope.models.infilling.templates import Template, canvas_of
from flowscope.models.reading.tokens import token_name
from flowscope.records import Unavailable

__all__ = ["Batch", "Part", "agreeing", "reference"]

_TENTHS = 10
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Some prompts, what the reference filled in, and the record of its passes.

    Attributes
    ----------
    start, templates
        Number of the first prompt, and the prompts.
    ids
        What was filled in, ``[rows, positions]``.
    places
        Positions of the blanks, ``[rows, blanks]``; −1 behind the last.
    trace
        The record.
    seconds
        Time of the batch over the prompts in it; NaN where it was taken up from an earlier run.
    """

    start: int
    templates: tuple[Template, ...]
    ids: NDArray[np.int64]
    places: NDArray[np.int64]
    trace: Trace
    seconds: float

    def filled_at(self, passes: NDArray[np.int64], fires: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sequences if each row were filled in its pass, from 0, where it fires."""
        fills = self.trace.fills[passes, np.arange(len(passes))]
        return self.spread(np.where(fires[:, None], fills, self.trace.final))

    def spread(self, fill: NDArray[np.int32]) -> NDArray[np.int64]:
        """Sequences with these tokens at their blanks."""
        ids = self.ids.copy()
        rows, columns = np.nonzero(self.places >= 0)
        ids[rows, self.places[rows, columns]] = fill[rows, columns]
        return ids


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The prompts for calibration, or the fresh ones, with the reference's answers.

    Attributes
    ----------
    name, templates, batches
        calibration or test; the prompts; what was made of them.
    passes, correct, seconds
        Of each prompt.
    """

    name: str
    templates: tuple[Template, ...]
    batches: tuple[Batch, ...]
    passes: NDArray[np.int64]
    correct: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.templates)


def reference(bench: DecodeBench) -> None:
    """Write the tables of the reference; share its parts with later stages."""
    material = bench.subject.material
    lists = {"calibration": material.calibration, "test": material.test}
    counter = bench.counter("reference", sum(map(len, lists.values())))
    parts = {name: _part(bench, name, templates, counter) for name, templates in lists.items()}
    bench.once("parts", lambda: parts)
    rows = [frame for part in parts.values() for frame in _rows(bench, part)]
    bench.put("prompts", pd.concat(rows, ignore_index=True))
    bench.put("progress", _progress(parts["test"]))
    bench.put("map", _map(bench, parts["test"]))


def _part(bench: DecodeBench, name: str, templates: tuple[Template, ...], counter: Counter) -> Part:
    size = bench.config.batch
    bench.list_pass(f"reference on the {name} prompts", len(templates))
    batches: list[Batch] = []
    for start in range(0, len(templates), size):
        some = templates[start : start + size]
        made: list[float] = []
        make = partial(_filled, bench, some, start, made)
        arrays = bench.shard(f"reference-{name}-{start // size:05d}", make)
        # A finished piece that is taken up again took no time; its time is not in it, because two
        # runs with the same settings have the same pieces.
        time = made[0] if made else math.nan
        batches.append(_batch(start, some, arrays, time, bench.config.eos))
        counter.advance(len(some))
    checker = bench.subject.checker
    eos = bench.config.eos
    correct = [correct_answers(batch.ids, batch.templates, checker, eos) for batch in batches]
    seconds = [np.full(len(batch.templates), batch.seconds) for batch in batches]
    return Part(
        name=name, templates=templates, batches=tuple(batches),
        passes=_joined([batch.trace.passes for batch in batches], np.int64),
        correct=_joined(correct, np.float64),
        seconds=_joined(seconds, np.float64),
    )  # fmt: skip


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0)]).astype(dtype)


def _filled(
    bench: DecodeBench, templates: tuple[Template, ...], start: int, seconds: list[float]
) -> Arrays:
    subject, config = bench.subject, bench.config
    numbers = range(start, start + len(templates))
    canvas = canvas_of(subject.made, templates, numbers)
    recorder = Recorder(canvas)
    done = filled(
        subject.made, canvas, Reference(), subject.plan, batch=config.batch, listener=recorder,
        recording=True,
    )  # fmt: skip
    seconds.append(done.seconds / len(templates))
    places = blank_places(canvas.blank).cpu()
    ids = done.ids.cpu()
    final = ids.gather(1, places.clamp_min(0)).masked_fill(places < 0, -1)
    region = canvas.region.cpu().gather(1, places.clamp_min(0)) & (places >= 0)
    return {
        **recorder.arrays(),
        "ids": ids.numpy(), "places": places.numpy(), "final": final.numpy().astype(np.int32),
        "region": region.numpy(), "planned": done.planned.cpu().numpy(),
    }  # fmt: skip


def _batch(
    start: int, templates: tuple[Template, ...], arrays: Arrays, seconds: float, eos: int | None
) -> Batch:
    trace = Trace(
        top=arrays["top"], laws={name: arrays[name] for name in RECORDED},
        final=arrays["final"], region=arrays["region"], planned=arrays["planned"],
        eos=eos,
    )  # fmt: skip
    return Batch(
        start=start, templates=templates, ids=arrays["ids"], places=arrays["places"],
        trace=trace, seconds=seconds,
    )  # fmt: skip


def agreeing(bench: DecodeBench, batch: Batch) -> NDArray[np.bool_]:
    """Whether filling all in a pass gives the reference's answer, ``[passes, rows]``."""
    checker = bench.subject.checker
    if checker is None:
        return batch.trace.same
    return np.stack(
        [
            same_answers(batch.spread(fill), batch.ids, batch.templates, checker, bench.config.eos)
            for fill in batch.trace.fills
        ]
    )


def _rows(bench: DecodeBench, part: Part) -> Iterator[pd.DataFrame]:
    for batch in part.batches:
        same = agreeing(bench, batch)
        numbers = np.arange(batch.start, batch.start + len(batch.templates))
        # Beyond its last pass a row is full, so that filling it changes nothing.
        later = np.logical_and.accumulate(same[::-1])[::-1]
        yield pd.DataFrame(
            {
                "part": part.name,
                "prompt": numbers,
                "blanks": [template.blanks for template in batch.templates],
                "passes": batch.trace.passes,
                "correct": part.correct[numbers],
                "known": same.argmax(0) + 1,
                "settled": later.argmax(0) + 1,
            }
        )


def _progress(part: Part) -> pd.DataFrame:
    """Medians and shares over blanks and prompts, by tenths of the passes."""
    columns: dict[str, list[float]] = {name: [] for name in TABLES["progress"].schema}
    pieces = [_by_tenth(batch) for batch in part.batches]
    for tenth in range(_TENTHS):
        found = {name: np.concatenate([piece[tenth][name] for piece in pieces]) for name in _KEPT}
        columns["progress"].append((tenth + 0.5) / _TENTHS)
        for name in ("masked", "final", "answers"):
            columns[name].append(_mean(found[name]))
        for name in ("confidence", "entropy", "mobility"):
            columns[name].append(_median(found[name]))
    return pd.DataFrame(columns)


_KEPT = ("masked", "confidence", "entropy", "mobility", "final", "answers")


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _by_tenth(batch: Batch) -> list[dict[str, NDArray[np.float64]]]:
    """Values of the blanks and prompts of a batch in each tenth of their passes."""
    trace = batch.trace
    masked, passes = trace.masked, trace.passes
    number = np.arange(len(masked))[:, None]
    tenth = np.where(number < passes, number * _TENTHS // np.maximum(passes, 1), -1)
    blanks = (batch.places >= 0).sum(1)
    final, same = trace.top == trace.final, trace.same
    found = []
    for k in range(_TENTHS):
        at = tenth == k
        inside = masked & at[..., None]
        found.append(
            {
                "masked": (masked.sum(2) / blanks)[at],
                "confidence": trace.laws["first"][inside],
                "entropy": trace.laws["entropy"][inside],
                "mobility": trace.laws["mobility"][inside],
                "final": final[inside],
                "answers": same[at],
            }
        )
    return found


def _map(bench: DecodeBench, part: Part) -> pd.DataFrame:
    """Laws of every blank in every pass, of the first fresh prompts."""
    rows: list[dict[str, object]] = []
    for batch in part.batches:
        for row in range(len(batch.templates)):
            if batch.start + row >= bench.config.maps:
                break
            rows += _map_rows(bench, batch, row)
    return pd.DataFrame(rows, columns=list(TABLES["map"].schema))


def _map_rows(bench: DecodeBench, batch: Batch, row: int) -> list[dict[str, object]]:
    trace, places = batch.trace, batch.places[row]
    return [
        {
            "prompt": batch.start + row, "pass": number + 1, "position": int(places[blank]),
            "token": _name(bench, int(trace.top[number, row, blank])),
            "filled": _name(bench, int(trace.final[row, blank])),
            "first": float(trace.laws["first"][number, row, blank]),
            "second": float(trace.laws["second"][number, row, blank]),
            "entropy": float(trace.laws["entropy"][number, row, blank]),
        }
        for number, blank in zip(*np.nonzero(trace.masked[:, row]), strict=True)
    ]  # fmt: skip


def _name(bench: DecodeBench, token: int) -> str:
    loaded = bench.subject.made.loaded
    if isinstance(loaded, Unavailable) or isinstance(loaded.tokenizer, Unavailable):
        return str(token)
    return token_name(loaded.tokenizer, token)
