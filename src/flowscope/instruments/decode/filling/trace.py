"""A record of every pass of the reference, and what rules that commit once would have done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.decode.answers import closed
from flowscope.instruments.decode.filling.laws import Laws
from flowscope.instruments.decode.filling.steps import Step
from flowscope.instruments.decode.policies.protocol import OnceRule
from flowscope.models.infilling.templates import Canvas

__all__ = ["RECORDED", "Recorder", "Trace", "blank_places"]

Array = NDArray[np.float32]

RECORDED = (
    "first", "second", "gap", "entropy", "mobility", "divergence", "variation", "cool_divergence",
    "cool_margin",
)  # fmt: skip
"""Numbers of a law that are recorded, beside its leading token."""


def blank_places(blank: Tensor) -> Tensor:
    """Positions of the blanks of each row, ``[rows, most blanks]``; −1 behind the last."""
    most = int(blank.sum(1).max())
    order = blank.long().sort(dim=1, descending=True, stable=True).indices[:, :most]
    there = torch.arange(most, device=blank.device) < blank.sum(1, keepdim=True)
    return order.masked_fill(~there, -1)


class Recorder:
    """Listens to a filling and keeps the law of every blank in every pass it is masked in."""

    def __init__(self, canvas: Canvas) -> None:
        self._places = blank_places(canvas.blank)
        self._passes: list[dict[str, NDArray[np.generic]]] = []

    def __call__(self, step: Step, rows: Tensor) -> None:
        """Record one pass."""
        places = self._places[rows]
        kept: dict[str, NDArray[np.generic]] = {}
        for name in ("top", *RECORDED):
            values = getattr(step.laws, name).gather(1, places.clamp_min(0))
            lost = -1 if name == "top" else torch.nan
            dtype = torch.int32 if name == "top" else torch.float32
            every = torch.full(self._places.shape, lost, dtype=dtype)
            every[rows.cpu()] = values.masked_fill(places < 0, lost).to("cpu", dtype)
            kept[name] = every.numpy()
        self._passes.append(kept)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Every number as ``[passes, rows, blanks]``."""
        names = ("top", *RECORDED)
        return {name: np.stack([one[name] for one in self._passes]) for name in names}


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Every pass of the reference on some prompts; blanks in the order of their positions.

    Attributes
    ----------
    top
        Leading token of each blank, ``[passes, rows, blanks]``; −1 where it is not masked.
    laws
        Numbers of the laws by name, NaN where a blank is not masked.
    final, region
        What the reference filled in, and blanks that count as the answer, ``[rows, blanks]``; −1
        and False behind the last blank.
    planned
        Passes that were planned for each row.
    eos
        Token that ends an answer; None ends nothing.
    """

    top: NDArray[np.int32]
    laws: dict[str, Array]
    final: NDArray[np.int32]
    region: NDArray[np.bool_]
    planned: NDArray[np.int64]
    eos: int | None = None

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Whether a blank was masked in a pass."""
        return self.top >= 0

    @property
    def passes(self) -> NDArray[np.int64]:
        """Passes of each row."""
        return np.asarray(self.masked.any(2).sum(0), np.int64)

    @property
    def fills(self) -> NDArray[np.int32]:
        """Answers if all were filled in a pass, ``[passes, rows, blanks]``."""
        return np.where(self.masked, self.top, self.final[None])

    @property
    def same(self) -> NDArray[np.bool_]:
        """Whether filling all in a pass gives the answer of the reference, ``[passes, rows]``."""
        fills, final = (closed(x, self.final >= 0, self.eos) for x in (self.fills, self.final))
        same: NDArray[np.bool_] = ((fills == final) | ~self.region).all(2)
        return same

    def fired(self, rule: OnceRule) -> NDArray[np.int64]:
        """Pass, from 0, in which a rule fills all; the number of passes where it never does."""
        first = self.passes.copy()
        waiting = np.ones(len(first), bool)
        trail: list[Laws] = []
        region, planned = (torch.from_numpy(x.copy()) for x in (self.region, self.planned))
        for number in range(len(self.top)):
            trail = [*trail, self._laws(number)][-rule.patience :]
            masked = torch.from_numpy(self.masked[number])
            active = masked.any(1)
            step = Step(
                trail=trail, masked=masked, region=region, open=masked, best=masked,
                score=trail[-1].first, passes=torch.full((len(first),), number + 1),
                planned=planned,
            )  # fmt: skip
            fires = (rule.fires(step) & active).numpy() & waiting
            first[fires], waiting = number, waiting & ~fires
        return first

    def _laws(self, number: int) -> Laws:
        values = {
            name: torch.from_numpy(self.laws[name][number].astype(np.float64)) for name in RECORDED
        }
        return Laws(top=torch.from_numpy(self.top[number].astype(np.int64)), **values)
