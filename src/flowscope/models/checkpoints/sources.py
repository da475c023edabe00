"""Where a named model is: a folder, a GGUF file, or a repository on the hub."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flowscope.errors import LoadError
from flowscope.models.checkpoints.hub import fetched, hub_silence
from flowscope.nets import bundled_models, bundled_path

__all__ = ["GgufFile", "ModelFolder", "json_object", "located"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GgufFile:
    """One GGUF file."""

    name: str
    folder: Path
    file: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFolder:
    """A folder or a hub repository of transformers or diffusers; ``path`` is what loaders take.

    ``offline`` says that the hub does not answer, so that loaders may read the local cache alone.
    """

    name: str
    path: str
    library: Literal["transformers", "diffusers"]
    config: dict[str, Any]
    subfolder: str
    offline: bool = False


def located(source: str | Path, revision: str | None = None) -> GgufFile | ModelFolder:
    """Find a model by name; nothing but its configuration is read.

    The name of a bundled model means that model where there is no folder of that name.

    Raises
    ------
    LoadError
        When there is nothing of that name, or the weights there are pickled.
    """
    if not str(source).strip():
        raise LoadError("The name of the model is empty. Give a folder, a hub id or a .gguf file.")
    path = _existing(Path(source))
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
    if str(source) in {model.name for model in bundled_models()}:
        return _folder(bundled_path(str(source)))
    return _repository(str(source), revision)


def _existing(path: Path) -> Path:
    """The path, with ~ expanded, of a name that a file system can have."""
    try:
        path = path.expanduser()
        path.stat()
    except FileNotFoundError:
        return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LoadError(
            f"{str(path)[:80]!r} cannot be a model: {reason}. Give a folder, a hub id or a .gguf "
            "file."
        ) from error
    return path


def _folder(path: Path) -> ModelFolder:
    subfolder = ""
    if (path / "model_index.json").is_file():
        subfolder = _denoiser(json_object(path / "model_index.json"), str(path))
    config = path / subfolder / "config.json"
    if not config.is_file():
        held = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
        raise LoadError(
            f"{path} has no config.json, so it is not a model folder of transformers or "
            f"diffusers (it contains {held}). Give the folder that holds config.json."
        )
    _refuse_pickles(path / subfolder)
    return _described(str(path), str(path), json_object(config), subfolder)


def _repository(name: str, revision: str | None) -> ModelFolder:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    silence = hub_silence()
    offline = bool(silence)

    def described(file: str, subfolder: str) -> ModelFolder:
        config = json_object(fetched(name, file, revision, offline=offline))
        return _described(name, name, config, subfolder, offline=offline)

    absent = (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError)
    try:
        return described("config.json", "")
    except absent as error:
        first = error
    try:
        index = json_object(fetched(name, "model_index.json", revision, offline=offline))
        subfolder = _denoiser(index, name)
        return described(f"{subfolder}/config.json", subfolder)
    except absent:
        reason = (
            f"the local cache has no model of that id ({silence})"
            if silence
            else f"the hub gave no model of that id ({type(first).__name__})"
        )
        raise LoadError(
            f"{name[:80]!r} is not a folder, and {reason}. Check the spelling, the network, "
            "HF_HUB_OFFLINE, HF_TOKEN."
        ) from first


def _denoiser(index: dict[str, Any], name: str) -> str:
    for part in ("transformer", "unet"):
        if isinstance(index.get(part), list) and any(index[part][:1]):
            return part
    raise LoadError(
        f"The model_index.json of {name} names no transformer and no unet, so that there is no "
        "denoiser to measure. Give the folder of a diffusion pipeline."
    )


def _described(
    name: str, path: str, config: dict[str, Any], subfolder: str, *, offline: bool = False
) -> ModelFolder:
    library: Literal["transformers", "diffusers"] = (
        "diffusers" if "_class_name" in config else "transformers"
    )
    return ModelFolder(
        name=name,
        path=path,
        library=library,
        config=config,
        subfolder=subfolder,
        offline=offline,
    )


def _refuse_pickles(folder: Path) -> None:
    pickled = sorted(p.name for p in [*folder.glob("*.bin"), *folder.glob("*.pt")])
    if pickled and not any(folder.glob("*.safetensors")):
        raise LoadError(
            f"{folder} holds pickled weights only ({pickled[0]}), which can run code when opened; "
            "flowscope reads safetensors and GGUF. Convert once where you trust the file: load it "
            "with torch.load(..., weights_only=True) and save it with safetensors.torch.save_file."
        )


def json_object(path: Path) -> dict[str, Any]:
    """Content of a JSON file that holds an object.

    Raises
    ------
    LoadError
        It cannot be read, is no JSON, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(
            f"{path} is not valid JSON in UTF-8: {error}. Take it again from its source."
        ) from error
    if not isinstance(content, dict):
        raise LoadError(
            f"{path} should hold a JSON object; it holds a {type(content).__name__}. Take it again "
            "from its source."
        )
    return content
