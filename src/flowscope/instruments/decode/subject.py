"""What ``flowscope decode`` measures: a model that fills blanks, prompts, calibrated thresholds."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.answers import Checker
from flowscope.instruments.decode.calibration.file import (
    CalibrationFile,
    read_calibration,
    refuse_other,
)
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.instruments.decode.filling.steps import Plan
from flowscope.instruments.decode.material import Material, material_of
from flowscope.instruments.decode.policies.catalogue import policy_named
from flowscope.lab.bench import Bench, Subject
from flowscope.models.dtypes import named_dtype
from flowscope.models.infilling.infiller import Infiller
from flowscope.models.infilling.loading import infiller
from flowscope.models.infilling.templates import Template, canvas_of
from flowscope.models.loading import Loaded, load
from flowscope.models.marks import model_facts, model_marks
from flowscope.models.positions import refuse_long_prompts
from flowscope.models.reading.repeats import refuse_noise
from flowscope.models.twin import refuse_broken_weights
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

__all__ = ["DecodeBench", "DecodeSubject", "plan_of", "prepare"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeSubject(Subject):
    """A model that fills blanks, its prompts, and thresholds that were calibrated before."""

    made: Infiller
    material: Material
    plan: Plan
    checker: Checker | None
    file: CalibrationFile | Unavailable


def plan_of(config: DecodeConfig) -> Plan:
    """The reference of a configuration."""
    return Plan(
        order=config.order, tokens=config.rate, block=config.block,
        temperature=config.temperature, eos=config.eos, seed=config.seed,
    )  # fmt: skip


def prepare(config: DecodeConfig, given: Mapping[str, Any]) -> tuple[DecodeConfig, DecodeSubject]:
    """Load the model, prove that it sees both ways, and make the prompts.

    Raises
    ------
    UnsupportedModelError
        For a causal model, and others that cannot fill blanks.
    InvalidInputError
        For prompts or a calibration file that do not fit.
    """
    _refuse_settings(config)
    made = _infiller(config, given)
    if isinstance(made.loaded, Loaded):
        refuse_broken_weights(made.loaded.model)
    checker = given.get("checker")
    if checker is not None and not callable(checker):
        raise InvalidInputError(f"checker must be a function of token ids; got {checker!r:.60}.")
    file = read_calibration(config.calibrate)
    calibrated = isinstance(file, CalibrationFile)
    material = material_of(
        made, config, given.get("texts"), given.get("calibration_texts"), calibrated
    )
    everything = [*material.calibration, *material.test]
    if isinstance(made.loaded, Loaded):
        refuse_long_prompts(made.loaded.model, max(len(item) for item in everything))
    canvas_of(made, everything)  # refuses foreign tokens and stray masks before anything is run
    repeats = _repeats(made, everything[0])
    marks = _marks(made, config, checker)
    if isinstance(file, CalibrationFile):
        refuse_other(file, marks, config, material.test)
        marks["calibration file"] = file.digest
    hashes = {
        "calibration": _digest(material.calibration), "test": _digest(material.test),
    }  # fmt: skip
    return config, DecodeSubject(
        made=made,
        material=material,
        plan=plan_of(config),
        checker=checker,
        file=file,
        source=made.source,
        device=str(made.device),
        weight_hash=made.loaded.weight_hash
        if isinstance(made.loaded, Loaded)
        else Unavailable("a function has no weights"),
        marks={**marks, "data": hashes},
        facts=_facts(made, material, repeats),
        hashes=hashes,
    )


def _infiller(config: DecodeConfig, given: Mapping[str, Any]) -> Infiller:
    source = given.get("source", config.model)
    source = bundled_path("denoiser") if source is None else source
    if isinstance(source, Infiller):
        return source
    options: dict[str, Any] = {"mask": config.mask, "shift": config.shift}
    if isinstance(source, Loaded):
        return infiller(source, **options)
    tokenizer = given.get("tokenizer", config.tokenizer)
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        loaded = load(
            source,
            tokenizer=tokenizer,
            device=config.device,
            dtype=named_dtype(config.dtype, config.device),
            revision=config.revision,
            trust_remote_code=config.trust_remote_code,
        )
        return infiller(loaded, **options)
    if tokenizer is not None:
        return infiller(load(source, tokenizer=tokenizer), **options)
    return infiller(source, **options)


def _refuse_settings(config: DecodeConfig) -> None:
    for name in config.policy:
        policy_named(name)
    if len(set(config.policy)) < len(config.policy):
        raise InvalidInputError(
            f"policy names {', '.join(config.policy)}: each policy may be named once."
        )
    if min(config.windows) < 1:
        raise InvalidInputError(f"A window holds at least one pass; got {min(config.windows)}.")


def _repeats(made: Infiller, template: Template) -> str:
    """Ask the model twice about one prompt; refuse one that answers differently."""
    if not isinstance(made.loaded, Loaded):
        return ""
    canvas = canvas_of(made, [template])
    return refuse_noise(made.loaded.model, lambda: made.naming(canvas.ids, canvas.present))


def _marks(made: Infiller, config: DecodeConfig, checker: Checker | None) -> dict[str, Any]:
    """What decides the answers besides settings and prompts."""
    model = model_marks(made.loaded) if isinstance(made.loaded, Loaded) else uuid.uuid4().hex
    return {
        "model": model,
        "mask": made.mask,
        "shift": made.shift,
        "forbidden": list(made.forbidden),
        "checker": "" if checker is None else uuid.uuid4().hex,
    }


def _facts(made: Infiller, material: Material, repeats: str) -> dict[str, Any]:
    blanks = [template.blanks for template in (*material.calibration, *material.test)]
    left = {"left_out": f"{material.left_out} equal to an earlier one"} if material.left_out else {}
    model = model_facts(made.loaded, repeats) if isinstance(made.loaded, Loaded) else {}
    return {
        "task": material.task,
        "prompts": len(material.test),
        "calibration_prompts": len(material.calibration),
        "blanks": [min(blanks), max(blanks)],
        **left,
        **model,
    }


def _digest(templates: tuple[Template, ...]) -> str:
    return hashlib.sha256("".join(template.mark for template in templates).encode()).hexdigest()


DecodeBench = Bench[DecodeSubject, DecodeConfig]
