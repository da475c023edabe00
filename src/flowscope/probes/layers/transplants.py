"""Steps of a few tokens per prompt beside the steps that other tokens would have lent them.

At each block the logits of the chosen tokens are read as `DepthProbe` reads them. Every token keeps
how far its own step moved it, and how far the steps of two other tokens of its prompt, laid out by
ranking, would have moved it (:func:`flowscope.simplex.transplanted_steps`).
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.probes.layers.depth import Readout, Rows
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.simplex import TransplantedSteps, transplanted_steps
from flowscope.tap import BlockPass

__all__ = ["TransplantProbe", "drawn_donors", "spaced_rows"]

DONORS = 2
_FIELDS = ("tail_mass", "total_variation", "transplanted", "half_oscillation")


def spaced_rows(prompts: NDArray[np.int64], mask: Tensor, *, tokens: int = 24) -> Rows:
    """At most so many positions of each prompt, evenly spaced among those that a mask keeps.

    A prompt with fewer than three positions has no two others to draw from, and is left out.
    """
    chosen = torch.zeros(mask.shape, dtype=torch.bool)
    for row, valid in enumerate(mask.cpu().bool()):
        places = valid.nonzero()[:, 0]
        if min(len(places), tokens) > DONORS:
            spaced = np.linspace(0, len(places) - 1, min(tokens, len(places))).round()
            chosen[row, places[torch.from_numpy(spaced).long()]] = True
    return Rows.of_mask(prompts, chosen)


def drawn_donors(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Two different donors for each of ``count`` tokens, neither the token itself.

    Examples
    --------
    >>> drawn_donors(3, np.random.default_rng(0)).sum(1)  # the two others
    array([3, 2, 1])
    """
    first = rng.integers(1, count, count)
    second = 1 + (first - 1 + rng.integers(1, count - 1, count)) % (count - 1)
    return (np.arange(count)[:, None] + np.stack([first, second], 1)) % count


class TransplantProbe(Reducer):
    """Reduces block passes to own and transplanted steps, per token and step.

    ``update`` takes the passes of one chain and stream in order; ``begin`` and ``end`` bracket a
    batch. `arrays` has one row per token: ``tail_mass`` (before the step), ``total_variation`` and
    ``half_oscillation`` ``[rows, L]``, ``transplanted`` ``[rows, L, 2]``. Donors are drawn anew at
    each step from a generator that knows the seed, the prompt and the step only, so that the way
    prompts are batched changes nothing.

    Parameters
    ----------
    readout
        From chosen hidden states to logits (`positions_readout`).
    seed
        Of the donors.
    """

    keys = ("prompt", "position")

    def __init__(self, readout: Readout, *, seed: int = 0) -> None:
        super().__init__()
        self._readout, self._seed = readout, seed
        self._rows: Rows | None = None
        self._logits: list[Tensor] = []
        self._columns: dict[str, list[Tensor]] = {}

    def begin(self, rows: Rows) -> None:
        """Start a batch with the tokens of `spaced_rows`; its passes follow."""
        self._rows, self._logits, self._columns = rows, [], {name: [] for name in _FIELDS}
        self._groups = [np.flatnonzero(rows.prompt == p) for p in np.unique(rows.prompt)]

    def update(self, event: BlockPass) -> None:
        """Read one block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("A transplant probe must begin a batch before it is updated.")
        if not self._groups:
            return
        if event.site.index == 0:
            self._logits = self._read(event.hidden_in)
        logits = self._read(event.hidden_out)
        steps = [
            self._transplanted(number, event.site.index, before, after)
            for number, (before, after) in enumerate(zip(self._logits, logits, strict=True))
        ]
        for name in _FIELDS:
            column = torch.cat([getattr(step, name) for step in steps])
            self._columns[name].append(column.cpu())
        self._logits = logits

    def end(self) -> None:
        """Close the batch; only its scalars stay."""
        assert self._rows is not None
        if self._groups:
            order = np.concatenate(self._groups)
            arrays: Arrays = {
                name: torch.stack(columns, 1).numpy() for name, columns in self._columns.items()
            }
            arrays["prompt"] = self._rows.prompt[order]
            arrays["position"] = self._rows.position[order]
            self.take(arrays)
        self._rows, self._logits, self._columns = None, [], {}

    def _read(self, hidden: Tensor) -> list[Tensor]:
        """Logits of the chosen tokens, prompt by prompt."""
        assert self._rows is not None
        chosen = hidden[self._rows.chosen.to(hidden.device)].detach()
        chosen = chosen.to(torch.promote_types(hidden.dtype, torch.float32))
        return [self._readout(chosen[group]) for group in self._groups]

    def _transplanted(
        self, number: int, step: int, before: Tensor, after: Tensor
    ) -> TransplantedSteps:
        assert self._rows is not None
        prompt = int(self._rows.prompt[self._groups[number][0]])
        rng = np.random.default_rng([self._seed, prompt, step])
        return transplanted_steps(before, after, drawn_donors(len(before), rng))
