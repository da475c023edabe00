"""Loading a model from wherever it is: a folder, a hub id, a GGUF file, or memory.

Weights are read from safetensors or GGUF only; pickled checkpoints are refused. No code from a
repository runs unless the caller says so.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import nn

from flowscope.errors import InvalidInputError, LoadError
from flowscope.lab.cards import card, fact_table
from flowscope.models.reading.wrappers import bare_model
from flowscope.models.sources import GgufFile, ModelFolder, located
from flowscope.records import Unavailable

__all__ = ["Kind", "Loaded", "kind_of", "load", "weight_hash"]

Kind = Literal[
    "causal_lm", "masked_lm", "seq2seq", "text_encoder", "vision", "audio", "diffusion", "torch"
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A model ready to be measured.

    Attributes
    ----------
    model
        The module itself, on the device and in the dtype that were asked for.
    tokenizer, processor
        What turns text or images into its inputs, or why there is none.
    kind
        What the model does: it decides which inputs are made for it.
    source
        Where it came from, in words.
    wrappers
        What was around it and was taken off: a pipeline, a compiled or parallel module, adapters.
    """

    model: nn.Module
    tokenizer: Any | Unavailable
    processor: Any | Unavailable
    kind: Kind
    source: str
    wrappers: tuple[str, ...] = ()

    @cached_property
    def weight_hash(self) -> str | Unavailable:
        """sha256 of every parameter and buffer, or why there is none."""
        return weight_hash(self.model)

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows: class, size, where it is, how it is read."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        devices = sorted({str(tensor.device) for tensor in tensors})
        dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors})
        return card(
            f"model · {self.kind}",
            self.source,
            (),
            fact_table(
                [
                    ("class", type(self.model).__name__),
                    ("parameters", f"{parameters:,}"),
                    ("device, dtype", f"{', '.join(devices)}; {', '.join(dtypes)}"),
                    ("tokenizer", _part(self.tokenizer)),
                    ("processor", _part(self.processor)),
                    *([("unwrapped", ", ".join(self.wrappers))] if self.wrappers else []),
                ]
            ),
        )


def _part(part: Any | Unavailable) -> str:
    return f"none: {part.reason}" if isinstance(part, Unavailable) else type(part).__name__


def load(
    source: str | Path | nn.Module | Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    device: str | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Loaded:
    """A model from a folder, a hub id, a GGUF file, or one that is loaded already.

    Parameters
    ----------
    source
        A folder of transformers or diffusers, a hub id such as ``"gpt2"``, a ``.gguf`` file, a
        loaded module (also compiled, parallel or with PEFT adapters), or a pipeline of diffusers
        (its denoiser is taken) or of transformers (its model and tokenizer are).
    tokenizer, processor
        Used instead of the ones found beside the weights.
    device
        Where to put the weights (``"cuda:0"``, ``"auto"``); the CPU by default. A module that is
        loaded already stays where it is.
    dtype
        Precision of the weights; as stored by default.
    revision
        Revision of a hub id.
    trust_remote_code
        Whether code that comes with the weights may run. Off unless you say so.

    Raises
    ------
    LoadError
        When nothing can be loaded from there, the weights are pickled, or some are missing.

    Examples
    --------
    >>> load(nn.Linear(2, 2)).kind
    'torch'
    """
    none = Unavailable("none was given with the loaded model")
    if isinstance(source, (str, Path)):
        place = located(source, revision)
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        model = _loaded_from(place, dtype, device, options)
        tokens = _preprocessor("AutoTokenizer", place, options) if tokenizer is None else tokenizer
        images = (
            _preprocessor("AutoImageProcessor", place, options) if processor is None else processor
        )
        return _described(model, tokens, images, str(source))
    if device is not None or dtype is not None:
        raise InvalidInputError(
            "device and dtype are for models that flowscope loads; this one is loaded already and "
            "is not moved. Call model.to(...) yourself first."
        )
    bare = bare_model(source)
    tokens = bare.tokenizer if tokenizer is None else tokenizer
    images = bare.processor if processor is None else processor
    tokens, images = (none if part is None else part for part in (tokens, images))
    name = f"{type(bare.model).__name__} in memory"
    return replace(_described(bare.model, tokens, images, name), wrappers=bare.wrappers)


def _described(model: nn.Module, tokenizer: Any, processor: Any, source: str) -> Loaded:
    kind = kind_of(model)
    return Loaded(model=model, tokenizer=tokenizer, processor=processor, kind=kind, source=source)


def kind_of(model: nn.Module) -> Kind:
    """What a model does, from what it says about itself."""
    from diffusers import ModelMixin
    from transformers import PreTrainedModel

    if isinstance(model, ModelMixin):
        return "diffusion"
    if not isinstance(model, PreTrainedModel):
        return "torch"
    if getattr(model.config, "is_encoder_decoder", False):
        return "seq2seq"
    main: Kind | None = {
        "pixel_values": "vision",
        "input_values": "audio",
        "input_features": "audio",
    }.get(model.main_input_name)  # type: ignore[assignment]
    if main is not None:
        return main
    if model.can_generate():
        return "causal_lm"
    return "masked_lm" if model.get_output_embeddings() is not None else "text_encoder"


def weight_hash(model: nn.Module) -> str | Unavailable:
    """sha256 over the name, dtype, shape and bytes of every parameter and persistent buffer.

    One tensor is on the CPU at a time. The same weights give the same hash whatever file they came
    from and wherever they are.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            return Unavailable(f"{name} is no tensor (quantised state)")
        if tensor.is_meta:
            return Unavailable("weights are off-loaded or were never loaded (meta device)")
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def _loaded_from(
    place: GgufFile | ModelFolder,
    dtype: torch.dtype | None,
    device: str | None,
    options: dict[str, Any],
) -> nn.Module:
    if isinstance(place, GgufFile):
        return _from_gguf(place, dtype, device)
    if place.library == "diffusers":
        return _from_diffusers(place, dtype, device, options)
    return _from_transformers(place, dtype, device, options)


def _from_transformers(
    place: ModelFolder, dtype: torch.dtype | None, device: str | None, options: dict[str, Any]
) -> nn.Module:
    refused: LoadError | None = None
    for loader in _model_classes(place, options["trust_remote_code"]):
        try:
            return _complete(
                place,
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

    name = (place.config.get("architectures") or [None])[0]
    known = getattr(transformers, name or "", None)
    if known is not None:
        return [known]
    if name is not None and not trusted:
        raise LoadError(
            f"{place.name} asks for the architecture {name}, which transformers "
            f"{transformers.__version__} does not have. If its code comes with the weights and you "
            "trust it, load with trust_remote_code=True (--trust-remote-code)."
        )
    heads = ("ForMaskedLM", "ForSeq2SeqLM", "ForCausalLM", "ForImageClassification", "")
    return [getattr(transformers, f"AutoModel{head}") for head in heads]


def _from_gguf(place: GgufFile, dtype: torch.dtype | None, device: str | None) -> nn.Module:
    from transformers import AutoModelForCausalLM

    return _complete(
        place,
        functools.partial(
            AutoModelForCausalLM.from_pretrained,
            place.folder,
            gguf_file=place.file,
            dtype=dtype or torch.float32,
            device_map=device,
            output_loading_info=True,
        ),
    )


def _complete(place: GgufFile | ModelFolder, loading: Callable[[], Any]) -> nn.Module:
    """Run a transformers loader; weights that the checkpoint lacks would be random: refuse."""
    try:
        model, info = loading()
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise LoadError(f"{place.name} could not be loaded: {error}") from error
    missing = sorted(
        {*info.get("missing_keys", ()), *(k for k, *_ in info.get("mismatched_keys", ()))}
    )
    if missing:
        raise LoadError(
            f"{place.name} lacks {len(missing)} of the weights of {type(model).__name__} (the "
            f"first: {missing[0]}); they would be random numbers. Give a complete checkpoint."
        )
    assert isinstance(model, nn.Module)
    return model.eval()


def _from_diffusers(
    place: ModelFolder, dtype: torch.dtype | None, device: str | None, options: dict[str, Any]
) -> nn.Module:
    import diffusers

    name = str(place.config["_class_name"])
    loader = getattr(diffusers, name, None)
    if loader is None or not issubclass(loader, diffusers.ModelMixin):
        raise LoadError(
            f"{place.name} asks for {name}, which is no model of diffusers {diffusers.__version__}."
        )
    subfolder = {"subfolder": place.subfolder} if place.subfolder else {}
    shown = diffusers.utils.logging.is_progress_bar_enabled()
    diffusers.utils.logging.disable_progress_bar()  # progress is the command's to show
    try:
        model = loader.from_pretrained(
            place.path,
            torch_dtype=dtype,
            use_safetensors=True,
            revision=options["revision"],
            **subfolder,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise LoadError(f"{place.name} could not be loaded: {error}") from error
    finally:
        if shown:
            diffusers.utils.logging.enable_progress_bar()
    assert isinstance(model, nn.Module)
    return (model if device is None else model.to(device)).eval()


def _preprocessor(name: str, place: GgufFile | ModelFolder, options: dict[str, Any]) -> Any:
    import transformers

    if isinstance(place, ModelFolder) and place.library == "diffusers":
        return Unavailable("a denoiser takes tensors, not text")
    try:
        if isinstance(place, GgufFile):
            if name != "AutoTokenizer":
                return Unavailable("a GGUF file holds a language model")
            return transformers.AutoTokenizer.from_pretrained(place.folder, gguf_file=place.file)
        found = getattr(transformers, name).from_pretrained(place.path, **options)
    except Exception as error:  # the tokenizers library raises bare exceptions
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Unavailable(f"none could be loaded from {place.name}: {reason}")
    # A folder without vocabulary files gives an empty tokenizer and no error.
    if name == "AutoTokenizer" and len(set(found("It was the best of times.")["input_ids"])) < 2:
        return Unavailable(f"{place.name} holds no vocabulary")
    return found
