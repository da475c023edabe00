r"""Held-out loss of a language model, per source, per token and per byte.

.. math:: \text{perplexity per token} = e^{N / n}, \qquad \text{per byte} = e^{N / b}

N is the summed negative log-likelihood in nats of the n held-out tokens (end marks included) and b
the bytes of the held-out text (end marks have none). Windows follow each other without overlap, so
every token is predicted once, from at most ``context`` tokens before it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Loss", "held_out_losses", "model_scores", "total", "unigram_scores", "windows"]

IGNORED = -100
Scores = Callable[[Tensor, Tensor], Tensor]


class Loss(NamedTuple):
    """Summed nats and the number of tokens they were summed over."""

    nats: float
    tokens: int

    @property
    def mean(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens


def windows(tokens: np.ndarray, context: int, end: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets ``[windows, context]`` that predict each token of the row once."""
    row = torch.from_numpy(tokens.astype(np.int64))
    count = -(-len(row) // context)
    targets = torch.full((count * context,), IGNORED)
    targets[: len(row)] = row
    inputs = torch.full((count * context,), end)
    inputs[1 : len(row)] = row[:-1]
    return inputs.view(count, context), targets.view(count, context)


def model_scores(model: nn.Module, autocast: bool) -> Scores:
    """Summed nats of a model on a batch of windows."""
    device = next(model.parameters()).device

    def scores(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(input_ids=inputs.to(device), use_cache=False).logits
        flat, goal = logits.float().flatten(0, 1), targets.to(device).flatten()
        return F.cross_entropy(flat, goal, ignore_index=IGNORED, reduction="sum")

    return scores


def unigram_scores(train: list[np.ndarray], pieces: int) -> Scores:
    """Summed nats of the token frequencies of the training part, one added to each count."""
    counts = sum(np.bincount(tokens, minlength=pieces) for tokens in train) + 1.0
    nats = torch.from_numpy(-np.log(counts / counts.sum()))
    return lambda _, targets: nats[targets[targets != IGNORED].cpu()].sum()


def held_out_losses(
    scores: Scores, held_out: dict[str, tuple[Tensor, Tensor]], *, batch: int = 64, limit: int = 0
) -> dict[str, Loss]:
    """The loss on each source; with a limit, on that many evenly spaced windows of each."""
    found = {}
    for name, (inputs, targets) in held_out.items():
        chosen = torch.arange(len(inputs))
        if 0 < limit < len(inputs):
            chosen = torch.linspace(0, len(inputs) - 1, limit).round().long()
        parts = [scores(inputs[part], targets[part]).double() for part in chosen.split(batch)]
        count = int((targets[chosen] != IGNORED).sum())
        found[name] = Loss(float(torch.stack(parts).sum()), count)
    return found


def total(losses: dict[str, Loss]) -> Loss:
    """The loss over all sources together."""
    return Loss(sum(x.nats for x in losses.values()), sum(x.tokens for x in losses.values()))
