"""Which positions of a prompt count, and what a model is to name there.

* A causal model names the next token.
* A masked model names the tokens that were hidden behind its mask token. At a visible position the
  token stands in the input, and naming it is copying.
* The decoder of an encoder–decoder is fed the same ids shifted by one, its start token first, and
  names at each position the token that the shift moved on.

Special tokens are no rows: nothing is read at them and they are not to be named. Other positions
see them as keys.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flowscope.models.reading.tokens import Window

__all__ = ["NONE", "Positions", "causal_positions", "hidden_positions", "shifted_ids",
           "shifted_positions"]  # fmt: skip

NONE = -1
"""Target of a position that names nothing."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Positions:
    """Positions of one prompt, as the blocks of the model see them.

    Attributes
    ----------
    ids
        Token that is read at each position (that of the decoder where there is one).
    text
        Positions that hold text: rows of statistics of attention.
    named
        Positions whose output is read: rows of statistics of the output. Those of `text`, or in a
        masked model the hidden ones among them.
    targets
        Token that the model is to name at each position; -1 where there is none.
    shown
        Token to show at each position: as `ids`, and the hidden token where one was hidden.
    """

    ids: Ids
    text: NDArray[np.bool_]
    named: NDArray[np.bool_]
    targets: Ids
    shown: Ids


def causal_positions(window: Window) -> Positions:
    """Positions of a model that names the next token.

    Examples
    --------
    >>> window = Window(ids=np.array([1, 7, 8, 2]), text=np.array([False, True, True, False]))
    >>> causal_positions(window).targets.tolist()
    [-1, 8, -1, -1]
    """
    ids, text = window.ids.astype(np.int64), window.text
    ahead, follows = np.append(ids[1:], NONE), np.append(text[1:], False)
    targets = np.where(text & follows, ahead, NONE)
    return Positions(ids=ids, text=text, named=text, targets=targets, shown=ids)


def hidden_positions(
    window: Window, mask: int | None, *, share: float | None, seed: tuple[int, int]
) -> Positions:
    """Positions of a masked model; a share of the text is hidden behind the mask token.

    Parameters
    ----------
    window
        What is fed.
    mask
        The mask token; without one nothing can be hidden, and visible tokens are read.
    share
        Share of the text that is hidden, at least one token; 0 or None hides nothing.
    seed
        Of the choice: that of the run and the number of the prompt.
    """
    ids, text = window.ids.astype(np.int64), window.text
    visible = np.where(text, ids, NONE)
    if mask is None or not share:
        return Positions(ids=ids, text=text, named=text, targets=visible, shown=ids)
    free = np.flatnonzero(text)
    count = min(max(round(share * len(free)), 1), len(free))
    chosen = np.random.default_rng(seed).choice(free, count, replace=False)
    named = np.zeros(len(ids), bool)
    named[chosen] = True
    fed = np.where(named, mask, ids)
    return Positions(ids=fed, text=text, named=named, targets=visible, shown=ids)


def shifted_positions(model: Any, window: Window) -> Positions:
    """Positions of a decoder that is fed the ids shifted by one."""
    ids, text = window.ids.astype(np.int64), window.text
    fed = shifted_ids(model, torch.from_numpy(ids)[None])[0].numpy()
    rows = np.append(False, text[:-1])
    targets = np.where(rows & text, ids, NONE)
    return Positions(ids=fed, text=rows, named=rows, targets=targets, shown=fed)


def shifted_ids(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Ids of a decoder, as the model itself makes them of labels: its start token first."""
    own = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if own is not None:
        try:
            made: torch.Tensor = own(labels=ids)
        except (ValueError, TypeError, AttributeError, NotImplementedError):
            pass  # its configuration names no start token
        else:
            if made.shape == ids.shape:
                return made
    config = model.config
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = (getattr(config, name, None) for name in names)
    start = next((int(token) for token in known if isinstance(token, int)), 0)
    return torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], 1)
