"""Models from checkpoints: the class that a folder names, its weights, all of them and no others.

What a configuration says is checked before a library builds anything from it: a number of layers
of −1 or of 10⁹ would end in an error far from here, or not end.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from flowscope.errors import LoadError, LoadWarning
from flowscope.models.checkpoints.sources import GgufFile, ModelFolder

__all__ = ["complete_model", "model_from"]

_LAYERS = ("n_layer", "n_layers", "num_layers", "num_hidden_layers")
_HALVES = ("encoder_layers", "decoder_layers")  # a model may lack one half
_WIDTHS = (
    "n_head", "n_heads", "num_attention_heads", "n_embd", "hidden_size", "d_model", "vocab_size",
)  # fmt: skip
_BOUNDS = {
    **dict.fromkeys(_LAYERS, (1, 10_000)),
    **dict.fromkeys(_HALVES, (0, 10_000)),
    **dict.fromkeys(_WIDTHS, (1, 10**8)),
}
_AGAIN = "Take the files again from one source."


def model_from(
    place: GgufFile | ModelFolder,
    dtype: torch.dtype | None,
    device: str | None,
    options: dict[str, Any],
) -> nn.Module:
    """Load the weights of a place into the model that its configuration describes.

    Parameters
    ----------
    place
        Where the model is.
    dtype, device
        Precision (as stored when None) and device (the CPU when None).
    options
        ``revision`` and ``trust_remote_code``, as loaders take them.

    Raises
    ------
    LoadError
        When the configuration or the weights are damaged, or weights are missing.
    """
    if isinstance(place, GgufFile):
        return _from_gguf(place, dtype, device)
    _refuse_sizes(place.config, place.name)
    if place.offline:
        options = {**options, "local_files_only": True}
    if place.library == "diffusers":
        return _from_diffusers(place, dtype, device, options)
    return _from_transformers(place, dtype, device, options)


def _refuse_sizes(config: Mapping[str, Any], name: str) -> None:
    """Refuse a configuration whose sizes describe no model."""
    for key, value in _entries(config):
        low, high = _BOUNDS[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            raise LoadError(
                f"The config.json of {name} says {key} = {value!r:.60}; expected a whole number "
                f"from {low} to {high:,}. It is damaged or was edited. {_AGAIN}"
            )


def _entries(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Sizes of a configuration and of the configurations inside it; lists are per stage."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key.endswith("_config"):
            yield from _entries(value)
        elif key in _BOUNDS and value is not None and not isinstance(value, (list, tuple)):
            yield key, value


def _from_transformers(
    place: ModelFolder, dtype: torch.dtype | None, device: str | None, options: dict[str, Any]
) -> nn.Module:
    refused: LoadError | None = None
    for loader in _model_classes(place, options["trust_remote_code"]):
        try:
            return complete_model(
                place.name,
                functools.partial(
                    loader.from_pretrained,
                    place.path,
                    dtype=dtype or "auto",
                    device_map=device,
                    use_safetensors=True,
                    output_loading_info=True,
                    **options,
                ),
            )
        except LoadError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _model_classes(place: ModelFolder, trusted: bool) -> list[Any]:
    """Classes to try: the one the checkpoint names, else those whose weights it may hold.

    A checkpoint that names none is tried from the most specific head to the bare model; one that
    lacks weights of a class is refused by it, so the first that loads is the one it was saved from.
    """
    import transformers

    names = place.config.get("architectures") or [None]
    name = names[0] if isinstance(names, list) else names
    if name is not None and not isinstance(name, str):
        raise LoadError(
            f"The config.json of {place.name} says architectures = {names!r:.60}; expected a list "
            f"with the name of a class of transformers. {_AGAIN}"
        )
    model_class = getattr(transformers, name or "", None)
    if isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel):
        return [model_class]
    if name is not None and not trusted:
        raise LoadError(
            f"{place.name} asks for the architecture {name:.60}, which is no model of transformers "
            f"{transformers.__version__}. If its code comes with the weights and you trust it, "
            "load with trust_remote_code=True (--trust-remote-code)."
        )
    heads = ("ForMaskedLM", "ForSeq2SeqLM", "ForCausalLM", "ForImageClassification", "")
    return [getattr(transformers, f"AutoModel{head}") for head in heads]


def _from_gguf(place: GgufFile, dtype: torch.dtype | None, device: str | None) -> nn.Module:
    from transformers import AutoModelForCausalLM

    return complete_model(
        place.name,
        functools.partial(
            AutoModelForCausalLM.from_pretrained,
            place.folder,
            gguf_file=place.file,
            dtype=dtype or torch.float32,
            device_map=device,
            output_loading_info=True,
        ),
    )


def _from_diffusers(
    place: ModelFolder, dtype: torch.dtype | None, device: str | None, options: dict[str, Any]
) -> nn.Module:
    import diffusers

    name = str(place.config["_class_name"])
    named = getattr(diffusers, name, None)
    loader: Any = named
    if not isinstance(named, type) or not issubclass(named, diffusers.ModelMixin):
        raise LoadError(
            f"{place.name} asks for {name:.60}, which is no model of diffusers "
            f"{diffusers.__version__}. Give the folder of a denoiser or of a pipeline."
        )
    subfolder = {"subfolder": place.subfolder} if place.subfolder else {}
    shown = diffusers.utils.logging.is_progress_bar_enabled()
    diffusers.utils.logging.disable_progress_bar()  # progress is the command's to show
    try:
        model = complete_model(
            place.name,
            functools.partial(
                loader.from_pretrained,
                place.path,
                torch_dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                **{name: value for name, value in options.items() if name != "trust_remote_code"},
                **subfolder,
            ),
        )
    finally:
        if shown:
            diffusers.utils.logging.enable_progress_bar()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else None
    return model if device is None else model.to(device)


def complete_model(name: str, loading: Callable[[], Any]) -> nn.Module:
    """Run a loader that returns a model and what it met; refuse a checkpoint that lacks weights.

    Parameters
    ----------
    name
        What is loaded, for messages.
    loading
        Returns the model and a mapping with missing, mismatched and unexpected keys, as loaders do
        with ``output_loading_info=True``.

    Raises
    ------
    LoadError
        The loader failed, or weights are missing: they would be random or empty.
    """
    try:
        model, info = loading()
    except Exception as error:  # libraries raise whatever they meet in a damaged folder
        raise LoadError(f"{name} could not be loaded: {_first_words(error)} {_AGAIN}") from error
    missing = sorted(
        {*info.get("missing_keys", ()), *(key for key, *_ in info.get("mismatched_keys", ()))}
    )
    if missing:
        raise LoadError(
            f"{name} lacks {len(missing)} of the weights of {type(model).__name__} (the "
            f"first: {missing[0]}); they would be random numbers. Give a complete checkpoint."
        )
    unused = sorted(info.get("unexpected_keys", ()))
    if unused:
        warnings.warn(
            f"{name} holds {len(unused)} weights that {type(model).__name__} does not use "
            f"(the first: {unused[0]}). They are left out. If they belong to layers, config.json "
            "describes a smaller model than the weights.",
            LoadWarning,
            stacklevel=6,
        )
    assert isinstance(model, nn.Module)
    return model.eval()


def _first_words(error: Exception) -> str:
    """What a library says about a folder, in one sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if "ignore_mismatched_sizes" in text:
        text = "its weights have other shapes than config.json says"
    return f"{text[:300].rstrip('.')}."
