"""Steps of a few tokens per prompt beside the steps that other tokens would have lent them.

At each block the logits of the chosen tokens are read as `DepthProbe` reads them. Every token keeps
how far its own step moved it, and how far the steps of two other tokens of its prompt, laid out by
ranking, would have moved it (:func:`flowscope.simplex.transplanted_steps`).
"""

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.flows.lent import LentSteps, joined_steps, lent_steps
from flowscope.flows.swept import SweptPasses, sweeps_run
from flowscope.probes.layers.depth import DepthProbe, Rows
from flowscope.probes.layers.readouts import Readout
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
        self._states: list[Tensor] = []
        self._steps: list[_Steps] = []
        self._passes: SweptPasses | None = None
        self._lender: DepthProbe | None = None
        self._places: Tensor | None = None

    def begin(self, rows: Rows, lender: DepthProbe | None = None) -> None:
        """Start a batch with the tokens of `spaced_rows`; its passes follow.

        ``lender`` hears of the same passes before this probe: on a GPU its logits are taken, which
        are those of these rows too, where it holds them.
        """
        self._rows, self._states, self._steps = rows, [], []
        self._lender, self._places = lender, None
        self._groups = [np.flatnonzero(rows.prompt == p) for p in np.unique(rows.prompt)]
        self._order = torch.from_numpy(np.concatenate([*self._groups, np.zeros(0, np.int64)]))

    def update(self, event: BlockPass) -> None:
        """Read one block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("A transplant probe must begin a batch before it is updated.")
        if not self._groups:
            return
        if event.site.index == 0:
            self._states = self._read(event.hidden_in, 0)
        before, after = self._states, self._read(event.hidden_out, event.site.index + 1)
        donors = [self._donors(group, event.site.index) for group in self._groups]
        self._steps.append(self._transplanted(before, after, donors))
        self._states = after

    def end(self) -> None:
        """Close the batch; only its scalars stay."""
        assert self._rows is not None
        if self._groups:
            arrays: Arrays = self._read_steps()
            order = self._order.numpy()
            arrays["prompt"] = self._rows.prompt[order]
            arrays["position"] = self._rows.position[order]
            self.take(arrays)
        self._rows, self._states, self._steps = None, [], []
        self._lender = self._places = None

    def _read(self, hidden: Tensor, state: int) -> list[Tensor]:
        """Logits of the chosen tokens: prompt by prompt on the CPU, elsewhere at once."""
        assert self._rows is not None
        if not hidden.is_cpu and (lent := self._lent(state)) is not None:
            return [lent]
        chosen = self._rows.taken(hidden)
        chosen = chosen.to(torch.promote_types(hidden.dtype, torch.float32))
        if chosen.is_cpu:
            return [self._readout(chosen[group]) for group in self._groups]
        return [self._readout(chosen[self._order.to(chosen.device, non_blocking=True)])]

    def _lent(self, state: int) -> Tensor | None:
        """Logits of the chosen tokens that another probe has read already."""
        if self._lender is None:
            return None
        if self._places is None:
            assert self._rows is not None
            places = self._lender.places_of(self._rows)
            if places is None:
                self._lender = None
                return None
            self._places = places[self._order]
        found = self._lender.held_logits(state, self._places)
        if found is not None:
            self._places = self._places.to(found.device)  # once
        return found

    def _donors(self, group: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        assert self._rows is not None
        prompt = int(self._rows.prompt[group[0]])
        return drawn_donors(len(group), np.random.default_rng([self._seed, prompt, step]))

    def _transplanted(
        self, before: list[Tensor], after: list[Tensor], donors: list[NDArray[np.int64]]
    ) -> "_Steps":
        if len(before) == len(donors) and before[0].is_cpu:
            parts = zip(before, after, donors, strict=True)
            return [transplanted_steps(x, y, chosen) for x, y, chosen in parts]
        sizes = np.cumsum([0, *(len(group) for group in self._groups)])
        together = np.concatenate([d + size for d, size in zip(donors, sizes, strict=False)])
        chosen = torch.from_numpy(together).to(before[0].device, non_blocking=True)
        passes = self._swept(before[0])
        if passes is None:
            return [transplanted_steps(before[0], after[0], chosen)]
        return lent_steps(before[0], after[0], chosen, passes)

    def _swept(self, logits: Tensor) -> SweptPasses | None:
        """Sweeps for these logits; None where they cannot run, which the depth probe says."""
        if self._passes is None and sweeps_run(logits):
            self._passes = SweptPasses(logits.shape[-1], logits.dtype, logits.device)
        return self._passes

    def _read_steps(self) -> Arrays:
        """Numbers of all tokens and steps, on the CPU."""
        swept = [step for step in self._steps if isinstance(step, LentSteps)]
        if swept:
            together = joined_steps(swept)
            return {name: getattr(together, name).cpu().numpy() for name in _FIELDS}
        columns: dict[str, list[Tensor]] = {name: [] for name in _FIELDS}
        for parts in self._steps:
            assert not isinstance(parts, LentSteps)
            for name in _FIELDS:
                columns[name].append(torch.cat([getattr(part, name) for part in parts]))
        return {name: torch.stack(parts, 1).cpu().numpy() for name, parts in columns.items()}


_Steps: TypeAlias = LentSteps | list[TransplantedSteps]
