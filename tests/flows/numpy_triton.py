"""As much of Triton's language as the sweeps speak, in numpy: one program of a kernel at a time.

It runs the source of the kernels where neither a CUDA device nor Triton is there. What a compiler
makes of them it cannot say; Triton's own interpreter runs the same tests (``TRITON_INTERPRET=1``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

__all__ = ["LANGUAGE", "Launched"]


class Block(np.ndarray):
    """Numbers of a program: an array of lanes, or one number."""

    def to(self, dtype):
        return self.astype(dtype)

    def __iadd__(self, other):
        return self + other  # values are not changed in place: two names may have one


def block(values: Any, dtype: Any = None) -> Block:
    return np.asarray(values, dtype).view(Block)


class Pointer:
    """An address, or one for each lane, in the memory of a tensor."""

    def __init__(self, memory, place=0):
        self.memory, self.place = memory, place

    @classmethod
    def of(cls, tensor):
        size = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
        flat = tensor.as_strided((size,), (1,), tensor.storage_offset())
        return cls(flat.float().numpy())

    def __add__(self, places):
        return Pointer(self.memory, self.place + np.asarray(places))


def load(pointer, mask=True, other=None):
    inside = np.broadcast_to(mask, np.shape(pointer.place))
    assert inside.all() or other is not None, "a masked load needs a value for what it leaves out"
    places = np.where(inside, pointer.place, 0)
    assert (places >= 0).all()
    assert (places < len(pointer.memory)).all()
    return block(
        np.where(inside, pointer.memory[places], np.float32(0 if other is None else other))
    )


def store(pointer, value):
    assert np.ndim(value) == 0
    pointer.memory[pointer.place] = np.float32(value)


def reduced(function):
    return lambda x, axis: block(function(x.view(np.ndarray), axis))


PROGRAM = [0]
LANGUAGE = SimpleNamespace(
    constexpr=int,
    float32=np.float32,
    float64=np.float64,
    int32=np.int32,
    int64=np.int64,
    program_id=lambda axis: block(PROGRAM[0], np.int32),
    arange=lambda low, high: block(np.arange(low, high, dtype=np.int32)),
    zeros=lambda shape, dtype: block(np.zeros(shape, dtype)),
    zeros_like=lambda x: block(np.zeros_like(x)),
    full=lambda shape, value, dtype: block(np.full(shape, value, dtype)),
    where=lambda condition, one, other: block(np.where(condition, one, other)),
    minimum=lambda one, other: block(np.minimum(one, other)),
    maximum=lambda one, other: block(np.maximum(one, other)),
    exp=lambda x: block(np.exp(x)),
    log=lambda x: block(np.log(x)),
    abs=lambda x: block(np.abs(x)),
    sum=reduced(np.sum),
    max=reduced(np.max),
    min=reduced(np.min),
    load=load,
    store=store,
    static_range=range,
)


class Launched:
    """A kernel that is launched as Triton launches it, its programs one after the other."""

    def __init__(self, kernel):
        self.kernel = getattr(kernel, "fn", kernel)

    def __getitem__(self, grid):
        def launch(*args, num_warps, **constants):
            given = [Pointer.of(a) if torch.is_tensor(a) else block(a, np.int32) for a in args]
            with np.errstate(all="ignore"):
                for PROGRAM[0] in range(*grid):
                    self.kernel(*given, **constants)

        return launch
