"""The pass that keeps whole depth paths of a few tokens: input of adequacy and rotation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.models.prompts import Batch, Prompts
from flowscope.probes import (
    InputBatch,
    LogitReadout,
    PathProbe,
    Piece,
    Rows,
    TapProbe,
    tap_pass,
)
from flowscope.probes.layers.paths import Paths as ProbedPaths
from flowscope.records import Unavailable
from flowscope.tap import BlockPass, Chain, Operands, Tail

__all__ = ["PathReading", "Paths", "read_tokens", "sampled_paths", "target_tokens"]

# Hidden states kept, 128 MB in float32: fewer tokens of each prompt where a model is wide or
# prompts are many, though never fewer than four. The few looked at in full come on top.
_NUMBERS_KEPT = 2**25
_FEWEST = 4
_CLOSE = 384  # tokens looked at in full: whole laws over a vocabulary cost most of the time


@dataclass(frozen=True, kw_only=True, eq=False)
class Paths:
    """Depth paths of sampled tokens, and the output that reads them.

    Attributes
    ----------
    prompt, position
        Where each token is.
    hidden
        Its state after every block, layer 0 first: ``[n, L + 1, d]``, where the model is.
    close
        Rows of the tokens that are looked at in full: whole laws, not coordinates.
    between
        For those, the states between the writes of each block ``[close, L, writes − 1, d]``, or why
        there are none.
    readout
        From hidden states to logits.
    """

    prompt: NDArray[np.int64]
    position: NDArray[np.int64]
    hidden: Tensor
    close: NDArray[np.int64]
    between: Tensor | Unavailable
    readout: LogitReadout

    @property
    def layers(self) -> int:
        """L, the number of blocks."""
        return self.hidden.shape[1] - 1


class PathReading(TapProbe):
    """States of a few tokens per prompt at every layer; they stay in memory.

    Parameters
    ----------
    prompts
        How many prompts the batches hold; fewer tokens of each are kept when they are many.
    positions, close
        Tokens per prompt, and how many of them keep the states between their writes (fewer, and
        one at least, where that would be more than 384 in all).
    visible
        Whether tokens of a masked model that are not hidden are followed instead.
    operands
        What the output product reads, see `Tail.widened`.
    """

    prefix = None

    def __init__(
        self,
        *,
        prompts: int,
        positions: int,
        close: int,
        visible: bool = False,
        operands: Operands = "exact",
    ) -> None:
        self._prompts, self._positions, self._close = prompts, positions, close
        self._visible, self._operands = visible, operands
        self._batch: InputBatch | None = None
        self._probes: tuple[PathProbe, PathProbe] | None = None
        self._tail: Tail | Unavailable = Unavailable("no block was seen")

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Receive the anatomy."""
        self._chain, self._tail = chain, tail

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""
        self._batch = batch

    def block(self, event: BlockPass) -> None:
        """Take the states of one block; the first block decides how many tokens fit."""
        if isinstance(self._tail, Unavailable) or not self._tail.positionwise:
            return
        if self._probes is None:
            self._probes = self._made(event.hidden_in.shape[-1])
        for probe in self._probes:
            if event.site.index == 0:
                assert self._batch is not None
                probe.begin(Rows.of_mask(self._batch.prompts, self._rows(self._batch)))
            probe.update(event)

    def _rows(self, batch: InputBatch) -> Tensor:
        return batch.mask & ~batch.named if self._visible else batch.named

    def _made(self, width: int) -> tuple[PathProbe, PathProbe]:
        size = (len(self._chain) + 1) * width * self._prompts
        positions = max(min(self._positions, _NUMBERS_KEPT // size), _FEWEST)
        close = min(self._close, positions, max(_CLOSE // self._prompts, 1))
        return PathProbe(positions=positions), PathProbe(positions=close, between=True)

    def end(self) -> Piece:
        """Finish a batch; its states stay in the probe and go into no shard."""
        for probe in self._probes or ():
            probe.end()
        return Piece()

    @torch.no_grad()
    def paths(self) -> Paths | Unavailable:
        """Return the paths of all batches and forget them, or say why a token has none."""
        tail = self._tail
        if isinstance(tail, Unavailable):
            return tail
        if not tail.positionwise:
            return Unavailable(
                "the model pools its positions before the output: a token has no path"
            )
        assert self._probes is not None
        wide, near = (probe.paths() for probe in self._probes)
        self._probes = None
        return Paths(
            prompt=wide.prompt,
            position=wide.position,
            hidden=wide.hidden,
            close=_places(wide, near),
            between=Unavailable("the writes of its blocks cannot be told apart")
            if near.between is None
            else near.between,
            readout=LogitReadout(tail, self._operands),
        )


def sampled_paths(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    prompts: int,
    positions: int,
    close: int,
    advance: Callable[[int], None] = lambda prompts: None,
) -> Paths | Unavailable:
    """Paths of at most ``positions`` tokens per prompt, ``close`` of them to be looked at in full.

    Parameters
    ----------
    model, batches
        What, on what.
    prompts, positions, close
        As `PathReading` takes them.
    advance
        Called with the number of prompts after every batch.
    """
    reading = PathReading(prompts=prompts, positions=positions, close=close)
    tap_pass(model, batches, {"paths": reading}, advance=advance)
    return reading.paths()


def _places(wide: ProbedPaths, near: ProbedPaths) -> NDArray[np.int64]:
    """Rows of the near paths among the wide ones; both are sorted by prompt and position."""
    step = int(max(wide.position.max(), 0)) + 1
    where = [paths.prompt.astype(np.int64) * step + paths.position for paths in (wide, near)]
    found: NDArray[np.int64] = np.searchsorted(where[0], where[1])
    return found


def read_tokens(paths: Paths, prompts: Prompts) -> NDArray[np.int64]:
    """Token that the model reads at each position; the mask token where the token is hidden."""
    return _at_positions(paths, [prompts.at(number).ids for number in range(len(prompts))])


def target_tokens(paths: Paths, prompts: Prompts) -> NDArray[np.int64]:
    """Token that each position is to name; −1 where there is none."""
    return _at_positions(paths, [prompts.at(number).targets for number in range(len(prompts))])


def _at_positions(paths: Paths, tokens: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    pairs = zip(paths.prompt, paths.position, strict=True)
    return np.array([tokens[prompt][position] for prompt, position in pairs], np.int64)
