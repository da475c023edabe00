"""What a model is read on: texts, images, inputs that were given, or noise of the right shape."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.lab.config import ReadingConfig
from flowscope.models.inputs import sample_inputs
from flowscope.models.loading import Loaded
from flowscope.models.preparation import chosen_texts, feeding_of
from flowscope.models.prompts import Batch, Prompts, batches_of, prompts_of
from flowscope.records import Unavailable

__all__ = ["Material", "material_of"]

_NOISE = "noise of the right shape"


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """Batches that can be made again, and what they are.

    Attributes
    ----------
    batches
        Called with how many prompts are wanted at most (None: all); a new iterator each time.
    size, tokens
        Prompts, and tokens in all of them (images and other inputs count one each).
    source
        Where they come from, in words.
    prompts
        The tokenised prompts, or why there are none.
    data_hash, text_hash
        Of what the model is given, and of the texts it was made from.
    fed
        What texts become before the model sees them, in words; empty where there are none.
    """

    batches: Callable[[int | None], Iterator[Batch]]
    size: int
    tokens: int
    source: str
    prompts: Prompts | Unavailable
    data_hash: str
    text_hash: str
    fed: str = ""


def material_of(
    loaded: Loaded,
    config: ReadingConfig,
    texts: Sequence[str] | Tensor | None = None,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    *,
    hides: bool = False,
) -> Material:
    """What to read a model on.

    Parameters
    ----------
    loaded, config
        The model, and how much of it is to be read.
    texts
        Prompts, or images for a vision model; those of the configuration when None.
    inputs
        Keyword arguments of the forward pass instead, one mapping per batch.
    hides
        Whether tokens of a masked model are hidden, as the configuration says, because its output
        is read.

    Raises
    ------
    InvalidInputError
        When nobody knows what the model takes, or both were given.
    """
    if config.skip and (inputs is not None or (texts is None and not _spoken(loaded))):
        raise InvalidInputError("skip leaves out prompts of a text; there is no text here.")
    if inputs is not None:
        if texts is not None:
            raise InvalidInputError("Give texts or inputs, not both.")
        return _given(inputs)
    if texts is None and not _spoken(loaded):
        return _noise(loaded, config)
    chosen, where = chosen_texts(config) if texts is None else (texts, "given")
    feeding = feeding_of(config)
    prompts = prompts_of(
        loaded,
        chosen,
        count=config.prompts,
        length=config.tokens,
        source=where,
        feeding=feeding if hides else replace(feeding, masked_share=None),
        skip=config.skip,
    )
    return Material(
        batches=lambda most: batches_of(
            loaded, prompts if most is None else prompts.first(most), config.batch
        ),
        size=len(prompts),
        tokens=prompts.tokens,
        source=prompts.source,
        prompts=prompts,
        data_hash=prompts.data_hash,
        text_hash=prompts.text_hash,
        fed=prompts.fed,
    )


def _spoken(loaded: Loaded) -> bool:
    """Whether a model reads texts."""
    return loaded.kind in ("causal_lm", "masked_lm", "seq2seq", "text_encoder")


def _noise(loaded: Loaded, config: ReadingConfig) -> Material:
    if config.text is not None:
        raise InvalidInputError(
            f"{loaded.source} is a {loaded.kind} model and takes no text. Leave text out."
        )
    seeds = range(config.seed, config.seed + (config.prompts + 1) // 2)
    return _listed([sample_inputs(loaded, seed=seed) for seed in seeds], _NOISE)


def _given(inputs: Sequence[Mapping[str, Any]]) -> Material:
    if not inputs or not all(isinstance(one, Mapping) and one for one in inputs):
        raise InvalidInputError(
            "inputs must be a list of mappings, the keyword arguments of one forward pass each; "
            f"got {type(inputs).__name__} of {len(inputs)}."
        )
    return _listed([dict(one) for one in inputs], "given inputs")


def _listed(batches: Sequence[dict[str, Any]], source: str) -> Material:
    sizes = [_rows(one) for one in batches]
    digest = hashlib.sha256()
    for one in batches:
        for name, value in sorted(one.items()):
            if isinstance(value, Tensor):
                digest.update(name.encode() + value.detach().cpu().double().numpy().tobytes())

    def made(most: int | None) -> Iterator[Batch]:
        done = 0
        for one, rows in zip(batches, sizes, strict=True):
            if most is not None and done >= most:
                return
            numbers = np.arange(done, done + rows, dtype=np.int64)
            yield Batch(inputs=one, prompts=numbers, mask=_counted(one, rows))
            done += rows

    return Material(
        batches=made,
        size=sum(sizes),
        tokens=sum(sizes),
        source=source,
        prompts=Unavailable(f"the model was measured on {source}"),
        data_hash=digest.hexdigest(),
        text_hash=digest.hexdigest(),
    )


def _rows(inputs: Mapping[str, Any]) -> int:
    for value in inputs.values():
        if isinstance(value, Tensor) and value.ndim > 0:
            return len(value)
    raise InvalidInputError("A batch of inputs must hold at least one tensor with a batch axis.")


def _counted(inputs: Mapping[str, Any], rows: int) -> Tensor:
    """Which positions count: those of an attention mask, else all."""
    mask = inputs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return mask.bool()
    return torch.ones(rows, 1, dtype=torch.bool)
