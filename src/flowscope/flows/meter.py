r"""The depth meter: step statistics of a whole vocabulary, layer by layer, beside the readout.

The meter keeps the last logits of its rows. Each layer it is handed the next ones, chunk by chunk,
and gives back what :func:`flowscope.flows.state_statistics` and
:func:`flowscope.flows.step_statistics` would say of them, in float32 or better, at a fraction of
the cost of the product that made the logits.
"""

import warnings
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError, MeasureWarning
from flowscope.flows.engines import BlockEngine, Engine, Mode, SweepEngine
from flowscope.flows.readings import Reading, collected
from flowscope.flows.steps import StateStatistics, StepStatistics
from flowscope.flows.sums import check_means, refuse_infinite

__all__ = ["DepthMeter"]

# Rows of an accelerator begin at multiples of so many numbers: wide loads need that.
_ALIGNED = 64
_said: set[str] = set()


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
    mode : "auto" takes "triton" on a CUDA device and "eager" elsewhere. "eager" runs plain tensor
        operations. "compiled" fuses them, which takes a C++ (on CPU) or Triton (on GPU) tool chain
        and some ten seconds once per process and vocabulary. "triton" runs a kernel of our own,
        for logits up to float32. Where a tool chain fails the meter is eager and says so.

    Attributes
    ----------
    mode
        How it runs: "eager", "compiled" or "triton".
    fallback
        Why it is eager though something else was asked for; None otherwise.

    Raises
    ------
    InvalidInputError
        If there is no row, fewer than two outcomes, or the dtype or the mode is none of those.

    Notes
    -----
    Memory n·V logits, twice that with :meth:`room`, and a few blocks. O(V) per row and layer, some
    25 passes (eager), three loops (compiled) or two (triton). Rows are independent: the chunks of a
    layer may come in any order and size. No gradients. From float32 logits every statistic is good
    to 1e-4 of itself and mostly to 1e-5, near a vertex and for steps of a thousandth of a nat as
    well. One exception: near a vertex, a step that leaves the leading logits as they are bit for
    bit (bfloat16 logits may) changes the mass of the others by less than float32 holds; its total
    variation, below 1e-8, may then be read too small.

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
        mode: Mode | Literal["auto"] = "auto",
    ):
        _check(rows, vocabulary, dtype, mode)
        self.fallback: str | None = None
        self._held = [_buffer(rows, vocabulary, dtype, torch.device(device))]
        self._side = np.zeros(rows, np.int64)  # which buffer holds the logits of each row
        self._started = np.zeros(rows, np.bool_)
        self._kept = np.zeros(rows, np.bool_)  # whether the other buffer holds the state before
        self._path: list[list[tuple[int, Reading]]] = []
        self._reached = np.zeros(rows, np.int64)  # states of each row in the path
        self._engine = self._chosen(mode)

    @property
    def mode(self) -> Mode:
        """How the meter runs."""
        return self._engine.mode

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self._held[0].device

    @property
    def rows(self) -> int:
        """How many rows are followed."""
        return len(self._side)

    def fits(self, rows: int, vocabulary: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether the meter was made for this, so that no other is needed."""
        held = self._held[0]
        return (*held.shape, held.dtype, held.device) == (rows, vocabulary, dtype, device)

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
        return self._read(here, logits, first=True, wait=True).states

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
        found = self._read(here, logits, first=False, wait=True)
        return found.states, found.steps

    def record(self, rows: slice, logits: Float[Tensor, "chunk V"]) -> None:
        """Read the next state of some rows, the first one or another; :meth:`recorded` says it.

        On a CUDA device nothing is waited for.

        Parameters
        ----------
        rows, logits : as in :meth:`start`. A chunk holds rows with equally many states so far.

        Raises
        ------
        InvalidInputError
            As :meth:`start`; on a CUDA device a logit that is not finite is met by
            :meth:`recorded`.
        """
        here = self._accepted(rows, logits)
        state = int(self._reached[here.start])
        found = self._read(here, logits, first=state == 0, wait=not logits.is_cuda)
        self._path.extend([] for _ in range(state + 1 - len(self._path)))
        self._path[state].append((here.start, found))
        self._reached[here] += 1

    def recorded(self) -> tuple[StateStatistics, StepStatistics]:
        """Statistics of all recorded states ``[rows, states]`` and steps ``[rows, states - 1]``.

        They are on the device of the logits. The record is empty afterwards.

        Raises
        ------
        InvalidInputError
            If a logit was not finite, or fewer than two states were recorded.

        Examples
        --------
        >>> meter = DepthMeter(1, 2)
        >>> for z in (torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])):
        ...     meter.record(slice(None), z)
        >>> states, steps = meter.recorded()
        >>> states.entropy.shape, steps.first_order
        (torch.Size([1, 2]), tensor([[0.2500]], dtype=torch.float64))
        """
        if len(self._path) < 2:
            raise InvalidInputError(
                f"a path has at least two states; {len(self._path)} were recorded. Call record "
                "with the logits of each layer."
            )
        whole = []
        for parts in self._path:
            ordered = [reading for _, reading in sorted(parts, key=lambda part: part[0])]
            whole.append(ordered[0].beside(ordered[1:]) if len(ordered) > 1 else ordered[0])
        self._path, self._reached[:] = [], 0
        states, steps, means = collected(whole)
        bad = ~means.isfinite()
        if bool(bad.any()):
            row, layer = bad.nonzero()[0].tolist()
            raise InvalidInputError(
                f"logits must be finite, and their sums; those of row {row} at state {layer} are "
                "not. Look for the overflow upstream, or restrict to the outcomes that are not "
                "masked."
            )
        return states, steps

    def room(self, rows: slice) -> Float[Tensor, "chunk V"]:
        """Where the next logits of some rows can be written, so that they need not be copied.

        Parameters
        ----------
        rows : which of the n rows; a slice without stride.
        """
        begin, end, _ = rows.indices(len(self._side))
        held = self._held[0]
        if len(self._held) == 1:
            self._held.append(_buffer(len(held), held.shape[1], held.dtype, held.device))
        here = slice(begin, end)
        self._level(here)
        return self._held[1 - int(self._side[begin])][here]

    def held(
        self, rows: Int64[Tensor, "some"], *, before: bool = False
    ) -> Float[Tensor, "some V"] | None:
        """Copy the newest logits of some rows, or those before; None where they are not held.

        Parameters
        ----------
        rows : numbers of the rows, on the meter's device.
        before : the logits of the state before the newest, which are held where the newest were
            written into :meth:`room`, until they are written there again.

        Examples
        --------
        >>> meter, every = DepthMeter(2, 2), slice(None)
        >>> meter.record(every, torch.zeros(2, 2))
        >>> meter.record(every, meter.room(every).fill_(1.0))
        >>> one = torch.tensor([1])
        >>> meter.held(one), meter.held(one, before=True)
        (tensor([[1., 1.]]), tensor([[0., 0.]]))
        """
        side = int(self._side[0])
        if not self._started.all() or (self._side != side).any():
            return None
        if before and not self._kept.all():
            return None
        return self._held[1 - side if before else side].index_select(0, rows)

    def _level(self, here: slice) -> None:
        """Have the logits of all these rows in one buffer."""
        side = int(self._side[here.start])
        for row in here.start + np.flatnonzero(self._side[here] != side):
            self._held[side][row] = self._held[1 - side][row]
        self._side[here] = side

    def _chosen(self, mode: Mode | Literal["auto"]) -> Engine:
        logits = self._held[0]
        wanted = preferred(logits) if mode == "auto" else mode
        if wanted != "eager":
            try:
                with torch.inference_mode(False), torch.no_grad():
                    if wanted == "triton":
                        return SweepEngine(logits)
                    return BlockEngine(logits, compiled=True)
            except Exception as error:  # a missing tool chain shows in many ways
                reason = str(error).strip().partition("\n")[0]
                refused = isinstance(error, InvalidInputError)
                failed = f"compilation failed with {type(error).__name__}: {reason}"
                self.fallback = reason if refused else failed
                if mode == "auto":
                    _say_once(self.fallback)
        with torch.inference_mode(False):
            return BlockEngine(logits, compiled=False)

    def _read(self, here: slice, logits: Tensor, *, first: bool, wait: bool) -> Reading:
        """Read some rows; if their logits are refused, none of them counts as started."""
        self._level(here)
        self._started[here] = self._kept[here] = False
        side = int(self._side[here.start])
        new = self._held[1 - side][here] if len(self._held) > 1 else None
        moved = new is not None and new.data_ptr() == logits.data_ptr()
        old = None if first else self._held[side][here]

        def keep(rows: slice, part: Tensor) -> None:
            if not moved:
                self._held[side][rows].copy_(part)

        found = self._engine.read(here, old, logits, keep)
        if wait:
            try:
                check_means(found.means)
            except InvalidInputError:
                refuse_infinite(logits)  # say where, in the rows that were given
                raise
        if moved:
            self._side[here] = 1 - side
        self._started[here] = True
        self._kept[here] = moved and not first
        return found

    def _check_started(self, here: slice) -> None:
        missing = np.flatnonzero(~self._started[here])
        if len(missing):
            raise InvalidInputError(
                f"advance needs a state to step from; row {here.start + int(missing[0])} has none. "
                "Call start with the first logits of these rows."
            )

    def _accepted(self, rows: slice, logits: Tensor) -> slice:
        held = self._held[0]
        n, V = held.shape
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
        exact = torch.promote_types(logits.dtype, held.dtype) == held.dtype
        if not (logits.is_floating_point() and exact and logits.device == held.device):
            raise InvalidInputError(
                f"logits must be on {held.device} and fit into {held.dtype}; found {logits.dtype} "
                f"on {logits.device}. Make the meter with the dtype and device of the logits."
            )
        return slice(begin, end)


def preferred(logits: Tensor) -> Mode:
    """How a meter of such logits runs where the tool chain allows it."""
    return "triton" if logits.is_cuda and logits.dtype.itemsize <= 4 else "eager"


def _buffer(rows: int, vocabulary: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    width = vocabulary if device.type == "cpu" else -(-vocabulary // _ALIGNED) * _ALIGNED
    with torch.inference_mode(False):
        return torch.empty(rows, width, dtype=dtype, device=device)[:, :vocabulary]


def _say_once(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        warnings.warn(
            f"Depth statistics run as plain tensor operations, which is slower: {reason}.",
            MeasureWarning,
            stacklevel=5,
        )


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
    if mode not in ("auto", "eager", "compiled", "triton"):
        raise InvalidInputError(
            f'mode must be "auto", "eager", "compiled" or "triton"; found {mode!r}.'
        )
