"""The weights that ship with the package, checked before they are used."""

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from flowscope.errors import LoadError

__all__ = ["Bundled", "bundled_models", "bundled_path"]


@dataclass(frozen=True, kw_only=True)
class Bundled:
    """One bundled model: what it is and how well it does (held-out perplexity per token)."""

    name: str
    path: Path
    parameters: int
    layers: int
    perplexity: float
    sha256: str


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
                perplexity=float(content["heldout"]["all"]["model"]["per_token"]),
                sha256=str(content["sha256"]),
            )
        )
    return tuple(found)


def bundled_path(name: str = "language") -> Path:
    """The folder of a bundled model, its weights checked against their recorded hash.

    Raises
    ------
    LoadError
        When there is no such model, or its weights are not the ones that were recorded.
    """
    known = {model.name: model for model in bundled_models()}
    if name not in known:
        raise LoadError(f"No bundled model is named {name!r}; there are {sorted(known)}.")
    model = known[name]
    found = hashlib.sha256((model.path / "model.safetensors").read_bytes()).hexdigest()
    if found != model.sha256:
        raise LoadError(
            f"The weights of the bundled model {name!r} have sha256 {found[:12]}…, recorded is "
            f"{model.sha256[:12]}…: the installation is damaged. Install flowscope again."
        )
    return model.path
