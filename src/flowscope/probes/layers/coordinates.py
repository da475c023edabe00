r"""A few coordinates of a whole vocabulary: where a flow of logits is fitted, and how it is read.

With $z$ the logits of a state, centred over the vocabulary, and $B$ their $r$ leading principal
axes, a state has coordinates $y = B^\top z$. A flow that moves $y$ from $y^{\ell_0}$ to $y(t)$ says

$$ z(t) = z^{\ell_0} + B\,(y(t) - y^{\ell_0}), $$

so that what lies outside the axes is carried unchanged and zero drift is persistence. Where the
tail ends in a product, axes and coordinates come from the states it multiplies, through the Gram
matrix; elsewhere (a soft-cap, a scale) the logits of a sample are streamed through a block power
iteration. Logits are never kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.gram import centred_gram, principal_axes, quadratic_variation_gram
from flowscope.probes.layers.readouts import rows_at_once
from flowscope.records import Unavailable
from flowscope.tap import LinearOutput, Operands, Tail

__all__ = ["LogitCoordinates", "LogitReadout"]

_LOGITS_AT_ONCE = 2**22
_WIDENED = 2**26  # weights widened at a time
_AXES_FROM = 4096  # states the axes are found from
_POWERS, _SPARE = 6, 8


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitCoordinates:
    """Principal axes of centred logits, and the maps from states to them and back.

    Attributes
    ----------
    axes
        $B$, ``[V, r]`` in float32.
    shares
        How much of the variance of the logits each axis holds.
    route
        ``"gram"`` or ``"streamed"``: how they were found.
    """

    axes: Float[Tensor, "V r"]
    shares: NDArray[np.float64]
    route: str
    _reduce: Callable[[Tensor], Tensor]

    def reduced(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch r"]:
        """Coordinates y of hidden states, in float64 on the device of the axes."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        pieces = [self._reduce(piece).double() for piece in torch.split(rows, self._chunk)]
        return torch.cat(pieces).reshape(*hidden.shape[:-1], self.axes.shape[1])

    def lifted(self, shift: Float[Tensor, "*batch r"]) -> Float[Tensor, "*batch V"]:
        """What a shift of coordinates adds to the logits."""
        return shift.to(self.axes) @ self.axes.mT

    @property
    def _chunk(self) -> int:
        return rows_at_once(len(self.axes), self.axes.device, _LOGITS_AT_ONCE)


class LogitReadout:
    """The output of a model from any hidden state, and coordinates of its logits.

    Parameters
    ----------
    tail
        A position-wise tail that leads to logits.
    operands
        What the output product reads, see `Tail.widened`.

    Raises
    ------
    InvalidInputError
        When the tail mixes positions.
    """

    def __init__(self, tail: Tail, operands: Operands = "exact") -> None:
        if not tail.positionwise:
            raise InvalidInputError(
                "coordinates of logits need a tail that reads each position on its own; this one "
                "mixes positions (it pools or reshapes them)."
            )
        self._tail = tail.widened(operands)
        self.width, self.device = tail.width, tail.device

    def logits(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch V"]:
        """Logits of each row, in float32 or better, where the weights of the output are."""
        return self._tail.rows(hidden.to(self.device))

    def coordinates(self, hidden: Float[Tensor, "n d"], rank: int) -> LogitCoordinates:
        """Principal coordinates of the logits of these states (of an even sample, if many)."""
        rows = hidden[:: -(-len(hidden) // _AXES_FROM)].to(self.device)
        output = self._output
        if isinstance(output, Unavailable):
            return self._streamed(rows, rank)
        x = output.states(rows).double()
        found = principal_axes(torch.cov(x.mT), self._gram, rank)
        axes = _centred_product(output.weight, found.combination.to(torch.float32))
        offset = (output.bias.to(axes) @ axes).double()
        return LogitCoordinates(
            axes=axes,
            shares=found.shares.cpu().numpy(),
            route="gram",
            _reduce=lambda h: output.states(h.to(self.device)).double() @ found.reduction + offset,
        )

    def squared_steps(
        self, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n"]:
        """Squared length of the step of the centred logits between states, in float64.

        It counts the whole step: what lies inside some coordinates, and what lies outside.
        """
        output = self._output
        if not isinstance(output, Unavailable):
            x = [output.states(rows.to(self.device)).double() for rows in (before, after)]
            return quadratic_variation_gram(x[1] - x[0], self._gram)
        pairs = zip(self._pieces(before), self._pieces(after), strict=True)
        return torch.cat([(b - a).double().square().sum(-1) for a, b in pairs])

    @cached_property
    def _output(self) -> LinearOutput | Unavailable:
        return self._tail.linear_output()

    @cached_property
    def _gram(self) -> Tensor:
        assert isinstance(self._output, LinearOutput)
        return centred_gram(self._output.weight)

    def _centred(self, rows: Tensor) -> Tensor:
        z = self.logits(rows)
        return z - z.mean(-1, keepdim=True)

    def _pieces(self, rows: Tensor) -> Iterator[Tensor]:
        for piece in torch.split(rows, rows_at_once(self.width, self.device, _LOGITS_AT_ONCE)):
            yield self._centred(piece)

    def _streamed(self, rows: Tensor, rank: int) -> LogitCoordinates:
        """Axes by block power iteration on the covariance, one chunk of logits at a time."""
        mean = sum((z.sum(0) for z in self._pieces(rows)), torch.zeros(())) / len(rows)
        total = sum(float((z - mean).square().sum()) for z in self._pieces(rows))
        if not total > 0:
            raise InvalidInputError("the logits must vary to have principal axes; they do not.")
        width = min(rank + _SPARE, self.width - 1, len(rows))
        generator = torch.Generator(rows.device).manual_seed(0)
        block = torch.randn(self.width, width, generator=generator, device=rows.device)
        spread = torch.zeros(width, width, device=rows.device)
        for _ in range(_POWERS):
            block = torch.linalg.qr(block).Q
            spread.zero_()
            moved = torch.zeros_like(block)
            for z in self._pieces(rows):
                seen = (z - mean) @ block
                spread += seen.mT @ seen
                moved += (z - mean).mT @ seen
            held, block = block, moved
        values, vectors = torch.linalg.eigh(spread.double())
        kept = int(min(rank, int((values > 1e-9 * total).sum())))
        axes = held @ vectors[:, -kept:].flip(-1).to(held)
        return LogitCoordinates(
            axes=axes,
            shares=(values[-kept:].flip(-1) / total).cpu().numpy(),
            route="streamed",
            _reduce=lambda h: self._centred(h) @ axes,
        )


def _centred_product(U: Float[Tensor, "V d"], M: Float[Tensor, "d r"]) -> Float[Tensor, "V r"]:
    """U less its mean row, times M, in float32; a half-precision U is widened in pieces."""
    mean = U.mean(0, dtype=torch.float64)
    if U.dtype in (torch.float32, torch.float64):
        return (U - mean.to(U)).to(torch.float32) @ M
    rows = max(1, _WIDENED // U.shape[1])
    return torch.cat([(part.float() - mean.float()) @ M for part in torch.split(U, rows)])
