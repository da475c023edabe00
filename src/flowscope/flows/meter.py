r"""The depth meter: step statistics of a whole vocabulary, layer by layer, beside the readout.

The meter keeps the last logits of its rows. Each layer it is handed the next ones, chunk by chunk,
and gives back what :func:`flowscope.flows.state_statistics` and
:func:`flowscope.flows.step_statistics` would say of them, in float32 or better, at a fraction of
the cost of the product that made the logits.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.eager import EagerPasses
from flowscope.flows.fused import FusedPasses
from flowscope.flows.steps import StateStatistics, StepStatistics, joined
from flowscope.flows.sums import Peak, StateSums, refuse_infinite
from flowscope.simplex.blocks import block_rows
from flowscope.workers import Workers

__all__ = ["DepthMeter"]

Mode: TypeAlias = Literal["eager", "compiled"]
Passes: TypeAlias = EagerPasses | FusedPasses
Result = TypeVar("Result")

# A compiled loop needs no scratch and has a price per call: its blocks are larger.
_COMPILED_BLOCKS = 4
# More workers than this would wait for the interpreter, which hands out the operations.
_MOST_WORKERS = 16


class DepthMeter:
    r"""Statistics of the states and steps of n rows over V outcomes.

    .. math:: z^0 \mapsto \text{state}, \qquad
              (z^{\ell}, z^{\ell+1}) \mapsto (\text{state}, \text{step})

    Parameters
    ----------
    rows : n, how many rows (tokens) are followed.
    vocabulary : V, how many outcomes each has.
    dtype : of the logits to come; kept as they are, computed in float32 (float64 stays).
    device : where the logits are.
    mode : "eager" runs plain tensor operations. "compiled" fuses them, which takes a C++ (on CPU)
        or Triton (on GPU) tool chain and some ten seconds once per process and vocabulary; where
        that fails the meter is eager and says so.

    Attributes
    ----------
    mode
        How it runs: "eager" or "compiled".
    fallback
        Why it is eager though "compiled" was asked for; None otherwise.

    Raises
    ------
    InvalidInputError
        If there is no row, fewer than two outcomes, or the dtype or the mode is none of those.

    Notes
    -----
    Memory n·V logits, and a few blocks that stay in cache. O(V) per row and layer, some 25 passes
    (eager) or three loops (compiled). Rows are independent: the chunks of a layer may come in any
    order and size. No gradients. From float32 logits every statistic is good to 1e-4 of itself and
    mostly to 1e-5, near a vertex and for steps of a thousandth of a nat as well.

    Examples
    --------
    >>> meter = DepthMeter(2, 3)
    >>> every = slice(None)
    >>> meter.start(every, torch.zeros(2, 3)).entropy
    tensor([1.0986, 1.0986], dtype=torch.float64)
    >>> state, step = meter.advance(every, torch.tensor([[3.0, 0.0, 0.0], [5.0, 5.0, 5.0]]))
    >>> step.total_variation
    tensor([0.5761, 0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        rows: int,
        vocabulary: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        mode: Mode = "eager",
    ):
        _check(rows, vocabulary, dtype, mode)
        self.fallback: str | None = None
        wide = torch.promote_types(dtype, torch.float32)
        with torch.inference_mode(False):
            self._logits = torch.empty(rows, vocabulary, dtype=dtype, device=device)
            self._block = min(rows, block_rows(self._logits))
            threads = torch.get_num_threads() if self._logits.is_cpu else 1
            self._workers = Workers(min(threads, -(-rows // self._block), _MOST_WORKERS))
            self._eager = [
                EagerPasses(self._block, vocabulary, wide, self._logits.device)
                for _ in range(self._workers.count)
            ]
            numbers = torch.empty(2, rows, dtype=torch.float64, device=device)
            places = torch.empty(rows, dtype=torch.int64, device=device)
            self._started = torch.zeros(rows, dtype=torch.bool)
        self._peak = Peak(numbers[0], places, numbers[1])
        self._fused = self._compiled(wide) if mode == "compiled" else None

    @property
    def mode(self) -> Mode:
        """How the meter runs."""
        return "eager" if self._fused is None else "compiled"

    def start(self, rows: slice, logits: Float[Tensor, "chunk V"]) -> StateStatistics:
        """Statistics of the first state of some rows, which becomes the start of their next step.

        Parameters
        ----------
        rows : which of the n rows; a slice without stride.
        logits : their logits, of the meter's dtype (or one that it holds exactly) and device.

        Raises
        ------
        InvalidInputError
            If the rows are not there, the shape, dtype or device is another, or a logit is not
            finite.
        """
        here = self._accepted(rows, logits)

        def read(passes: Passes, block: slice, part: Tensor) -> StateSums:
            sums = passes.state(part)
            self._keep(block, part, sums)
            return sums

        return joined(self._read(here, logits, read)).statistics()

    def advance(
        self, rows: slice, logits: Float[Tensor, "chunk V"]
    ) -> tuple[StateStatistics, StepStatistics]:
        """Statistics of the next state of some rows and of the step that led to it.

        Parameters
        ----------
        rows : which of the n rows; a slice without stride.
        logits : their new logits, as in :meth:`start`.

        Raises
        ------
        InvalidInputError
            As :meth:`start`, and if one of the rows was not started. Rows whose logits were refused
            must be started again.
        """
        here = self._accepted(rows, logits)
        self._check_started(here)

        def read(passes: Passes, block: slice, part: Tensor) -> tuple[StateSums, StepStatistics]:
            start = Peak(*(number[block] for number in self._peak))
            sums, step = passes.step(self._logits[block], part, start)
            self._keep(block, part, sums)
            return sums, step

        sums, steps = zip(*self._read(here, logits, read), strict=True)
        return joined(sums).statistics(), joined(steps)

    def _compiled(self, wide: torch.dtype) -> FusedPasses | None:
        def made(_: int, logits: Tensor) -> FusedPasses:
            with torch.inference_mode(False), torch.no_grad():
                return FusedPasses(logits.shape[1], logits.dtype, wide, logits.device)

        try:  # where it will run: code is compiled for the number of threads it finds
            return self._workers.each(made, [self._logits])[0]
        except Exception as error:  # a missing tool chain shows in as many ways as there are chains
            first_line = str(error).strip().partition("\n")[0]
            self.fallback = f"compilation failed with {type(error).__name__}: {first_line}"
            return None

    def _read(
        self, here: slice, logits: Tensor, read: Callable[[Passes, slice, Tensor], Result]
    ) -> list[Result]:
        """Results of all blocks in order; if one fails, none of the rows counts as started."""
        fused, first, self._started[here] = self._fused, here.start, False
        most = self._block if fused is None else _COMPILED_BLOCKS * self._block
        rounds = -(-len(logits) // (most * self._workers.count))
        # equal shares, so that no worker waits for the last
        size = -(-len(logits) // (rounds * self._workers.count))

        def work(worker: int, part: tuple[int, Tensor]) -> Result:
            begin, rows = first + part[0] * size, part[1].contiguous()
            passes = self._eager[worker] if fused is None or len(rows) == 1 else fused
            with torch.no_grad():  # a setting of the thread
                return read(passes, slice(begin, begin + len(rows)), rows)

        try:
            found = self._workers.each(work, list(enumerate(torch.split(logits, size))))
        except InvalidInputError:
            refuse_infinite(logits)  # a mean is not finite: say where, in the rows that were given
            raise
        self._started[here] = True
        return found

    def _keep(self, block: slice, part: Float[Tensor, "rows V"], sums: StateSums) -> None:
        self._logits[block].copy_(part)
        for kept, new in zip(self._peak, sums.peak, strict=True):
            kept[block] = new

    def _check_started(self, here: slice) -> None:
        missing = (~self._started[here]).nonzero()
        if len(missing):
            raise InvalidInputError(
                f"advance needs a state to step from; row {here.start + int(missing[0])} has none. "
                "Call start with the first logits of these rows."
            )

    def _accepted(self, rows: slice, logits: Tensor) -> slice:
        n, V = self._logits.shape
        begin, end, stride = rows.indices(n)
        if stride != 1 or end <= begin or (rows.stop or 0) > n:
            raise InvalidInputError(
                f"rows must be a slice without stride of the meter's {n} rows, and not empty; "
                f"found {rows}. Follow rows that lie side by side."
            )
        if tuple(logits.shape) != (end - begin, V):
            raise InvalidInputError(
                f"logits must have shape {(end - begin, V)} (rows, vocabulary); found "
                f"{tuple(logits.shape)}. Pass the logits of exactly the rows named."
            )
        held = self._logits
        exact = torch.promote_types(logits.dtype, held.dtype) == held.dtype
        if not (logits.is_floating_point() and exact and logits.device == held.device):
            raise InvalidInputError(
                f"logits must be on {held.device} and fit into {held.dtype}; found {logits.dtype} "
                f"on {logits.device}. Make the meter with the dtype and device of the logits."
            )
        return slice(begin, end)


def _check(rows: int, vocabulary: int, dtype: torch.dtype, mode: str) -> None:
    if rows < 1 or vocabulary < 2:
        raise InvalidInputError(
            f"A meter needs at least one row and two outcomes; found {rows} and {vocabulary}. "
            "A simplex of one outcome is a point: there is nothing to follow."
        )
    if not dtype.is_floating_point:
        raise InvalidInputError(
            f"dtype must be a real floating-point dtype; found {dtype}. Pass that of the logits."
        )
    if mode not in ("eager", "compiled"):
        raise InvalidInputError(f'mode must be "eager" or "compiled"; found {mode!r}.')
