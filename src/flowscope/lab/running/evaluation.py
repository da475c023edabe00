"""Networks that a caller hands over are measured in evaluation mode and handed back as they were.

A network fresh from its constructor is in training mode: dropout draws at every pass, and a
diffusion transformer drops class labels, so that two passes over one input differ. Numbers of such
passes are not those of the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["evaluation_mode"]

_PARTS = ("model", "transformer", "unet", "vae")
"""Attributes of a pipeline, or of a loaded model, that hold its networks."""


@contextmanager
def evaluation_mode(objects: Iterable[Any]) -> Iterator[None]:
    """Put every network among some objects into evaluation mode while the block lasts.

    Parameters
    ----------
    objects
        Networks, pipelines and loaded models; anything else is left alone.

    Examples
    --------
    >>> from torch import nn
    >>> layer = nn.Dropout()
    >>> with evaluation_mode([layer, "a text"]):
    ...     layer.training
    False
    >>> layer.training
    True
    """
    networks = [network for value in objects for network in _networks(value)]
    modes = [(part, part.training) for network in networks for part in network.modules()]
    for network in networks:
        network.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _networks(value: Any) -> list[Any]:
    """The network that a value is, or those that it holds."""
    if _is_network(value):
        return [value]
    parts = (getattr(value, name, None) for name in _PARTS)
    return [part for part in parts if _is_network(part)]


def _is_network(value: Any) -> bool:
    """Whether a value is a module of torch, which is not imported here."""
    return any(f"{kind.__module__}.{kind.__name__}" == _MODULE for kind in type(value).__mro__)


_MODULE = "torch.nn.modules.module.Module"
