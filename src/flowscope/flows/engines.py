"""How a meter reads blocks of rows: plain, compiled, or by sweeps of Triton.

An engine holds what the last state of each row has left for the next step; the logits themselves
stay with the meter. Mode "eager" is plain tensor operations: on the CPU within scratch that stays
in cache, elsewhere in large pieces that wait for nothing.
"""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from flowscope.flows.eager import EagerPasses
from flowscope.flows.fused import FusedPasses
from flowscope.flows.readings import Reading, SummedReading, SweptReading
from flowscope.flows.sums import Peak
from flowscope.flows.swept import SweptPasses, raw_sums
from flowscope.simplex.blocks import block_rows
from flowscope.workers import Workers

__all__ = ["BlockEngine", "Engine", "Keep", "Mode", "SweepEngine"]

Mode: TypeAlias = Literal["eager", "compiled", "triton"]
Keep: TypeAlias = Callable[[slice, Tensor], None]
"""Called with rows and their new logits, once the old ones are not needed any more."""

# A compiled loop needs no scratch and has a price per call: its blocks are larger.
_COMPILED_BLOCKS = 4
# More workers than this would wait for the interpreter, which hands out the operations.
_MOST_WORKERS = 16


class Engine(Protocol):
    """Reads the next state of some rows."""

    @property
    def mode(self) -> Mode:
        """How it runs."""

    def read(self, here: slice, x: Tensor | None, y: Tensor, keep: Keep) -> Reading:
        """Read the states y of some rows, and the steps x → y unless x is None."""


class BlockEngine:
    """Blocks of rows by :class:`EagerPasses` or :class:`FusedPasses`, with workers on the CPU.

    Raises whatever the compiler raises, if it is to be compiled.
    """

    def __init__(self, logits: Tensor, *, compiled: bool) -> None:
        rows, vocabulary = logits.shape
        wide = torch.promote_types(logits.dtype, torch.float32)
        self._block = min(rows, block_rows(logits))
        threads = torch.get_num_threads() if logits.is_cpu else 1
        self._workers = Workers(min(threads, -(-rows // self._block), _MOST_WORKERS))
        self._eager: list[EagerPasses] = []
        if logits.is_cpu:
            self._eager = [
                EagerPasses(self._block, vocabulary, wide, logits.device)
                for _ in range(self._workers.count)
            ]
        numbers = torch.empty(2, rows, dtype=torch.float64, device=logits.device)
        places = torch.empty(rows, dtype=torch.int64, device=logits.device)
        self._peak = Peak(numbers[0], places, numbers[1])
        self._plain: FusedPasses | None = None
        self._fused: FusedPasses | None = None
        made = (vocabulary, logits.dtype, wide, logits.device)
        if not logits.is_cpu:
            self._plain = FusedPasses(*made, compiled=False)
        if compiled:  # where it will run: code is compiled for the number of threads it finds
            self._fused = self._workers.each(lambda _, item: _compiled(*item), [made])[0]

    @property
    def mode(self) -> Mode:
        """How it runs."""
        return "eager" if self._fused is None else "compiled"

    def read(self, here: slice, x: Tensor | None, y: Tensor, keep: Keep) -> SummedReading:
        """Read the states y of some rows, and the steps x → y unless x is None."""
        most = self._block if self._fused is None else _COMPILED_BLOCKS * self._block
        rounds = -(-len(y) // (most * self._workers.count))
        # equal shares, so that no worker waits for the last
        size = -(-len(y) // (rounds * self._workers.count))

        def work(worker: int, part: tuple[int, Tensor]) -> SummedReading:
            first, new = part[0] * size, part[1].contiguous()
            passes = self._passes(worker, len(new))
            rows = slice(here.start + first, here.start + first + len(new))
            step = None
            with torch.no_grad():  # a setting of the thread
                if x is None:
                    sums = passes.state(new)
                else:
                    start = Peak(*(number[rows] for number in self._peak))
                    sums, step = passes.step(x[first : first + len(new)], new, start)
                keep(rows, new)
                for kept, found in zip(self._peak, sums.peak, strict=True):
                    kept[rows] = found
            return SummedReading(sums, step)

        parts = self._workers.each(work, list(enumerate(torch.split(y, size))))
        return parts[0].beside(parts[1:])

    def _passes(self, worker: int, rows: int) -> EagerPasses | FusedPasses:
        if self._fused is not None and rows > 1:
            return self._fused
        return self._eager[worker] if self._plain is None else self._plain


def _compiled(
    vocabulary: int, dtype: torch.dtype, wide: torch.dtype, device: torch.device
) -> FusedPasses:
    with torch.inference_mode(False), torch.no_grad():
        return FusedPasses(vocabulary, dtype, wide, device)


class SweepEngine:
    """All rows at once by :class:`SweptPasses`; raises whatever Triton raises."""

    mode: Mode = "triton"

    def __init__(self, logits: Tensor) -> None:
        self._passes = SweptPasses(logits.shape[1], logits.dtype, logits.device)
        self._last = raw_sums(logits)

    def read(self, here: slice, x: Tensor | None, y: Tensor, keep: Keep) -> SweptReading:
        """Read the states y of some rows, and the steps x → y unless x is None."""
        raw = raw_sums(y)
        if x is None:
            self._passes.state(y, raw)
        else:
            self._passes.step(x, y, self._last[:, here], raw)
        self._last[:, here] = raw
        keep(here, y)
        return SweptReading(raw)
