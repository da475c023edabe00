"""Wrappers around a model, taken off in one place: compiled, parallel, adapted, a pipeline.

A wrapper passes calls on. A measurement needs the module itself, whose class and configuration say
what it is; read through its wrapper, a language model would be taken for a plain torch module.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flowscope.errors import InvalidInputError, UnsupportedModelError

__all__ = ["Bare", "bare_model"]

_PARTS = ("transformer", "unet", "model")
_PROCESSORS = ("image_processor", "feature_extractor")


@dataclass(frozen=True, kw_only=True, eq=False)
class Bare:
    """A module without its wrappers.

    Attributes
    ----------
    model
        The module.
    tokenizer, processor
        Those of a pipeline, or None.
    wrappers
        What was taken off, the outermost first.
    """

    model: nn.Module
    tokenizer: Any
    processor: Any
    wrappers: tuple[str, ...]


def bare_model(source: Any) -> Bare:
    """The module in a model, a compiled, parallel or adapted one, or a pipeline.

    The weights of adapters (PEFT) stay in place: the bare module computes what the wrapper does.

    Raises
    ------
    InvalidInputError
        For something that holds no module.
    UnsupportedModelError
        For a wrapper that adds something of its own to each pass.

    Examples
    --------
    >>> bare = bare_model(nn.DataParallel(nn.Linear(2, 2)))
    >>> type(bare.model).__name__, bare.wrappers
    ('Linear', ('DataParallel',))
    """
    wrappers: list[str] = []
    tokenizer = processor = None
    if not isinstance(source, nn.Module):
        wrappers.append(type(source).__name__)
        part = _part(source)
        if part is getattr(source, "model", None):  # a denoiser takes neither text nor pictures
            tokenizer = getattr(source, "tokenizer", None)
            processors = (getattr(source, name, None) for name in _PROCESSORS)
            processor = next((one for one in processors if one is not None), None)
        source = part
    inner = _inner(source)
    while inner is not None:
        wrappers.append(type(source).__name__)
        source, inner = inner, _inner(inner)
    return Bare(model=source, tokenizer=tokenizer, processor=processor, wrappers=tuple(wrappers))


def _part(source: Any) -> nn.Module:
    """The module of a pipeline of diffusers or transformers."""
    for name in _PARTS:
        part = getattr(source, name, None)
        if isinstance(part, nn.Module):
            return part
    raise InvalidInputError(
        "load expects a folder, a hub id, a .gguf file, a torch module or a pipeline of diffusers "
        f"or transformers; got {type(source).__name__}."
    )


def _inner(module: nn.Module) -> nn.Module | None:
    """What a wrapper wraps; None for a module that is none."""
    compiled = module._modules.get("_orig_mod")
    if compiled is not None:
        return compiled
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        wrapped: nn.Module = module.module
        return wrapped
    if hasattr(module, "peft_config") and callable(getattr(module, "get_base_model", None)):
        return _adapted(module)
    averaged = torch.optim.swa_utils.AveragedModel
    return module.module if isinstance(module, averaged) else None


def _adapted(module: Any) -> nn.Module:
    """The model that PEFT put its adapters into."""
    setting = getattr(module, "active_peft_config", None)
    if getattr(setting, "is_prompt_learning", False):
        kind = getattr(getattr(setting, "peft_type", None), "value", "prompt learning")
        raise UnsupportedModelError(
            f"{type(module).__name__} adds virtual tokens of its own to each pass ({kind}), which "
            "no tokenizer gives, so that positions would not be those of the text. Adapters inside "
            "the layers (LoRA, IA³) can be read; or give the base model."
        )
    base: nn.Module = module.get_base_model()
    return base
