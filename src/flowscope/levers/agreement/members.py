"""Which models may be in consensus, on which inputs and with which states; else a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, TapError
from flowscope.tap.dispatch import thread_watchers

__all__ = ["members_of", "refuse_depths", "refuse_inputs", "refuse_states"]

_CACHES = ("past_key_values", "past_key_value", "cache_params", "mems")


def members_of(models: Any) -> tuple[nn.Module, ...]:
    """Modules of a list of models, checked against one another.

    Raises
    ------
    InvalidInputError
        For no list, something that is no model, or other tokenizers or widths.
    """
    if isinstance(models, nn.Module) or not isinstance(models, Sequence) or not len(models):
        raise InvalidInputError(
            f"models must be a list of at least one model; got {type(models).__name__}"
            f"{' without entries' if isinstance(models, Sequence) else ''}. Write [model, other]."
        )
    modules = []
    for model in models:
        module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
        if not isinstance(module, nn.Module):
            raise InvalidInputError(
                f"models must be torch modules, or what flowscope.load returns; got "
                f"{type(model).__name__}."
            )
        modules.append(module)
    _refuse_tokenizers([getattr(m, "tokenizer", None) for m in models if m not in modules])
    _refuse_embeddings(modules)
    return tuple(modules)


def _refuse_tokenizers(tokenizers: Sequence[Any]) -> None:
    words = [t.get_vocab() for t in tokenizers if hasattr(t, "get_vocab")]
    for number, other in enumerate(words[1:], 1):
        if other != words[0]:
            differ = len({*words[0].items()} ^ {*other.items()})
            raise InvalidInputError(
                f"Models in consensus must have one tokenizer, because the same token must mean "
                f"the same; the vocabularies of model 0 and model {number} differ in {differ} "
                "entries."
            )


def _refuse_embeddings(modules: Sequence[nn.Module]) -> None:
    shapes = []
    for module in modules:
        find = getattr(module, "get_input_embeddings", None)
        weight = getattr(find() if callable(find) else None, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2:
            shapes.append(tuple(weight.shape))
    for rows, width in shapes[1:]:
        if rows != shapes[0][0]:
            raise InvalidInputError(
                "Models in consensus must have one tokenizer; their vocabularies have "
                f"{shapes[0][0]} and {rows} tokens."
            )
        if width != shapes[0][1]:
            raise InvalidInputError(
                "Models in consensus must have states of one width; found "
                f"{shapes[0][1]} and {width} features."
            )


def refuse_inputs(models: Sequence[nn.Module], kwargs: Mapping[str, Any]) -> None:
    """Raise for a cache of keys, and where a tap or a lever would be left out."""
    cached = [name for name in _CACHES if kwargs.get(name) is not None]
    if cached:
        raise InvalidInputError(
            f"{cached[0]} would be written by {len(models)} models. Leave it out and give the "
            "whole text, with use_cache=False."
        )
    listened = thread_watchers().of
    if listened and any(id(m) in listened for model in models for m in model.modules()):
        raise TapError(
            "A tap or a lever is entered on one of the models in this thread. Passes of a "
            "consensus run in threads of their own, where it does not act: leave it, or read "
            "states with watch=."
        )


def refuse_depths(depths: Sequence[int], layers: tuple[int, ...] | None) -> None:
    """Raise for other numbers of blocks, or layers that are not there."""
    if len(set(depths)) > 1:
        raise InvalidInputError(
            f"Models in consensus must have one depth, because they meet after each block; found "
            f"{', '.join(map(str, depths))} blocks."
        )
    missing = [layer for layer in layers or () if layer >= depths[0]]
    if missing:
        raise InvalidInputError(
            f"layers must be from 0 to {depths[0] - 1}, the blocks of the models; got {missing[0]}."
        )


def refuse_states(states: Sequence[Tensor], layer: int) -> None:
    """Raise for states of other shapes, and for NaN."""
    shapes = {tuple(state.shape) for state in states}
    if len(shapes) > 1:
        raise InvalidInputError(
            f"States in consensus must be of one shape; after block {layer} they are "
            f"{', '.join(str(list(state.shape)) for state in states)}."
        )
    for number, state in enumerate(states):
        if bool(state.sum(dtype=_summed(state)).isfinite()):  # one pass and no copy
            continue
        bad = int((~state.isfinite()).sum())
        if bad:
            raise InvalidInputError(
                f"After block {layer} model {number} has {bad} numbers that are NaN or infinite, "
                "which would spread to the others. Run it alone, in a wider precision."
            )


def _summed(state: Tensor) -> torch.dtype:
    return torch.promote_types(state.dtype, torch.float32)
