"""Where a named model is: a folder, a GGUF file, or a repository on the hub."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flowscope.errors import LoadError

__all__ = ["GgufFile", "ModelFolder", "located"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GgufFile:
    """One GGUF file."""

    name: str
    folder: Path
    file: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFolder:
    """A folder or a hub repository of transformers or diffusers; ``path`` is what loaders take."""

    name: str
    path: str
    library: Literal["transformers", "diffusers"]
    config: dict[str, Any]
    subfolder: str


def located(source: str | Path, revision: str | None = None) -> GgufFile | ModelFolder:
    """Find a model by name; nothing but its configuration is read.

    Raises
    ------
    LoadError
        When there is nothing of that name, or the weights there are pickled.
    """
    path = Path(source).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LoadError(f"There is no file {path}. Give the path of an existing .gguf file.")
        return GgufFile(name=str(source), folder=path.parent, file=path.name)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        raise LoadError(
            f"{path} is a file. Give the folder that holds config.json and the safetensors "
            "weights, or a .gguf file."
        )
    if path.is_absolute() or str(source).startswith((".", "~")) or len(path.parts) > 2:
        raise LoadError(f"There is no folder {path}. Give an existing folder, or a hub id.")
    return _repository(str(source), revision)


def _folder(path: Path) -> ModelFolder:
    subfolder = ""
    if (path / "model_index.json").is_file():
        subfolder = _denoiser(_json(path / "model_index.json"), str(path))
    config = path / subfolder / "config.json"
    if not config.is_file():
        held = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
        raise LoadError(
            f"{path} has no config.json, so it is not a model folder of transformers or "
            f"diffusers (it contains {held})."
        )
    _refuse_pickles(path / subfolder)
    return _described(str(path), str(path), _json(config), subfolder)


def _repository(name: str, revision: str | None) -> ModelFolder:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def fetched(file: str) -> Path:
        return Path(hf_hub_download(name, file, revision=revision))

    absent = (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError)
    try:
        return _described(name, name, _json(fetched("config.json")), "")
    except absent as error:
        first = error
    try:
        subfolder = _denoiser(_json(fetched("model_index.json")), name)
        return _described(name, name, _json(fetched(f"{subfolder}/config.json")), subfolder)
    except absent:
        raise LoadError(
            f"{name!r} is not a folder, and the hub gave no model of that id "
            f"({type(first).__name__}). Check the spelling, the network, HF_HUB_OFFLINE, HF_TOKEN."
        ) from first


def _denoiser(index: dict[str, Any], name: str) -> str:
    for part in ("transformer", "unet"):
        if isinstance(index.get(part), list) and index[part][0]:
            return part
    raise LoadError(f"The pipeline {name} has no transformer and no unet.")


def _described(name: str, path: str, config: dict[str, Any], subfolder: str) -> ModelFolder:
    library: Literal["transformers", "diffusers"] = (
        "diffusers" if "_class_name" in config else "transformers"
    )
    return ModelFolder(name=name, path=path, library=library, config=config, subfolder=subfolder)


def _refuse_pickles(folder: Path) -> None:
    pickled = sorted(p.name for p in [*folder.glob("*.bin"), *folder.glob("*.pt")])
    if pickled and not any(folder.glob("*.safetensors")):
        raise LoadError(
            f"{folder} holds pickled weights only ({pickled[0]}), which can run code when opened; "
            "flowscope reads safetensors and GGUF. Convert once where you trust the file: load it "
            "with torch.load(..., weights_only=True) and save it with safetensors.torch.save_file."
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LoadError(f"{path} is not valid JSON: {error}. The folder may be damaged.") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path} should hold a JSON object; it holds a {type(content).__name__}.")
    return content
