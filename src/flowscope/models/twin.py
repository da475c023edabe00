"""Weights of a model: refuse broken ones, and make a twin with random ones as a control."""

import copy
from pathlib import Path

import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

__all__ = ["BrokenWeightsError", "fresh_twin", "refuse_broken_weights", "shuffled_twin"]


_MEMORY = Path("/proc/meminfo")


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
    """The same architecture with random weights, on the same device and in the same dtype.

    It is refused, before memory is taken, when weights are off-loaded or when it does not fit: it
    is built whole in the host's memory, in torch's default dtype, and then moved and cast.
    """
    from transformers import PreTrainedModel

    again = getattr(type(model), "from_config", None)  # models of diffusers are made by it
    if not isinstance(model, PreTrainedModel) and (again is None or not hasattr(model, "config")):
        return Unavailable("only a model with a configuration can be initialised anew")
    refusal = _refusal(model)
    if refusal is not None:
        return refusal
    parameter = next(model.parameters())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = copy.deepcopy(model.config)
        transformer = isinstance(model, PreTrainedModel)
        twin: nn.Module = type(model)(config) if transformer or again is None else again(config)
    twin = twin.to(parameter.device)
    if next(twin.parameters()).dtype != parameter.dtype:
        twin = twin.to(parameter.dtype)
    return twin.eval()


def _refusal(model: nn.Module) -> Unavailable | None:
    """Why no second model of this size is built; None when nothing speaks against it."""
    weights = list(model.parameters())
    absent = sum(weight.is_meta for weight in weights)
    if absent:
        return Unavailable(
            f"{absent} of {len(weights)} weights are off-loaded, and a twin with random weights "
            "would be held in memory whole"
        )
    size = sum(weight.numel() for weight in weights) * torch.get_default_dtype().itemsize
    free = _free_memory()
    if free is not None and size > free:
        return Unavailable(
            f"a twin with random weights needs {size / 1e9:.3g} GB of the host's memory, and "
            f"{free / 1e9:.3g} GB are free"
        )
    return None


def _free_memory(table: Path = _MEMORY) -> int | None:
    """Bytes that the host can give, its file cache counted; None where Linux does not say."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


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
