"""One model under one change of all its blocks: loss, output and states of each prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.instruments.field.config import FieldConfig
from flowscope.levers import intervene
from flowscope.models.prompts import Batch, Prompts
from flowscope.probes.field.cloud import LEAST, cloud, first_tokens, massive_tokens, widened
from flowscope.records import Unavailable

__all__ = [
    "NONE",
    "Change",
    "Values",
    "changes_of",
    "log_probabilities",
    "prompt_values",
    "targets_of",
]

_STATES = ("norm", "mean_cosine", "effective_rank")
Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is done to all blocks at once; see `flowscope.levers.intervene`."""

    name: str
    residual: float = 1.0
    attention: float = 1.0
    feed_forward: float = 1.0
    norm: Literal["keep", "frozen", "removed"] = "keep"

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of the lever."""
        return {
            "residual": self.residual,
            "attention": self.attention,
            "feed_forward": self.feed_forward,
            "norm": self.norm,
        }


NONE = Change(name="none")


def changes_of(config: FieldConfig) -> tuple[Change, ...]:
    """The changes that are tried, first of all none."""
    changes = (
        NONE,
        *(Change(name=f"writes × {c:g}", attention=c, feed_forward=c) for c in config.write_scales),
        *(Change(name=f"residual × {c:g}", residual=c) for c in config.residual_scales),
        *(Change(name=f"attention × {c:g}", attention=c) for c in _PARTS),
        *(Change(name=f"feed-forward × {c:g}", feed_forward=c) for c in _PARTS),
        Change(name="norms frozen", norm="frozen"),
        Change(name="norms removed", norm="removed"),
    )
    return tuple({change.name: change for change in changes}.values())


_PARTS = (0.0, 0.5)


class _Overflow(Exception):  # noqa: N818 - a way out of a pass, not an error
    """A state is not finite; nothing after it means anything."""


@torch.no_grad()
def prompt_values(
    model: nn.Module,
    batch: Batch,
    change: Change,
    plain: Callable[[], Tensor | None],
    targets: Tensor | None,
    blocks: int,
) -> Values:
    """Numbers of every prompt of a batch under a change.

    Parameters
    ----------
    model, batch, change, blocks
        What is run, on what, under what, and how many blocks it has.
    plain
        Returns the `log_probabilities` of the model as it is.
    targets
        Of `targets_of`.

    Returns
    -------
    dict
        ``loss`` and ``kl`` ``[prompts]``, NaN where the model has no such output; ``states``
        ``[prompts, blocks, 3]``: median length, mean cosine and effective rank, NaN from the
        block on after which a state was not finite; ``overflow``: the number of that block, from 1,
        or 0.
    """
    rows = len(batch.prompts)
    states = np.full((rows, blocks, len(_STATES)), np.nan)
    overflow = 0

    def watch(layer: int, hidden: Tensor) -> None:
        nonlocal overflow
        if not bool(hidden.isfinite().all()):
            overflow = layer + 1
            raise _Overflow
        states[:, layer] = _of_states(widened(hidden), batch.mask)

    loss, kl = np.full(rows, np.nan), np.full(rows, np.nan)
    try:
        with intervene(model, watch=watch, **change.settings()):
            changed = log_probabilities(model(**batch.inputs))
    except _Overflow:
        changed = None
    log_p = None if changed is None else plain()
    if log_p is not None and changed is not None:
        each = torch.where(log_p > -torch.inf, log_p.exp() * (log_p - changed), 0.0)
        kl = _mean_of(each.sum(-1), batch.named, log_p)
        if targets is not None:
            loss = _losses(changed, targets)
    return {"loss": loss, "kl": kl, "states": states, "overflow": np.array([float(overflow)])}


def _of_states(state: Tensor, mask: Tensor) -> NDArray[np.float64]:
    """Length, likeness and rank of the tokens of each row that count."""
    counted = mask.bool().to(state.device)
    if counted.shape != state.shape[:2]:
        counted = torch.ones(state.shape[:2], dtype=torch.bool, device=state.device)
    used = counted & ~massive_tokens(counted, state) & ~first_tokens(counted)
    rows = np.full((len(state), len(_STATES)), np.nan)
    for row, (x, chosen) in enumerate(zip(state, used, strict=True)):
        if int(chosen.sum()) >= LEAST:
            found = cloud(x[chosen])
            rows[row] = [found.get(name, np.nan) for name in _STATES]
    return rows


def log_probabilities(output: Any) -> Tensor | None:
    """Log-probabilities of the output ``[rows, positions, outcomes]``; None where it has none."""
    logits = output.get("logits") if isinstance(output, Mapping) else None
    if not isinstance(logits, Tensor) or logits.ndim not in (2, 3) or logits.shape[-1] < 2:
        return None
    logits = logits[:, None] if logits.ndim == 2 else logits
    return torch.log_softmax(logits.float(), -1)


def _mean_of(values: Tensor, named: Tensor, like: Tensor) -> NDArray[np.float64]:
    counted = named if named.shape == like.shape[:2] else torch.ones(like.shape[:2])
    counted = counted.to(values)
    return np.asarray(
        ((values * counted).sum(1) / counted.sum(1).clamp_min(1)).double().cpu().numpy()
    )


def _losses(log_p: Tensor, targets: Tensor) -> NDArray[np.float64]:
    """Mean −log p of the targets of each row; NaN where a row has none."""
    targets = targets.to(log_p.device)
    there = targets >= 0
    picked = log_p.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    picked = torch.where(there, -picked, 0.0)
    return np.asarray((picked.sum(1) / there.sum(1)).double().cpu().numpy())


def targets_of(prompts: Prompts | Unavailable, batch: Batch) -> Tensor | None:
    """Tokens that the model is to name at each position, -1 where none; None without texts."""
    if isinstance(prompts, Unavailable) or prompts.images or "input_ids" not in batch.inputs:
        return None
    places = [prompts.at(int(number)) for number in batch.prompts]
    found = torch.full(batch.mask.shape, -1, dtype=torch.long)
    for row, place in enumerate(places):
        named = np.where(place.named, place.targets, -1)
        found[row, : len(named)] = torch.as_tensor(named)
    return found
