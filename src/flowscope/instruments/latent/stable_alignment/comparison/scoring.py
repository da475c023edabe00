"""Losses of several predictions of the same tokens, what they mix to, and how far they differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.models.loading import Loaded
from flowscope.models.prompts import Batch, Prompts, batches_of

__all__ = ["Arrays", "Passes", "scored"]

Arrays = dict[str, NDArray[Any]]
Passes = Callable[[dict[str, Tensor]], Sequence[Any]]
"""Outputs of the members on a batch."""


@torch.no_grad()
def scored(loaded: Loaded, prompts: Prompts, size: int, passes: Passes) -> Arrays:
    """Sums over the predicted tokens of every text.

    Returns
    -------
    dict
        ``losses`` ``[members, texts]``, ``mixed``, ``logits`` and ``divergence`` ``[texts]``: of
        each member, of the mean of probabilities, of the mean of logits, and Jensen–Shannon;
        ``tokens`` ``[texts]``; ``seconds`` of the passes.
    """
    rows: list[Float[Tensor, "sums texts"]] = []
    seconds = 0.0
    for batch in batches_of(loaded, prompts, size):
        start = time.perf_counter()
        logits = [output.logits for output in passes({**batch.inputs, "use_cache": False})]  # type: ignore[dict-item]
        seconds += time.perf_counter() - start
        rows.append(_sums(logits, batch))
    sums = torch.cat(rows, 1).numpy()
    members = len(sums) - 4
    return {
        "losses": sums[:members],
        "mixed": sums[members],
        "logits": sums[members + 1],
        "divergence": sums[members + 2],
        "tokens": sums[members + 3],
        "seconds": np.array([seconds]),
    }


def _sums(logits: Sequence[Tensor], batch: Batch) -> Float[Tensor, "sums texts"]:
    place = logits[0].device
    targets = batch.inputs["input_ids"][:, 1:, None].to(place)
    mask = batch.mask.to(place)
    counted = (mask[:, 1:] & mask[:, :-1]).double()
    laws = torch.stack([each[:, :-1].float().log_softmax(-1) for each in logits])
    mixed = laws.logsumexp(0) - float(np.log(len(logits)))
    mean = torch.stack([each[:, :-1].float() for each in logits]).mean(0).log_softmax(-1)
    own = torch.stack([_entropy(law) for law in laws]).mean(0)
    values = [-law.gather(-1, targets)[..., 0] for law in (*laws, mixed, mean)]
    values += [(_entropy(mixed) - own).clamp_min(0), torch.ones_like(own)]  # rounding
    return torch.stack([(value.double() * counted).sum(-1) for value in values]).cpu()


def _entropy(law: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch"]:
    return -(law.exp() * law).sum(-1)
