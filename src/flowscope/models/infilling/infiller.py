"""A model that names what stands at masked positions, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.models.loading import Loaded
from flowscope.records import Unavailable

__all__ = ["Infiller", "Naming"]

Naming = Callable[[Tensor, Tensor], Tensor]
"""Logits ``[rows, positions, outcomes]`` of ids and of where the rows hold something."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Infiller:
    """Logits of partly masked sequences.

    Attributes
    ----------
    naming
        The model: ids and presence ``[rows, positions]`` to logits.
    mask
        Token that hides a position.
    outcomes
        Size of the vocabulary.
    forbidden
        Tokens that no position may be filled with, the mask among them.
    shift
        Whether position i is named by the logits of position i − 1, as in Dream.
    device
        Where ids go.
    source
        Where the model comes from, in words.
    loaded
        The model with its tokenizer, or why there is none.
    pad
        Token behind the end of shorter rows; attention does not see it.
    """

    naming: Naming
    mask: int
    outcomes: int
    forbidden: tuple[int, ...]
    shift: bool
    device: torch.device
    source: str
    loaded: Loaded | Unavailable
    pad: int = 0

    def logits(
        self,
        ids: Int[Tensor, "rows positions"],
        present: Bool[Tensor, "rows positions"],
        wanted: Bool[Tensor, "rows positions"],
    ) -> Float[Tensor, "wanted outcomes"]:
        """Logits at the wanted positions, row by row; −∞ for what may not be filled in.

        Parameters
        ----------
        ids, present
            Sequences, and where they hold something; the rest is padding.
        wanted
            Positions to name.

        Raises
        ------
        UnsupportedModelError
            The model returns another shape, NaN, or no finite number for a position.
        """
        with torch.no_grad():
            output = self.naming(ids, present)
        shape = (*ids.shape, self.outcomes)
        if not isinstance(output, Tensor) or tuple(output.shape) != shape:
            found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise UnsupportedModelError(
                f"{self.source} must return logits of shape {shape} (rows, positions, outcomes); "
                f"it returned {found}."
            )
        rows, places = wanted.nonzero(as_tuple=True)
        places = (places - 1).clamp_min(0) if self.shift else places
        named = output[rows, places].float()
        self._refuse_broken(named, rows, places)
        if self.forbidden:
            named[:, list(self.forbidden)] = -torch.inf
        if not bool(named.isfinite().any(-1).all()):
            raise UnsupportedModelError(
                f"{self.source} leaves no token for a position: all logits that are not forbidden "
                "are −∞. Forbid fewer tokens."
            )
        return named

    def _refuse_broken(self, named: Tensor, rows: Tensor, places: Tensor) -> None:
        bad = named.isnan() | (named == torch.inf)
        if bool(bad.any()):
            first = int(bad.any(-1).nonzero()[0])
            value = named[first][bad[first]][0].item()
            raise UnsupportedModelError(
                f"{self.source} returned {value} as a logit (row {int(rows[first])}, position "
                f"{int(places[first])}). Load it in float32, or look for the overflow."
            )

    def refuse_ids(self, ids: Int[Tensor, "rows positions"]) -> None:
        """Refuse ids outside of the vocabulary.

        Raises
        ------
        InvalidInputError
            There is one; the message names it.
        """
        bad = (ids < 0) | (ids >= self.outcomes)
        if bool(bad.any()):
            raise InvalidInputError(
                f"Token {int(ids[bad][0])} is outside of the vocabulary of {self.source}, which "
                f"has {self.outcomes} tokens. Give the tokenizer the model was trained with."
            )
