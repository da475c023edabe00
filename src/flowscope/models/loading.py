"""Loading a model from wherever it is: a folder, a hub id, a GGUF file, or memory.

Weights are read from safetensors or GGUF only; pickled checkpoints are refused. No code from a
repository runs unless the caller says so.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from flowscope.errors import InvalidInputError, LoadError
from flowscope.lab.cards import card, fact_table, text_card
from flowscope.models.checkpoints.devices import usable_device
from flowscope.models.checkpoints.hashes import weight_hash
from flowscope.models.checkpoints.hub import hub_silence
from flowscope.models.checkpoints.sources import GgufFile, ModelFolder, located
from flowscope.models.checkpoints.weights import model_from
from flowscope.models.reading.wrappers import bare_model
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
        """Hash of every parameter and buffer (`flowscope.models.checkpoints.hashes`)."""
        return weight_hash(self.model)

    def __repr__(self) -> str:
        return text_card(f"model · {self.kind}", self.source, self._facts)

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows: class, size, where it is, how it is read."""
        return card(f"model · {self.kind}", self.source, (), fact_table(self._facts))

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Names and values of the card."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        devices = sorted({str(tensor.device) for tensor in tensors})
        dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors})
        return [
            ("class", type(self.model).__name__),
            ("parameters", f"{parameters:,}"),
            ("device, dtype", f"{', '.join(devices)}; {', '.join(dtypes)}"),
            ("tokenizer", _part(self.tokenizer)),
            ("processor", _part(self.processor)),
            *([("unwrapped", ", ".join(self.wrappers))] if self.wrappers else []),
        ]


def _part(part: Any | Unavailable) -> str:
    """What a card says of a tokenizer or a processor."""
    if not isinstance(part, Unavailable):
        return type(part).__name__
    return f"none: {part.reason}" if len(part.reason) <= 90 else f"none: {part.reason[:89]}…"


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
        Used instead of the ones found beside the weights; a tokenizer may be a folder or a hub id.
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
    if tokenizer is not None and not callable(tokenizer) and not isinstance(tokenizer, (str, Path)):
        raise InvalidInputError(
            f"tokenizer must be a tokenizer of transformers, a folder or a hub id; got "
            f"{type(tokenizer).__name__}."
        )
    if isinstance(tokenizer, (str, Path)):
        tokenizer = _named_tokenizer(str(tokenizer), revision, trust_remote_code)
    if isinstance(source, (str, Path)):
        device = usable_device(device)
        place = located(source, revision)
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        model = model_from(place, dtype, device, options)
        if isinstance(place, ModelFolder) and place.offline:
            options["local_files_only"] = True
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
    if model.main_input_name in ("input_values", "input_features"):
        return "audio"
    if getattr(model.config, "is_encoder_decoder", False):
        return "seq2seq"
    if model.main_input_name == "pixel_values":
        return "vision"
    if model.can_generate() and getattr(model.config, "is_causal", None) is not False:
        return "causal_lm"
    return "masked_lm" if model.get_output_embeddings() is not None else "text_encoder"


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
    if name == "AutoTokenizer" and len(_ordinary_tokens(found)) < 2:
        return Unavailable(f"{place.name} holds no vocabulary")
    return found


def _named_tokenizer(name: str, revision: str | None, trusted: bool) -> Any:
    """The tokenizer of a folder or a hub id.

    Raises
    ------
    LoadError
        There is none.
    """
    from transformers import AutoTokenizer

    folder = Path(name).expanduser().is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name,
            trust_remote_code=trusted,
            local_files_only=folder or bool(hub_silence()),
            **({} if folder else {"revision": revision}),
        )
    except Exception as error:  # the tokenizers library raises bare exceptions
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise LoadError(
            f"No tokenizer could be loaded from {name[:80]!r}: {lines[0][:200]} Give a folder with "
            "a tokenizer.json, or a hub id."
        ) from error
    if len(_ordinary_tokens(tokenizer)) < 2:
        raise LoadError(f"{name[:80]!r} holds no vocabulary. Give a folder with a tokenizer.json.")
    return tokenizer


def _ordinary_tokens(tokenizer: Any) -> set[str]:
    """Tokens that are not special: a tokenizer without vocabulary files has none."""
    return set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
