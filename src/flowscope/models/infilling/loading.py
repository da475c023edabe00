"""Infillers from folders, hub ids, loaded models and functions.

A folder needs no code of its own: any ``AutoModelForCausalLM`` whose ``config.json`` says
``"is_causal": false`` (transformers 5.17 or later, under sdpa and eager), and masked language
models (BERT, ModernBERT). A model that was loaded elsewhere (LLaDA, Dream) is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.models.infilling.infiller import Infiller, Naming
from flowscope.models.infilling.sight import Sight, sight_of, sight_sentence
from flowscope.models.loading import Loaded, load
from flowscope.models.reading.words import mask_token
from flowscope.records import Unavailable

__all__ = ["infiller", "ordinary_tokens"]

_OLDEST = "5.17"
_SHIFTED = ("Dream",)
"""Classes that name position i by the logits of position i − 1, by the start of their name."""
_SQUARE = ("Dream",)
"""Classes that take presence as one truth value per pair of positions."""


def infiller(
    source: str | Path | nn.Module | Loaded | Callable[..., Any],
    *,
    mask: int | None = None,
    outcomes: int | None = None,
    shift: bool | None = None,
    forbidden: Iterable[int] | None = None,
    **options: Any,
) -> Infiller:
    """Make an infiller of a model or of a function.

    Parameters
    ----------
    source
        Anything `load` takes, what it returned, or a function of ids and presence
        ``[rows, positions]`` that returns logits ``[rows, positions, outcomes]``.
    mask
        Token that hides a position; that of the configuration or the tokenizer by default.
    outcomes
        Size of the vocabulary of a function; a model says it itself.
    shift
        Whether position i is named by the logits of position i − 1; True for Dream by default.
    forbidden
        Tokens that may not be filled in, beside the mask; by default the special tokens of a masked
        language model, and none for others.
    **options
        Passed on to `load`.

    Raises
    ------
    UnsupportedModelError
        For a causal model, and others that cannot fill masked positions.
    InvalidInputError
        When the mask token is not known.
    """
    plain = callable(source) and not isinstance(source, (nn.Module, Loaded, str, Path))
    if plain:
        return _of_function(source, mask, outcomes, bool(shift), forbidden)  # type: ignore[arg-type]
    loaded = source if isinstance(source, Loaded) else load(source, **options)
    _refuse_kind(loaded)
    model: Any = loaded.model
    size = outcomes or _vocabulary(model)
    hidden = _mask_of(loaded) if mask is None else int(mask)
    if hidden is None:
        _refuse_without_mask(loaded, size)
    _refuse_mask(hidden, size, loaded.source)
    if shift is None:
        shift = type(model).__name__.startswith(_SHIFTED)
    tokenizer = None if isinstance(loaded.tokenizer, Unavailable) else loaded.tokenizer
    made = Infiller(
        naming=_naming(model),
        mask=hidden,
        outcomes=size,
        forbidden=_forbidden(loaded, hidden, size, forbidden),
        shift=bool(shift),
        device=_device(model),
        source=loaded.source,
        loaded=loaded,
        pad=_pad(tokenizer, model, hidden, size),
    )
    _refuse_causal(made, loaded)
    return made


def ordinary_tokens(made: Infiller, most: int = 16) -> Tensor:
    """A few tokens that are neither the mask, nor padding, nor forbidden, spread over all."""
    special = {made.mask, made.pad, *made.forbidden}
    spread = torch.linspace(0, made.outcomes - 1, min(8 * most, made.outcomes)).long().tolist()
    tokens = [token for token in dict.fromkeys(spread) if token not in special]
    return torch.tensor(tokens[:: max(1, len(tokens) // most)][:most], device=made.device)


def _of_function(
    naming: Naming,
    mask: int | None,
    outcomes: int | None,
    shift: bool,
    forbidden: Iterable[int] | None,
) -> Infiller:
    if mask is None or outcomes is None:
        raise InvalidInputError(
            "A function needs its mask token and the size of its vocabulary: "
            "infiller(function, mask=…, outcomes=…)."
        )
    name = getattr(naming, "__name__", type(naming).__name__)
    _refuse_mask(int(mask), int(outcomes), name)
    return Infiller(
        naming=naming,
        mask=int(mask),
        outcomes=int(outcomes),
        forbidden=tuple(sorted({int(mask), *map(int, forbidden or ())})),
        shift=shift,
        device=torch.device("cpu"),
        source=f"the function {name}",
        loaded=Unavailable("a function was given"),
        pad=int(mask),
    )


def _refuse_kind(loaded: Loaded) -> None:
    name = type(loaded.model).__name__
    if hasattr(getattr(loaded.model, "config", None), "canvas_length"):
        raise UnsupportedModelError(
            f"{name} starts from random tokens, not from mask tokens, and decides by itself when "
            "to stop. Calibrate that with flowscope.instruments.decode.canvas.calibrate_stop, and "
            "stop there with flowscope.levers.calibrated_stop."
        )
    if loaded.kind not in ("causal_lm", "masked_lm", "torch"):
        raise UnsupportedModelError(
            f"{name} ({loaded.kind}) does not fill masked positions. Give a masked diffusion "
            "language model, a masked language model, or a function."
        )


def _vocabulary(model: Any) -> int:
    config = getattr(model, "config", None)
    size = getattr(getattr(config, "text_config", config), "vocab_size", None)
    if not isinstance(size, int):
        raise InvalidInputError(
            f"{type(model).__name__} does not say how large its vocabulary is. Give outcomes=…"
        )
    return size


def _mask_of(loaded: Loaded) -> int | None:
    """Mask token of the configuration, else of the tokenizer; None where neither names one."""
    configured = getattr(getattr(loaded.model, "config", None), "mask_token_id", None)
    return mask_token(loaded.tokenizer) if configured is None else int(configured)


def _refuse_without_mask(loaded: Loaded, size: int) -> NoReturn:
    """Refuse a model whose mask token is not known: for being causal, if it is."""
    naming = _naming(loaded.model)
    if size > 1:
        tokens = torch.arange(min(size, 16), device=_device(loaded.model))
        sight = sight_of(lambda ids: naming(ids, torch.ones_like(ids, dtype=torch.bool)), tokens)
        if not sight.both_ways:
            raise _causal(loaded, sight)
    raise InvalidInputError(
        f"{loaded.source} has no mask token: neither its configuration (mask_token_id) nor its "
        "tokenizer names one. Give its id (--mask, mask=…), or another model."
    )


def _refuse_mask(mask: int, size: int, source: str) -> None:
    if not 0 <= mask < size:
        raise InvalidInputError(
            f"The mask token {mask} is outside of the vocabulary of {source}, which has {size} "
            "tokens. Give the id of the mask token (--mask, mask=…)."
        )


def _forbidden(
    loaded: Loaded, mask: int, size: int, given: Iterable[int] | None
) -> tuple[int, ...]:
    tokens = {mask}
    if given is not None:
        tokens |= {int(token) for token in given}
        wrong = [token for token in tokens if not 0 <= token < size]
        if wrong:
            raise InvalidInputError(
                f"forbidden names token {wrong[0]}; the vocabulary has tokens 0 to {size - 1}."
            )
    elif type(loaded.model).__name__.endswith("ForMaskedLM"):
        special = getattr(loaded.tokenizer, "all_special_ids", ())
        tokens |= {int(token) for token in special if int(token) < size}
    return tuple(sorted(tokens))


def _pad(tokenizer: Any, model: Any, mask: int, size: int) -> int:
    config = getattr(model, "config", None)
    for owner in (tokenizer, config):
        pad = getattr(owner, "pad_token_id", None)
        if isinstance(pad, int) and 0 <= pad < size:
            return pad
    return mask


def _device(model: nn.Module) -> torch.device:
    weight = next(model.parameters(), torch.zeros(0))
    return torch.device("cpu") if weight.is_meta else weight.device


def _naming(model: Any) -> Naming:
    square = type(model).__name__.startswith(_SQUARE)

    def naming(ids: Tensor, present: Tensor) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": ids}
        if not bool(present.all()):
            pairs = present[:, None, :, None] & present[:, None, None, :]
            inputs["attention_mask"] = pairs if square else present.long()
        output = model(**inputs)
        logits: Tensor = output if isinstance(output, Tensor) else output.logits
        return logits

    return naming


def _refuse_causal(made: Infiller, loaded: Loaded) -> None:
    """Prove that the model sees both ways, or refuse it."""
    tokens = ordinary_tokens(made)
    if len(tokens) < 2:
        raise InvalidInputError(
            f"{made.source} leaves {len(tokens)} tokens to fill in; two are needed. Forbid fewer."
        )

    def rows(ids: Tensor) -> Tensor:
        return made.naming(ids, torch.ones_like(ids, dtype=torch.bool))

    sight = sight_of(rows, tokens, made.mask)
    if not sight.both_ways:
        raise _causal(loaded, sight)


def _causal(loaded: Loaded, sight: Sight) -> UnsupportedModelError:
    """The refusal of a model whose first position does not see its last one."""
    config = getattr(loaded.model, "config", None)
    if getattr(config, "is_causal", True) is False:
        import transformers

        backend = getattr(config, "_attn_implementation", "its attention")
        return UnsupportedModelError(
            f"{loaded.source} says is_causal = false, and transformers {transformers.__version__} "
            f"ignores it under {backend}: {sight_sentence(sight)}. Use transformers {_OLDEST} or "
            "later with sdpa or eager attention."
        )
    return UnsupportedModelError(
        f"{loaded.source} is causal: {sight_sentence(sight)}. A causal model cannot fill a blank "
        "from what follows it. Give a masked diffusion language model (is_causal: false), or a "
        "masked language model."
    )
