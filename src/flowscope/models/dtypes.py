"""The dtype that a setting names."""

import torch

from flowscope.errors import InvalidInputError

__all__ = ["named_dtype"]

_KNOWN = ("float16", "bfloat16", "float32", "float64")


def named_dtype(name: str | None, device: str | None) -> torch.dtype | None:
    """The dtype of a name; single precision on a processor and the model's own on a device if none.

    Half precision is slow on a processor, and its rounding would be read as motion.

    Raises
    ------
    InvalidInputError
        When there is no such dtype.
    """
    if not name:
        return torch.float32 if device in (None, "cpu") else None
    if name not in _KNOWN:
        raise InvalidInputError(f"dtype must be one of {', '.join(_KNOWN)}; got {name!r}.")
    found: torch.dtype = getattr(torch, name)
    return found
