"""Runs over parts of the prompts become the planned run over all of them.

A shard of a batch holds scalars of its prompts, whose numbers count from the first prompt of the
text (setting ``skip``), and every draw that belongs to a prompt is that of this number. So the
shards of the parts *are* the shards of the whole run, under other names: a batch counts from the
first prompt of its run, and the fingerprint holds the hash of all tokens. What does not belong to
one batch (controls, resampling, paths in memory) is measured by the command that finishes the run.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowscope.errors import InvalidInputError
from flowscope.lab import engine, registry
from flowscope.lab.bench import Bench, shard_fingerprint
from flowscope.lab.instrument import Instrument
from flowscope.lab.running.identity import differences
from flowscope.lab.running.writing import places_of
from flowscope.records import Manifest, Run, Shard, Shards, Unavailable

__all__ = ["Union", "merged"]

_BATCH = re.compile(r"(.*?)(\d{5})")
_OF_A_PART = ("data.tokens", "data.texts", "prompts", "skip", "marks.data")
"""What may differ between parts; the texts are compared apart."""


@dataclass(frozen=True, kw_only=True)
class Union:
    """A planned run over the prompts of several.

    Attributes
    ----------
    run
        Its folder.
    instrument
        Name of the command that finishes it.
    shards, prompts
        Shards that were taken over, and prompts of all parts.
    """

    run: Path
    instrument: str
    shards: int
    prompts: int


@dataclass(frozen=True, kw_only=True)
class _Part:
    run: Run
    manifest: Manifest
    settings: Mapping[str, Any]

    @property
    def first(self) -> int:
        return int(self.settings["skip"])

    @property
    def prompts(self) -> int:
        return int(self.settings["measured"]["prompts"])

    @property
    def end(self) -> int:
        return self.first + self.prompts

    @property
    def name(self) -> str:
        return str(self.run.folder)


def merged(folders: Sequence[Path], out: Path) -> Union:
    """Unite runs over consecutive parts of the prompts; their order does not matter.

    Parameters
    ----------
    folders
        Run folders of one instrument, model and settings.
    out
        Run folder to be made; one that was made by the same call is completed.

    Raises
    ------
    InvalidInputError
        The parts are of several runs, overlap, leave prompts out, or are not whole batches.
    RecordError
        A folder is no run, or ``out`` holds another one.
    """
    parts = sorted((_part(Path(folder)) for folder in folders), key=lambda part: part.first)
    if len(parts) < 2:
        raise InvalidInputError("merge takes two run folders or more; got one.")
    instrument = registry.instrument_of(parts[0].run)
    _refuse_strangers(parts, instrument)
    _refuse_gaps(parts)
    config = _united(parts, instrument)
    new = not out.exists()
    try:
        with engine.opened_bench(instrument, config, out) as (bench, plan):
            batch = int(bench.config.batch)
            _refuse_other_texts(parts, bench)
            _refuse_split_batches(parts, batch)
            plan.write(bench.records.folder)
            copied = sum(_copied(part, parts[0].first, batch, instrument, bench) for part in parts)
            return Union(
                run=bench.records.folder,
                instrument=instrument.name,
                shards=copied,
                prompts=parts[-1].end - parts[0].first,
            )
    except InvalidInputError:
        if new:  # a plan that was refused is none
            shutil.rmtree(out, ignore_errors=True)
        raise


def _part(folder: Path) -> _Part:
    run = Run.open(folder)
    manifest = run.read_manifest()
    settings = manifest.config_resolved
    if isinstance(settings, Unavailable) or "skip" not in settings or "study" in settings:
        raise InvalidInputError(
            f"{run.folder} cannot be merged: it is no run of an instrument that reads prompts, or "
            "of an earlier version, or of a study."
        )
    return _Part(run=run, manifest=manifest, settings=settings)


def _refuse_strangers(parts: Sequence[_Part], instrument: Instrument) -> None:
    """Refuse parts that differ in anything but which prompts they read."""
    first, places = parts[0], places_of(instrument)
    for part in parts[1:]:
        for name, there, here in differences(first.manifest, part.manifest, places):
            if name not in _OF_A_PART:
                raise InvalidInputError(
                    f"{part.name} is of another run than {first.name}: {name} is {here} and "
                    f"{there}. Only runs of one instrument, model, version and settings merge."
                )
        if _texts(part.manifest) != _texts(first.manifest):
            raise InvalidInputError(
                f"{part.name} and {first.name} read other texts. Parts are of one text: measure "
                "each with the same --text and its own --skip and --prompts."
            )


def _texts(manifest: Manifest) -> Any:
    hashes = manifest.data_hashes
    return None if isinstance(hashes, Unavailable) else hashes.get("texts")


def _refuse_gaps(parts: Sequence[_Part]) -> None:
    for one, other in itertools.pairwise(parts):
        if one.end != other.first:
            what = "overlap" if other.first < one.end else "leave prompts out"
            raise InvalidInputError(
                f"The parts {what}: {one.name} ends before prompt {one.end} and {other.name} "
                f"begins at prompt {other.first} (from 0). Give consecutive parts, each once."
            )


def _refuse_split_batches(parts: Sequence[_Part], batch: int) -> None:
    for part in parts:
        own = int(part.settings["batch"])
        if own != batch:
            raise InvalidInputError(
                f"{part.name} was measured in batches of {own}, all prompts together are in "
                f"batches of {batch}: --set batch={min(own, batch)} for every part."
            )
    for part in parts[:-1]:
        if part.prompts % batch:
            raise InvalidInputError(
                f"{part.name} holds {part.prompts} prompts, which are not whole batches of "
                f"{batch}: the batches of the whole run would be others. Split the text at "
                f"multiples of {batch}."
            )


def _united(parts: Sequence[_Part], instrument: Instrument) -> Any:
    """Settings of the run over all prompts."""
    first = parts[0]
    known = instrument.config.model_fields
    values = {name: first.settings[name] for name in known if name in first.settings}
    given = first.manifest.config_given
    if not isinstance(given, Unavailable) and "model" in known:
        values["model"] = given.get("model")  # the bundled model is written by its name
    values |= {"skip": first.first, "prompts": parts[-1].end - first.first}
    return instrument.config.model_validate(values)


def _refuse_other_texts(parts: Sequence[_Part], bench: Bench[Any, Any]) -> None:
    """Refuse a model or a text that is no longer what the parts read."""
    mine = bench.subject
    theirs = parts[0].manifest.weight_hashes
    weights = theirs if isinstance(theirs, Unavailable) else theirs.get("model")
    if weights != mine.weight_hash and str(weights) != str(mine.weight_hash):
        raise InvalidInputError(
            f"The model is not the one that {parts[0].name} measured: its weights have changed."
        )
    if mine.hashes.get("texts") != _texts(parts[0].manifest):
        raise InvalidInputError(
            f"The text is not the one that {parts[0].name} read: it has changed since, or the "
            "folder from which its path is relative is another one."
        )


def _copied(
    part: _Part, first: int, batch: int, instrument: Instrument, bench: Bench[Any, Any]
) -> int:
    """Copy the shards of the batches of a part under the names that they have in the whole run."""
    moved, copied = (part.first - first) // batch, 0
    present = part.run.shards()
    for stage in instrument.stages:
        if not stage.settings:
            continue
        settings = {name: part.settings[name] for name in stage.settings}
        marks = _plain(part.manifest.marks)
        known = shard_fingerprint(settings, marks, bench.subject.device)
        old = Shards(run=part.run, fingerprint=known)
        new = Shards(run=bench.records, fingerprint=bench.fingerprint_of(stage))
        for key in (key for key in present if key.fingerprint == known):
            matched = _BATCH.fullmatch(key.name)
            shard = old.find(key.name) if matched else None
            if matched is None or shard is None or not _of_batch(shard, part, matched, batch):
                continue
            name = f"{matched[1]}{int(matched[2]) + moved:05d}"
            if not new.holds(name):
                new.write(name, shard.arrays, shard.meta)
            copied += 1
    return copied


def _of_batch(shard: Shard, part: _Part, matched: re.Match[str], batch: int) -> bool:
    """Whether a shard holds scalars of the prompts of one batch of all prompts, and no others."""
    numbers = [
        values
        for name, values in shard.arrays.items()
        if (name == "prompt" or name.endswith("_prompt")) and values.size
    ]
    start = part.first + int(matched[2]) * batch
    end = min(start + batch, part.end)
    return bool(numbers) and all(
        np.min(values) >= start and np.max(values) < end for values in numbers
    )


def _plain(value: Any) -> Any:
    """Marks of a manifest as they were hashed: lists and dictionaries."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
