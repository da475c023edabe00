r"""The statistics of a block of rows by a Triton kernel, which leaves raw sums on the device.

The kernel is that of :mod:`flowscope.flows.sweep_kernels`. Nothing waits for the device: what
the sums say is read from all layers at once, when a batch is over.
"""

from contextlib import nullcontext
from typing import TypeAlias

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.eager import balanced_variation
from flowscope.flows.steps import StepStatistics
from flowscope.flows.sums import StateSums
from flowscope.flows.sweep_kernels import (
    INSTALLED,
    INTERPRETED,
    ROWS,
    both_sweeps,
)

__all__ = ["LIFT", "RawSums", "SweptPasses", "raw_sums", "state_sums", "step_numbers"]

RawSums: TypeAlias = Float32[Tensor, "18 *rows"]
"""What the sweeps leave: one entry of `ROWS` per line."""

LIFT = 2.0**50

# Outcomes that a program holds at a time, and its warps: the fastest of those tried on an H200.
_BLOCK, _WARPS = 1024, 4
_TRIED: dict[tuple[torch.device, torch.dtype], bool] = {}
_PLACE = {name: number for number, name in enumerate(ROWS)}


class SweptPasses:
    """Raw sums of blocks of rows; the kernel is compiled, and run once, on construction.

    Parameters
    ----------
    vocabulary : V.
    dtype : of the logits; read in float32.
    device : a CUDA device, or any where ``TRITON_INTERPRET=1`` runs kernels in Python.

    Raises
    ------
    InvalidInputError
        If the logits are wider than float32, Triton is not installed, or the device cannot run it.

    Notes
    -----
    Whatever Triton raises is raised. 16 bytes per logit and step are read: two states, twice.
    """

    def __init__(self, vocabulary: int, dtype: torch.dtype, device: torch.device):
        if dtype.itemsize > 4:
            raise InvalidInputError(f"the sweeps compute in float32; found logits in {dtype}")
        if not INSTALLED:
            raise InvalidInputError("Triton is not installed; pip install triton brings it")
        if device.type != "cuda" and not INTERPRETED:
            raise InvalidInputError(f"Triton needs a CUDA device; found {device}")
        size = 16
        while size < min(vocabulary, _BLOCK):
            size *= 2
        self.block = size
        sample = torch.zeros(2, vocabulary, dtype=dtype, device=device)
        numbers = torch.zeros(2, len(ROWS), 2, dtype=torch.float32, device=device)
        self.state(sample, numbers[0])
        self.step(sample, sample, numbers[0], numbers[1])

    def state(self, y: Float[Tensor, "rows V"], end: RawSums) -> None:
        """Write the raw sums of a block of states into ``end``."""
        self._swept(y, y, end, end, None)

    def step(
        self, x: Float[Tensor, "rows V"], y: Float[Tensor, "rows V"], start: RawSums, end: RawSums
    ) -> None:
        """Write the raw sums of the states y and of the steps x → y into ``end``."""
        self._swept(x, y, start, end, None, moves=True)

    def lent_step(
        self,
        x: Float[Tensor, "rows V"],
        steps: Float[Tensor, "rows V"],
        donors: Int64[Tensor, "rows"],
        start: RawSums,
        end: RawSums,
    ) -> None:
        """Write the raw sums of x and of the step that each row's donor lends it into ``end``."""
        self._swept(x, steps, start, end, donors, moves=True)

    def _swept(
        self,
        x: Tensor,
        y: Tensor,
        start: Tensor,
        end: Tensor,
        donors: Tensor | None,
        *,
        moves: bool = False,
    ) -> None:
        lent = donors is not None
        given = start if donors is None else donors  # a pointer that is not read, or one that is
        strides = (x.stride(0), y.stride(0), start.stride(0), end.stride(0), given.stride(0))
        # Triton launches on the current device.
        with torch.cuda.device(y.device) if y.is_cuda else nullcontext():
            both_sweeps[(len(y),)](
                x, y, start, end, given, y.shape[1], *strides,
                BLOCK=self.block, MOVES=moves, LENT=lent, FAST=not INTERPRETED, num_warps=_WARPS,
            )  # fmt: skip


def raw_sums(rows: Float[Tensor, "rows V"]) -> RawSums:
    """Room for the raw sums of some rows of logits."""
    return torch.zeros(len(ROWS), len(rows), dtype=torch.float32, device=rows.device)


def state_sums(raw: RawSums) -> StateSums:
    """Sums of the states of raw sums, in float64."""
    column = dict(zip(ROWS, raw.double().unbind(0), strict=True))
    return StateSums(
        value=column["value"],
        place=raw[_PLACE["place"]].long(),
        mean=column["mean"],
        state_sq=column["state_sq"],
        runner_up=column["runner_up"],
        mass=column["mass"],
        work=column["work"],
        square=column["square"] / LIFT / LIFT,
        cube=column["cube"] / LIFT / LIFT,
    )


def step_numbers(raw: RawSums) -> StepStatistics:
    """Statistics of the steps that led to the states of raw sums, in float64."""
    column = dict(zip(ROWS, raw.double().unbind(0), strict=True))
    return StepStatistics(
        step_sq=column["step_sq"],
        oscillation=column["oscillation"],
        total_variation=balanced_variation(column["total"], column["distance"], column["rising"]),
        kl_divergence=column["divergence"],
        first_order=column["spread"] / 2,
    )


def sweeps_run(logits: Float[Tensor, "rows V"]) -> bool:
    """Whether the kernels compile and run on the device of these logits, tried once for each."""
    key = logits.device, logits.dtype
    if key not in _TRIED:
        try:
            SweptPasses(logits.shape[-1], logits.dtype, logits.device)
            _TRIED[key] = True
        except Exception:  # a missing tool chain shows in many ways; a meter says which
            _TRIED[key] = False
    return _TRIED[key]
