"""Blocks and strips: in which order large families of rows are walked.

A *block* is a run of rows that fits in cache, so that the passes of an iteration over it do not
each read memory again. A *strip* is a piece of a block below the size at which torch starts its
threads. An iteration over blocks makes thousands of short calls, and a barrier at the end of each
costs more than the threads gain: on two cores shared with one busy process, 1,000 rows of 50,257
outcomes took 20 to 40 softmaxes with torch's threads and 2 to 3 in strips. The price is that a
call uses one core; rows can be given to several calls.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "block_rows",
    "free_bytes",
    "reduced",
    "row_blocks",
    "strip_argmax",
    "strip_copy",
    "strips",
]

BLOCK = 2**19
STRIP = 2**15  # at::internal::GRAIN_SIZE
_ACCELERATOR_BLOCK = 2**26  # an accelerator wants few large calls


def block_rows(x: Float[Tensor, "*batch V"]) -> int:
    """Count the rows of x in one block: as many as stay in cache, and at least one."""
    size = BLOCK if x.device.type == "cpu" else _ACCELERATOR_BLOCK
    return max(1, size // x.shape[-1])


def row_blocks(x: Float[Tensor, "*batch V"]) -> tuple[Float[Tensor, "rows V"], ...]:
    """Cut x, its leading axes flattened, into blocks of rows."""
    return torch.split(x.reshape(-1, x.shape[-1]), block_rows(x))


def strips(x: Float[Tensor, "rows V"]) -> list[tuple[Float[Tensor, "some part"], ...]]:
    """Cut x into groups of rows and each group along its columns, down to strips."""
    V = x.shape[-1]
    if x.device.type != "cpu":
        return [(x,)]
    groups = torch.split(x, max(1, STRIP // V))
    return [rows.tensor_split(-(-V // STRIP), -1) for rows in groups]


def reduced(
    x: Float[Tensor, "rows V"], function: Callable[[Tensor], Tensor]
) -> Float[Tensor, "rows parts"]:
    """Apply a reduction of the last axis strip by strip; one column per strip of a row."""
    return torch.cat([torch.stack([function(part) for part in rows], -1) for rows in strips(x)])


def strip_argmax(x: Float[Tensor, "rows V"]) -> Int[Tensor, "rows 1"]:
    """Place of the largest entry of each row."""
    value, place = reduced(x, lambda part: part.amax(-1)), reduced(x, lambda part: part.argmax(-1))
    width = torch.tensor([part.shape[-1] for part in strips(x[:1])[0]], device=x.device)
    best = value.argmax(-1, keepdim=True)
    return (place + width.cumsum(0) - width).gather(-1, best)


def strip_copy(x: Float[Tensor, "rows V"]) -> Float[Tensor, "rows V"]:
    """Contiguous copy."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for target, source in zip(strips(y), strips(x), strict=True):
        for part, other in zip(target, source, strict=True):
            part.copy_(other)
    return y


def free_bytes(device: torch.device) -> int:
    """Count the bytes that a tensor on an accelerator can have; the cache of torch counts."""
    if device.type != "cuda":
        return _ACCELERATOR_BLOCK * 4
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
