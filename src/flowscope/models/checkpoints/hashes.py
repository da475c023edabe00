r"""What tells weights from other weights: a sha256 of their bytes, or of sums where they are many.

A sha256 reads one byte after the other on one core: 16 GB take twenty seconds, and the copy from a
GPU as long. Weights beyond a gigabyte are therefore summed where they are. With x the bytes of a
tensor as 64-bit integers, and r odd numbers that look random,

.. math:: s = \sum_i r_i x_i \bmod 2^{64}

is the same on every device and in every order, and changes with every single bit. Two such sums of
each tensor, with its name, dtype and shape, go into the sha256. They tell weights apart that differ
by accident, by training or by an edit; against weights that were made to collide they are no guard,
and the hash says which it is: it begins with ``sums:``.

The files of a checkpoint are not asked: a model in memory may have been cast, merged or edited
since.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.records import Unavailable

__all__ = ["LARGE", "weight_hash"]

LARGE = 2**30
"""Bytes from which weights are summed."""

_PIECE = 2**15  # 64-bit numbers that share a factor
_CACHED, _HELD = 4, 512  # pieces at a time: as many as stay in the cache of a CPU, and elsewhere
_SUMS = 2


def weight_hash(model: nn.Module) -> str | Unavailable:
    """Hash over the name, dtype, shape and bytes of every parameter and persistent buffer.

    The same weights give the same hash whatever file they came from and wherever they are: up to a
    gigabyte a sha256 of the bytes, one tensor on the CPU at a time; beyond it ``sums:`` and the
    sha256 of sums that are taken on the device of each tensor.
    """
    state = sorted(model.state_dict().items())
    for name, tensor in state:
        if not isinstance(tensor, Tensor):
            return Unavailable(f"{name} is no tensor (quantised state)")
        if tensor.is_meta:
            return Unavailable("weights are off-loaded or were never loaded (meta device)")
    digest = hashlib.sha256()
    if sum(tensor.nbytes for _, tensor in state) <= LARGE:
        for name, tensor in state:
            digest.update(_described(name, tensor))
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        return digest.hexdigest()
    factors: dict[torch.device, Tensor] = {}
    sums = []
    for _, tensor in state:
        if tensor.device not in factors:
            numbers = _random_odds(0, _SUMS * _PIECE).reshape(_SUMS, _PIECE)
            factors[tensor.device] = torch.from_numpy(numbers).to(tensor.device)
        sums.append(_sums(tensor.detach(), factors[tensor.device]))
    for (name, tensor), found in zip(state, _on_cpu(sums), strict=True):
        digest.update(_described(name, tensor) + found.tobytes())
    return f"sums:{digest.hexdigest()}"


def _described(name: str, tensor: Tensor) -> bytes:
    return f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode()


def _sums(tensor: Tensor, factors: Tensor) -> Tensor:
    """Sums of the bytes of a tensor as 64-bit integers, in pieces that have a factor each."""
    each = [
        torch.stack([(words * row).sum(1) for row in factors]) for words in _words(tensor)
    ]  # fmt: skip
    if not each:
        return torch.zeros(_SUMS, dtype=torch.int64, device=tensor.device)
    pieces = torch.cat(each, 1)
    odds = torch.from_numpy(_random_odds(_SUMS * _PIECE, pieces.shape[1]))
    return (pieces * odds.to(tensor.device)).sum(1)


def _words(tensor: Tensor) -> Iterator[Tensor]:
    """The bytes as 64-bit integers, some rows of a piece at a time, zeros at the end."""
    data = tensor.contiguous().reshape(-1).view(torch.uint8)
    at_once = _CACHED if tensor.device.type == "cpu" else _HELD
    for part in torch.split(data, 8 * _PIECE * at_once) if len(data) else ():
        rows = -(-len(part) // (8 * _PIECE))
        whole = part.data_ptr() % 8 == 0 and len(part) == 8 * _PIECE * rows
        if not whole:
            padded = torch.zeros(8 * _PIECE * rows, dtype=torch.uint8, device=data.device)
            padded[: len(part)] = part
            part = padded
        yield part.view(torch.int64).reshape(rows, _PIECE)


def _random_odds(first: int, count: int) -> NDArray[np.int64]:
    """Odd 64-bit numbers that look random and are always the same (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((x ^ (x >> np.uint64(31))) | np.uint64(1)).view(np.int64)


def _on_cpu(sums: list[Tensor]) -> list[NDArray[np.int64]]:
    """Sums of all tensors on the CPU; one wait for each device."""
    found: list[NDArray[np.int64] | None] = [None] * len(sums)
    for device in {row.device for row in sums}:
        here = [k for k, row in enumerate(sums) if row.device == device]
        for k, row in zip(here, torch.stack([sums[k] for k in here]).cpu().numpy(), strict=True):
            found[k] = row
    return [row for row in found if row is not None]
