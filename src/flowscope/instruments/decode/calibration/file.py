"""Calibrated thresholds as a file: written once, refused where they say nothing."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from flowscope.errors import InvalidInputError, RecordError
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.instruments.decode.policies.catalogue import POLICIES
from flowscope.models.infilling.templates import Template
from flowscope.records import Unavailable
from flowscope.records.files import write_file

__all__ = [
    "CalibrationFile",
    "Chosen",
    "read_calibration",
    "reference_marks",
    "refuse_other",
    "write_calibration",
]

_KIND, _VERSION = "flowscope calibration of decoding", 1
_AGAIN = "Leave the file out (--calibrate), or give another name to calibrate anew."


class _Part(BaseModel):
    """Part of a file; what a later version adds is left alone."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Entry(_Part):
    """A policy in a file."""

    threshold: FiniteFloat | None
    errors: FiniteFloat | None
    n: int = Field(ge=1)
    p_value: FiniteFloat | None
    needed: int = Field(ge=0)
    because: str


class _Content(_Part):
    """What a file must hold."""

    kind: Literal["flowscope calibration of decoding"]
    version: Literal[1]
    model: str
    marks: dict[str, Any]
    reference: dict[str, Any]
    method: str
    alpha: FiniteFloat
    delta: FiniteFloat
    blanks: list[int] = Field(min_length=2, max_length=2)
    policies: dict[str, _Entry]
    prompts: list[str]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A calibrated threshold, or why there is none.

    Attributes
    ----------
    threshold
        The loosest threshold that keeps the promise; NaN where none does.
    errors, units
        Changed answers on the calibration prompts, and how many there are.
    p_value
        Of "more answers change than alpha" at this threshold, or the conformal bound; NaN where
        there is none.
    needed
        Prompts that a calibration would take; 0 where no number is enough.
    because
        Why there is no threshold; empty where there is one.
    """

    threshold: float
    errors: float
    units: int
    p_value: float
    needed: int
    because: str = ""

    @property
    def controlled(self) -> bool:
        """Whether there is a threshold."""
        return not math.isnan(self.threshold)


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationFile:
    """What a file says.

    Attributes
    ----------
    path, digest
        Where it is, and sha256 of its bytes.
    content
        Its content.
    """

    path: str
    digest: str
    content: Mapping[str, Any]

    @property
    def chosen(self) -> dict[str, Chosen]:
        """Thresholds by policy."""
        return {
            name: Chosen(
                threshold=_number(entry["threshold"]),
                errors=_number(entry["errors"]),
                units=int(entry["n"]),
                p_value=_number(entry["p_value"]),
                needed=int(entry["needed"]),
                because=str(entry["because"]),
            )
            for name, entry in self.content["policies"].items()
        }


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def reference_marks(config: DecodeConfig) -> dict[str, Any]:
    """Settings that decide what the reference and the policies answer."""
    return {
        "order": config.order, "rate": config.rate, "block": config.block,
        "temperature": config.temperature, "eos": config.eos,
    }  # fmt: skip


def read_calibration(path: str | None) -> CalibrationFile | Unavailable:
    """A file of thresholds, or why there is none.

    Raises
    ------
    InvalidInputError
        Something else is there, or there is no folder to write it into.
    """
    if path is None:
        return Unavailable("no file was named")
    place = Path(path).expanduser()
    if not place.exists():
        if not place.absolute().parent.is_dir():
            raise InvalidInputError(
                f"{place} cannot be written: there is no folder {place.parent}. Make it first."
            )
        return Unavailable(f"{place} is written when the run is finished")
    try:
        raw = place.read_bytes()
        content = json.loads(raw)
        _Content.model_validate(content)
        _refuse_changes(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its content"
        raise _no_file(place, f"{where}: {first['msg']}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _no_file(place, str(error)[:200] or type(error).__name__) from error
    return CalibrationFile(path=str(place), digest=hashlib.sha256(raw).hexdigest(), content=content)


def _no_file(place: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{place} is not a file of calibrated thresholds: {why}. Give one that flowscope decode "
        "wrote, or a new name to write one."
    )


def _refuse_changes(content: Mapping[str, Any]) -> None:
    """Refuse thresholds that no calibration gave; files of earlier versions have no digest."""
    if content.get("digest", _digest(content)) != _digest(content):
        raise ValueError("it was changed after it was written, so that it promises nothing")
    for name, entry in content["policies"].items():
        value = entry["threshold"]
        if name in POLICIES and value is not None and value not in POLICIES[name].grid:
            raise ValueError(
                f"it has the {name} threshold at {value:g}, which no calibration tries"
            )


def _digest(content: Mapping[str, Any]) -> str:
    """Sha256 of everything in a file but the digest itself."""
    kept = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def refuse_other(
    file: CalibrationFile,
    marks: Mapping[str, Any],
    config: DecodeConfig,
    test: Sequence[Template],
) -> None:
    """Refuse thresholds that were calibrated for something else.

    Raises
    ------
    InvalidInputError
        The file is of another model, reference, promise, policy or answer length, or some prompts
        were calibrated on.
    """
    content = file.content
    if content["marks"] != _plain(marks):
        raise InvalidInputError(
            f"{file.path} was calibrated on another model ({content['model']}); its thresholds say "
            f"nothing about this one. {_AGAIN}"
        )
    asked = reference_marks(config)
    for name, value in asked.items():
        if content["reference"].get(name) != value:
            raise InvalidInputError(
                f"{file.path} was calibrated with {name} = {content['reference'].get(name)}; this "
                f"run has {name} = {value}. {_AGAIN}"
            )
    for name in ("method", "alpha", "delta"):
        if content[name] != getattr(config, name):
            raise InvalidInputError(
                f"{file.path} promises {name} = {content[name]}; asked is {getattr(config, name)}. "
                f"{_AGAIN}"
            )
    for name in config.policy:
        if not POLICIES[name].lossless and name not in content["policies"]:
            known = ", ".join(content["policies"]) or "none"
            raise InvalidInputError(
                f"{file.path} holds no threshold of the policy {name!r} (it has {known}). {_AGAIN}"
            )
    _refuse_prompts(file, test)


def _refuse_prompts(file: CalibrationFile, test: Sequence[Template]) -> None:
    low, high = file.content["blanks"]
    for template in test:
        if not low <= template.blanks <= high:
            raise InvalidInputError(
                f"{file.path} was calibrated on answers of {low} to {high} masked tokens; a prompt "
                f"of this run has {template.blanks}. {_AGAIN}"
            )
    known = set(file.content["prompts"])
    shared = sum(template.mark in known for template in test)
    if shared:
        raise InvalidInputError(
            f"{file.path} was calibrated on {shared} of the {len(test)} prompts of this run. A "
            "threshold that was chosen on a prompt says nothing about it: take other prompts "
            "(another --seed for generated ones)."
        )


def write_calibration(
    path: str,
    chosen: Mapping[str, Chosen],
    config: DecodeConfig,
    *,
    model: str,
    marks: Mapping[str, Any],
    prompts: Sequence[Template],
    made_by: str,
) -> None:
    """Write thresholds with everything that they depend on.

    Raises
    ------
    RecordError
        The file cannot be written.
    """
    blanks = [template.blanks for template in prompts]
    document = {
        "kind": _KIND, "version": _VERSION, "made_by": made_by, "model": model,
        "marks": _plain(marks), "reference": reference_marks(config), "method": config.method,
        "alpha": config.alpha, "delta": config.delta, "n": len(prompts),
        "blanks": [min(blanks), max(blanks)],
        "policies": {
            name: {
                "threshold": _null(one.threshold), "errors": _null(one.errors), "n": one.units,
                "p_value": _null(one.p_value), "needed": one.needed, "because": one.because,
            }
            for name, one in chosen.items()
        },
        "prompts": [template.mark for template in prompts],
    }  # fmt: skip
    place = Path(path).expanduser()
    if place.exists():
        raise RecordError(f"{place} appeared while the run was made; it was not overwritten.")
    document["digest"] = _digest(document)
    write_file(place, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value


def _plain(marks: Mapping[str, Any]) -> Any:
    """Marks as a JSON document gives them back; what belongs to a run's data is left out."""
    kept = {
        name: value for name, value in marks.items() if name not in ("data", "calibration file")
    }
    return json.loads(json.dumps(kept, sort_keys=True))
