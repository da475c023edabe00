"""Weights of a model: refuse broken ones, and make a twin with random ones as a control."""

import copy

import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

__all__ = ["BrokenWeightsError", "fresh_twin", "refuse_broken_weights", "shuffled_twin"]


class BrokenWeightsError(InvalidInputError):
    """A weight is NaN or infinite."""


def refuse_broken_weights(model: nn.Module) -> None:
    """Raise when a parameter holds NaN or infinity: every number after it would be nonsense."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and not parameter.is_meta:
            bad = int((~torch.isfinite(parameter)).sum())
            if bad:
                raise BrokenWeightsError(
                    f"The weight {name} holds {bad} values that are NaN or infinite; the "
                    "checkpoint is damaged. Load it again from its source."
                )


def fresh_twin(model: nn.Module, seed: int) -> nn.Module | Unavailable:
    """The same architecture with random weights, on the same device and in the same dtype."""
    from transformers import PreTrainedModel

    again = getattr(type(model), "from_config", None)  # models of diffusers are made by it
    if not isinstance(model, PreTrainedModel) and (again is None or not hasattr(model, "config")):
        return Unavailable("only a model with a configuration can be initialised anew")
    parameter = next(model.parameters())
    if parameter.is_meta:
        return Unavailable("the weights are off-loaded")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = copy.deepcopy(model.config)
        transformer = isinstance(model, PreTrainedModel)
        twin: nn.Module = type(model)(config) if transformer or again is None else again(config)
    twin = twin.to(parameter.device)
    if next(twin.parameters()).dtype != parameter.dtype:
        twin = twin.to(parameter.dtype)
    return twin.eval()


def shuffled_twin(model: nn.Module, seed: int) -> nn.Module | Unavailable:
    """The same network with the entries of every weight tensor in random order.

    Each tensor keeps its values, so that layers act as strongly as the model's; what training put
    into their places is lost. A network with random weights is like its shuffled twins, however
    large its weights are.

    Examples
    --------
    >>> layer = nn.Linear(2, 2)
    >>> twin = shuffled_twin(layer, 0)
    >>> torch.equal(twin.weight.flatten().sort()[0], layer.weight.flatten().sort()[0])
    True
    """
    weights = list(model.parameters())
    if not weights or any(weight.is_meta for weight in weights):
        return Unavailable("the weights are off-loaded")
    if not all(weight.is_floating_point() for weight in weights):
        return Unavailable("quantised weights cannot be shuffled")
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in twin.parameters():
            order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
            weight.copy_(weight.flatten()[order].reshape(weight.shape))
    return twin.eval()
