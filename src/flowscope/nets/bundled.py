"""The weights that ship with the package, checked before they are used."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from flowscope.errors import LoadError

__all__ = ["Bundled", "bundled_models", "bundled_path"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bundled:
    """One bundled model: what it is and, in words, how well it does.

    ``weights`` maps each file of weights, relative to ``path``, to its recorded sha256.
    """

    name: str
    path: Path
    parameters: int
    layers: int
    quality: str
    weights: Mapping[str, str]


def bundled_models() -> tuple[Bundled, ...]:
    """Every model that ships with flowscope."""
    root = Path(str(files("flowscope.nets")))
    found = []
    for record in sorted(root.glob("*/training.json")):
        content = json.loads(record.read_text(encoding="utf-8"))
        found.append(
            Bundled(
                name=record.parent.name,
                path=record.parent,
                parameters=int(content["parameters"]),
                layers=int(content["options"]["layers"]),
                quality=_quality(content),
                weights=content.get("weights") or {"model.safetensors": content["sha256"]},
            )
        )
    return tuple(found)


def _quality(record: Mapping[str, Any]) -> str:
    if "heldout" in record:
        return f"held-out perplexity {record['heldout']['all']['model']['per_token']:.1f}"
    evaluation = record["evaluation"]
    if "ddpm_100" in evaluation:
        judged = evaluation["ddpm_100"]["class_accuracy"]
        return f"{judged:.1%} of its samples are read as the class that was asked"
    solved = [
        f"{found['confidence']['accuracy']:.1%} ({task})" for task, found in evaluation.items()
    ]
    return f"solves {', '.join(solved)} of test puzzles, one cell a pass"


def bundled_path(name: str = "language") -> Path:
    """The folder of a bundled model, its weights checked against their recorded hashes.

    Raises
    ------
    LoadError
        When there is no such model, or its weights are not the ones that were recorded.
    """
    known = {model.name: model for model in bundled_models()}
    if name not in known:
        raise LoadError(f"No bundled model is named {name!r}; there are {sorted(known)}.")
    model = known[name]
    for file, recorded in model.weights.items():
        weights = model.path / file
        found = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "none"
        if found != recorded:
            raise LoadError(
                f"The weights of the bundled model {name!r} have sha256 {found[:12]}…, recorded is "
                f"{recorded[:12]}… ({file}): the installation is damaged. Install flowscope again."
            )
    return model.path
