"""Norms of a model: which modules they are, the scale they divide by, and another in its place."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["centres_features", "is_norm", "norm_input", "rescaled", "token_scale"]


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm without further norms inside."""
    named = "norm" in type(module).__name__.lower()
    return named and not any(is_norm(child) for child in module.children())


def centres_features(proceed: Callable[..., Any], x: Tensor, output: Tensor) -> bool:
    """Whether the norm removes the mean of the features: it does not see a common shift."""
    moved = proceed(x + x.abs().mean())
    return bool((moved - output).norm() <= 1e-2 * output.norm())


def norm_input(args: Any, kwargs: Any, output: object) -> Tensor | None:
    """What a norm was given; None where its output is not of that form."""
    x = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(x, Tensor) or not isinstance(output, Tensor):
        return None
    return x if output.shape == x.shape else None


def token_scale(x: Tensor, centres: bool) -> Tensor:
    """Root mean square of each token, about its mean where the norm removes it."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if centres:
        wide = wide - wide.mean(-1, keepdim=True)
    return wide.square().mean(-1, keepdim=True).sqrt()


def rescaled(module: nn.Module, output: Tensor, scale: Tensor, frozen: Tensor | None) -> Tensor:
    """The norm's output with another divisor, its learnt gain and bias kept."""
    divisor = torch.ones((), device=scale.device) if frozen is None else frozen
    bias = getattr(module, "bias", None)
    shift = bias if isinstance(bias, Tensor) else torch.zeros((), device=output.device)
    whole: Tensor = (output - shift) * (scale / divisor) + shift
    return whole.to(output.dtype)
