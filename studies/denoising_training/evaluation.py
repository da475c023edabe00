"""How many puzzles a denoiser fills rightly, in which order, in how many passes."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.stats import beta
from studies.denoising_training.network import Denoiser
from torch import Tensor

from flowscope.nets.sudoku import CHARACTERS, MASK, Puzzles

__all__ = ["Filling", "evaluated", "filled"]

_ROWS = 1000  # puzzles in one pass


@dataclass(frozen=True, eq=False)
class Filling:
    """Filled texts, passes of each row, and the choices a cell had left when it was filled.

    ``choices`` holds, for each pass and row, how many digits stood in no unit of the filled cell;
    ``spread`` the same averaged over all masked cells of the row; both are NaN once a row is full.
    """

    tokens: np.ndarray
    passes: np.ndarray
    choices: np.ndarray
    spread: np.ndarray


@torch.no_grad()
def filled(
    model: Denoiser, found: Puzzles, *, order: str = "confidence", together: int = 1, seed: int = 0
) -> Filling:
    """Fill the most confident (or random) masked cells, some together in a pass, until all are.

    Only digits of the task may be filled in; the digit is the most probable one.
    """
    parts = [
        _filled(model, found, slice(i, i + _ROWS), order, together, seed)
        for i in range(0, len(found), _ROWS)
    ]
    most = max(len(part.choices) for part in parts)

    def joined(name: str) -> np.ndarray:
        rows = [getattr(part, name) for part in parts]
        longer = [np.pad(r, ((0, most - len(r)), (0, 0)), constant_values=np.nan) for r in rows]
        return np.concatenate(longer, 1)

    return Filling(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.passes for part in parts]),
        joined("choices"),
        joined("spread"),
    )


def _filled(
    model: Denoiser, found: Puzzles, rows: slice, order: str, together: int, seed: int
) -> Filling:
    device = model.embedding.device
    tokens = torch.from_numpy(found.prompts[rows].astype(np.int64)).to(device)
    mask, digits = CHARACTERS.index(MASK), torch.tensor(found.digits, device=device)
    cosine, sine = model.rotations([tokens.shape[1]], [len(tokens)])
    draw = torch.Generator(device).manual_seed(seed)
    places = torch.arange(len(tokens), device=device)
    peers = _Peers(found, device)
    passes = torch.zeros(len(tokens), device=device)
    choices, spread = [], []
    while bool((hidden := tokens == mask).any()):
        laws = model([tokens], cosine, sine)[0].float()[..., digits].softmax(-1)
        sure, top = laws.max(-1)
        if order == "random":
            sure = torch.rand(sure.shape, device=device, generator=draw)
        ranked = sure.masked_fill(~hidden, -1.0).argsort(1, descending=True)[:, :together]
        left = peers.choices(tokens)
        open_rows = hidden.any(1)
        chosen = left.gather(1, ranked[:, :1])[:, 0]
        choices.append(torch.where(open_rows, chosen, torch.nan))
        spread.append((left * hidden).sum(1) / hidden.sum(1))
        for place in ranked.T:
            live = hidden[places, place]
            tokens[places[live], place[live]] = digits[top[places, place]][live]
        passes += open_rows
    return Filling(
        tokens.cpu().numpy().astype(np.uint8),
        passes.cpu().numpy(),
        torch.stack(choices).cpu().numpy(),
        torch.stack(spread).cpu().numpy(),
    )


class _Peers:
    """Digits that stand in no unit of a cell."""

    def __init__(self, found: Puzzles, device: torch.device) -> None:
        shape, places = found.shape, np.flatnonzero(found.answers[0] <= max(found.digits))
        places = places[found.answers[0][places] >= min(found.digits)]
        seen = np.zeros((found.prompts.shape[1],) * 2, dtype=np.float32)
        for unit in shape.units:
            seen[np.ix_(places[unit], places[unit])] = 1
        self.seen = torch.from_numpy(seen).to(device)
        self.digits = torch.tensor(found.digits, device=device)

    def choices(self, tokens: Tensor) -> Tensor:
        """For every position the number of digits that none of its units holds."""
        has = (tokens[:, :, None] == self.digits).float()
        return (torch.einsum("pq,nqd->npd", self.seen, has) == 0).sum(-1).float()


def evaluated(model: Denoiser, found: Puzzles, ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Accuracy of whole answers, passes, and the order of filling, for each way of decoding."""
    record: dict[str, Any] = {"puzzles": len(found), "blanks": float(found.blanks.mean())}
    for name, options in ways.items():
        result = filled(model, found, **options)
        right = found.solved(result.tokens)
        record[name] = {
            "accuracy": float(right.mean()),
            "interval": _interval(int(right.sum()), len(right)),
            "passes": float(result.passes.astype(np.float64).mean()),
            "by_blanks": _by_blanks(found, right),
        }
        if options.get("together", 1) == 1:
            record[name]["choices"] = _by_thirds(result, result.choices)
            record[name]["choices_of_masked_cells"] = _by_thirds(result, result.spread)
    return record


def _interval(hits: int, count: int, level: float = 0.95) -> list[float]:
    """Clopper–Pearson interval."""
    tail = (1 - level) / 2
    low = beta.ppf(tail, hits, count - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, count - hits) if hits < count else 1.0
    return [float(low), float(high)]


def _by_blanks(found: Puzzles, right: np.ndarray) -> list[dict[str, float]]:
    """Accuracy in four equal ranges of the numbers of blanks that occur."""
    edges = np.linspace(found.blanks.min(), found.blanks.max() + 1, 5).round().astype(int)
    rows = []
    for low, high in pairwise(edges):
        inside = (found.blanks >= low) & (found.blanks < high)
        if inside.any():
            share = float(right[inside].mean())
            rows.append({"from": int(low), "to": int(high) - 1, "accuracy": share,
                         "puzzles": int(inside.sum())})  # fmt: skip
    return rows


def _by_thirds(result: Filling, values: np.ndarray) -> list[float]:
    """Mean over the first, the middle and the last third of each row's passes."""
    share = np.arange(len(values))[:, None] / result.passes[None]
    return [
        float(np.nanmean(np.where((share >= i / 3) & (share < (i + 1) / 3), values, np.nan)))
        for i in range(3)
    ]
