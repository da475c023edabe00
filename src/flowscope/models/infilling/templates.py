"""What is to be filled: sequences with masked positions, in batches padded on the right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.infilling.infiller import Infiller

__all__ = ["Canvas", "Template", "appended", "canvas_of", "hidden", "overlapping", "written"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """A sequence with positions to fill.

    Attributes
    ----------
    ids
        Tokens; what stands at a blank is not read.
    blank
        Positions to fill.
    region
        Blanks that count as the answer; all by default.
    truth
        Tokens of the right answer at the blanks, where they are known; empty otherwise.
    text
        The sequence as it is shown to people; empty where there is none.

    Raises
    ------
    InvalidInputError
        There is no position to fill, the region is empty or lies outside of the blanks, or the
        lengths differ.
    """

    ids: NDArray[np.int64]
    blank: NDArray[np.bool_]
    region: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    truth: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    text: str = ""

    def __post_init__(self) -> None:
        ids = np.asarray(self.ids, np.int64)
        blank = np.asarray(self.blank, bool)
        region = np.asarray(self.region, bool)
        given = region.size > 0
        region = region if given else blank
        if ids.ndim != 1 or blank.shape != ids.shape or region.shape != ids.shape:
            raise InvalidInputError(
                f"A template needs ids, blank and region of one length; found {ids.shape}, "
                f"{blank.shape} and {region.shape}."
            )
        if not blank.any():
            raise InvalidInputError(
                f"A template of {len(ids)} tokens has no masked position, so that there is nothing "
                "to fill. Mask at least one token."
            )
        if not region.any():
            raise InvalidInputError(
                "The answer region of a template is empty. Mark at least one of its blanks."
            )
        if (region & ~blank).any():
            raise InvalidInputError(
                f"The answer region holds position {int(np.flatnonzero(region & ~blank)[0])}, "
                "which is not to be filled. Mark blanks only."
            )
        truth = np.asarray(self.truth, np.int64)
        if truth.size and truth.shape != ids.shape:
            raise InvalidInputError(
                f"truth must hold one token per position, {len(ids)}; found {truth.shape}."
            )
        for name, value in (("ids", ids), ("blank", blank), ("region", region), ("truth", truth)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def blanks(self) -> int:
        """Number of positions to fill."""
        return int(self.blank.sum())

    @property
    def mark(self) -> str:
        """Hash of what is given and of which positions are to be filled and counted."""
        shown = np.where(self.blank, -1, self.ids)
        digest = hashlib.sha256(shown.tobytes() + self.region.tobytes())
        return digest.hexdigest()[:16]


def appended(prompt: Sequence[int], length: int, mask: int, text: str = "") -> Template:
    """A prompt and an answer of some masked positions behind it.

    Examples
    --------
    >>> appended([5, 6], 3, mask=0).ids.tolist()
    [5, 6, 0, 0, 0]
    """
    if length < 1:
        raise InvalidInputError(
            f"An answer needs at least one position; found a length of {length}."
        )
    ids = np.concatenate([np.asarray(prompt, np.int64), np.full(length, mask, np.int64)])
    blank = np.arange(len(ids)) >= len(prompt)
    return Template(ids=ids, blank=blank, text=text)


def written(ids: Sequence[int], mask: int, text: str = "") -> Template:
    """A sequence whose mask tokens are the positions to fill.

    Examples
    --------
    >>> written([5, 0, 6], mask=0).blank.tolist()
    [False, True, False]
    """
    tokens = np.asarray(ids, np.int64)
    return Template(ids=tokens, blank=tokens == mask, text=text)


def hidden(
    ids: Sequence[int],
    free: Sequence[bool] | NDArray[np.bool_],
    share: float,
    mask: int,
    seed: Sequence[int],
    text: str = "",
) -> Template:
    """A sequence of which a share of the free positions is hidden; the tokens are the truth.

    Examples
    --------
    >>> made = hidden([5, 6, 7, 8], [False, True, True, True], 0.5, mask=0, seed=[0])
    >>> made.blanks, made.truth.tolist(), bool(made.blank[0])
    (2, [5, 6, 7, 8], False)
    """
    tokens, places = np.asarray(ids, np.int64), np.flatnonzero(np.asarray(free, bool))
    if not len(places):
        raise InvalidInputError("A text has no token that may be hidden. Give longer texts.")
    count = min(max(round(share * len(places)), 1), len(places))
    blank = np.zeros(len(tokens), bool)
    blank[np.random.default_rng(list(seed)).choice(places, count, replace=False)] = True
    return Template(ids=np.where(blank, mask, tokens), blank=blank, truth=tokens, text=text)


def overlapping(first: Iterable[Template], second: Iterable[Template]) -> int:
    """How many templates of the second list are also in the first."""
    known = {template.mark for template in first}
    return sum(template.mark in known for template in second)


@dataclass(frozen=True, kw_only=True, eq=False)
class Canvas:
    """Templates in one batch, padded on the right.

    Attributes
    ----------
    ids, blank, region, present
        ``[rows, positions]``: tokens (the mask at blanks), positions to fill, those that count as
        the answer, and positions that hold something.
    numbers
        Number of the prompt in each row.
    """

    ids: Int[Tensor, "rows positions"]
    blank: Bool[Tensor, "rows positions"]
    region: Bool[Tensor, "rows positions"]
    present: Bool[Tensor, "rows positions"]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def canvas_of(
    made: Infiller, templates: Sequence[Template], numbers: Sequence[int] | None = None
) -> Canvas:
    """Put templates into one batch on the device of the infiller.

    Raises
    ------
    InvalidInputError
        A token is outside of the vocabulary, or a position that is not to be filled holds the mask
        token.
    """
    if not templates:
        raise InvalidInputError("There is no prompt to fill. Give at least one.")
    length = max(len(template) for template in templates)
    shape = (len(templates), length)
    ids = torch.full(shape, made.pad, dtype=torch.long)
    blank, region, present = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
    for row, template in enumerate(templates):
        n = len(template)
        ids[row, :n] = torch.from_numpy(np.where(template.blank, made.mask, template.ids))
        blank[row, :n] = torch.from_numpy(template.blank)
        region[row, :n] = torch.from_numpy(template.region)
        present[row, :n] = True
    made.refuse_ids(ids)
    stray = (ids == made.mask) & ~blank & present
    if bool(stray.any()):
        row, place = (int(v) for v in stray.nonzero()[0])
        number = row if numbers is None else numbers[row]
        raise InvalidInputError(
            f"Prompt {number} holds the mask token {made.mask} at position {place}, which is not "
            "to be filled. Take the mask out of the prompt, or mark the position as a blank."
        )
    device = made.device
    return Canvas(
        ids=ids.to(device),
        blank=blank.to(device),
        region=region.to(device),
        present=present.to(device),
        numbers=np.asarray(range(len(templates)) if numbers is None else numbers, np.int64),
    )
