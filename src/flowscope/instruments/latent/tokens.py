"""Which tokens of the material make the clouds: all of them, and one occurrence of each type."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.models.prompts import Batch
from flowscope.probes.tap_loop import stream_length

__all__ = ["Choice", "Tokens", "chosen_tokens", "listed_tokens", "shuffled_batch"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """Tokens of a material that count; the first of each prompt does not.

    Attributes
    ----------
    prompt, position
        Where each stands.
    kind
        Its number in the vocabulary; -1 where tokens have none (patches of an image).
    prefix
        Hash of the prompt up to the token; tokens with one prefix have one state in a causal model.
    copies
        Prompts that were left out because they repeat an earlier one.
    """

    prompt: Ints
    position: Ints
    kind: Ints
    prefix: Ints
    copies: int = 0

    @property
    def typed(self) -> bool:
        """Whether tokens belong to a vocabulary."""
        return bool(len(self.kind)) and bool((self.kind >= 0).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Tokens of the samples, once each.

    Attributes
    ----------
    tokens
        The chosen ones.
    samples
        For each sample (``all``, ``types``) which of them belong to it.
    """

    tokens: Tokens
    samples: dict[str, NDArray[np.bool_]]

    @property
    def by_prompt(self) -> dict[int, Ints]:
        """Chosen positions of each prompt."""
        return {
            int(p): self.tokens.position[self.tokens.prompt == p]
            for p in np.unique(self.tokens.prompt)
        }


def listed_tokens(model: nn.Module, batches: Iterable[Batch]) -> Tokens:
    """Every token that counts, in reading order; a prompt that repeats an earlier one has none."""
    rows: list[tuple[Ints, Ints, Ints, Ints]] = []
    seen: set[bytes] = set()
    copies = 0
    for batch in batches:
        ids, mask = _token_numbers(batch), batch.mask.cpu()
        if mask.shape[1] == 1:  # no mask was given: all positions count
            length = stream_length(model, batch.inputs) if ids is None else ids.shape[1]
            mask = mask.expand(-1, length)
        for row, prompt in enumerate(batch.prompts):
            whole = mask[row].nonzero()[:, 0].numpy()
            key = None if ids is None else _content(batch, row, ids[row][whole])
            if key is not None and key in seen:
                copies += 1
                continue
            seen.update(() if key is None else (key,))
            places = whole[1:]
            kinds = np.full(len(places), -1) if ids is None else ids[row][places]
            prefixes = [_hash(ids[row][: place + 1]) for place in places] if ids is not None else []
            rows.append(
                (
                    np.full(len(places), int(prompt)),
                    places,
                    kinds,
                    np.array(prefixes, np.int64) if prefixes else np.full(len(places), -1),
                )
            )
    prompt, position, kind, prefix = (
        np.concatenate([row[part] for row in rows]).astype(np.int64) for part in range(4)
    )
    return Tokens(prompt=prompt, position=position, kind=kind, prefix=prefix, copies=copies)


def chosen_tokens(tokens: Tokens, points: int, rng: np.random.Generator) -> Choice:
    """Draw both samples: ``points`` of all tokens, and one occurrence of as many types."""
    count = len(tokens.prompt)
    chosen = {"all": np.sort(rng.choice(count, min(points, count), replace=False))}
    if tokens.typed:
        order = rng.permutation(count)
        _, first = np.unique(tokens.kind[order], return_index=True)
        single = order[first]
        if len(single) > points:
            single = rng.choice(single, points, replace=False)
        chosen["types"] = np.sort(single)
    union = np.unique(np.concatenate(list(chosen.values())))
    return Choice(
        tokens=Tokens(
            **{
                name: getattr(tokens, name)[union]
                for name in ("prompt", "position", "kind", "prefix")
            },
            copies=tokens.copies,
        ),
        samples={name: np.isin(union, places) for name, places in chosen.items()},
    )


def shuffled_batch(seed: int) -> Callable[[Batch], Batch]:
    """Return a function that deals the tokens of every prompt anew; the first stays in place."""

    def shuffled(batch: Batch) -> Batch:
        name = _name_of_numbers(batch)
        assert name is not None
        ids = batch.inputs[name].clone()
        mask = batch.mask.cpu().expand(ids.shape)
        for row, prompt in enumerate(batch.prompts):
            places = mask[row].nonzero()[1:, 0]
            rng = np.random.default_rng([seed, int(prompt)])
            order = torch.as_tensor(rng.permutation(len(places)))
            ids[row, places] = batch.inputs[name][row, places[order]]
        return replace(batch, inputs={**batch.inputs, name: ids})

    return shuffled


def _name_of_numbers(batch: Batch) -> str | None:
    """Argument with the numbers of the tokens of the last chain of blocks."""
    for name in ("decoder_input_ids", "input_ids"):
        ids = batch.inputs.get(name)
        if not isinstance(ids, Tensor) or ids.ndim != 2:
            continue
        if batch.mask.shape in (ids.shape, (len(ids), 1)):
            return name
    return None


def _token_numbers(batch: Batch) -> Ints | None:
    name = _name_of_numbers(batch)
    return None if name is None else batch.inputs[name].cpu().numpy().astype(np.int64)


def _content(batch: Batch, row: int, numbers: Ints) -> bytes:
    """Digest of all that a prompt gives to the model, padding of its tokens left out."""
    name = _name_of_numbers(batch)
    digest = hashlib.blake2b(numbers.tobytes(), digest_size=16)
    for other in sorted(batch.inputs):
        value = batch.inputs[other]
        alike = other == name or "mask" in other or "position" in other
        if isinstance(value, Tensor) and value.ndim and len(value) > row and not alike:
            part = value[row].detach().cpu().contiguous()
            digest.update(other.encode() + part.flatten().view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _hash(numbers: Ints) -> int:
    digest = hashlib.blake2b(numbers.tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
