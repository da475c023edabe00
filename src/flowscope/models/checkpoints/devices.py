"""The device that a setting names, refused before any weight is read where it cannot be used."""

import torch

from flowscope.errors import InvalidInputError

__all__ = ["usable_device"]

_KNOWN = "cpu, cuda, cuda:N, mps or auto"


def usable_device(name: str | None) -> str | None:
    """The name of a device that can hold weights here; None and ``"auto"`` as they are.

    Raises
    ------
    InvalidInputError
        When there is no such device on this computer; the message says which there are.

    Examples
    --------
    >>> usable_device("cpu")
    'cpu'
    """
    if name is None or name == "auto":
        return name
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InvalidInputError(f"device must be {_KNOWN}; got {name!r}.") from error
    if device.type == "meta":
        raise InvalidInputError(
            "Weights on the device meta have shapes and no values, so that nothing can be "
            "measured. Leave device out for the CPU."
        )
    try:
        torch.empty(0, device=device)
    except Exception as error:  # each backend raises its own
        raise InvalidInputError(
            f"The device {name!r} cannot be used here: {_reason(device)}. Leave device out for the "
            "CPU."
        ) from error
    return name


def _reason(device: torch.device) -> str:
    if device.type == "cuda":
        if torch.version.cuda is None and torch.version.hip is None:
            return f"torch {torch.__version__} is built without CUDA"
        return f"torch sees {torch.cuda.device_count()} CUDA devices, counted from 0"
    return f"torch {torch.__version__} has no support for {device.type} on this computer"
