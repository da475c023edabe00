"""Weights of a model: refuse broken ones, and make a twin with random ones as a control."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flowscope.errors import InvalidInputError
from flowscope.records import Unavailable

__all__ = [
    "LARGE",
    "BrokenWeightsError",
    "free_memory",
    "fresh_twin",
    "refuse_broken_weights",
    "shuffled_twin",
    "twin_refusal",
]

LARGE = 2**29
"""Weights above which a twin is drawn where it belongs."""

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
    """The same architecture with random weights, where the model's own are and in their dtypes.

    Below half a billion weights it is built as its class builds it, in the host's memory and from
    the host's random numbers: one seed gives one twin on every device. A larger one is laid out
    without values, and each weight is drawn where it belongs, so that no second copy is ever held;
    where its class draws a weight only while it is built, it is built on the device of the model.
    It is refused before memory is asked for: when weights are off-loaded, and when it does not fit.
    """
    from transformers import PreTrainedModel

    again = getattr(type(model), "from_config", None)  # models of diffusers are made by it
    transformer = isinstance(model, PreTrainedModel)
    if not transformer and (again is None or not hasattr(model, "config")):
        return Unavailable("only a model with a configuration can be initialised anew")
    build = type(model) if transformer or again is None else again
    weights = list(model.parameters())
    large = sum(weight.numel() for weight in weights) > LARGE
    refusal = twin_refusal(model, built_on=None if large else torch.device("cpu"))
    if refusal is not None:
        return refusal
    devices = sorted({weight.device.index or 0 for weight in weights if weight.is_cuda})
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        made = _drawn_in_place(model, build) if large else build(copy.deepcopy(model.config))
    if isinstance(made, Unavailable):
        return made
    _place(model, made)
    return made.eval()


def _drawn_in_place(model: nn.Module, build: Callable[[Any], nn.Module]) -> nn.Module | Unavailable:
    """A twin whose weights never were anywhere else."""
    with torch.device("meta"):
        twin = build(copy.deepcopy(model.config))
    _lay_out(model, twin)
    left = _drawn(twin)
    if not left:
        return twin
    del twin
    where = {weight.device for weight in model.parameters()}
    if len(where) > 1:
        return Unavailable(
            f"the class of the model draws {left} only while it is built, on one device, and the "
            f"model is on {len(where)}"
        )
    (device,) = where
    refusal = twin_refusal(model, built_on=device)
    if refusal is not None:
        return refusal
    with torch.device(device):
        return build(copy.deepcopy(model.config))


def _lay_out(model: nn.Module, twin: nn.Module) -> None:
    """Give every weight memory where the model has its own, NaN at first; copy the buffers."""
    theirs: dict[int, nn.Parameter] = {}  # tied weights stay tied
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    for path, module in twin.named_modules():
        prefix = f"{path}." if path else ""
        for name, weight in module._parameters.items():
            if weight is not None and prefix + name in parameters:
                own = parameters[prefix + name].detach()
                filled = nn.Parameter(torch.full_like(own, torch.nan))
                module._parameters[name] = theirs.setdefault(id(parameters[prefix + name]), filled)
        for name, buffer in module._buffers.items():
            if buffer is not None and prefix + name in buffers:
                module._buffers[name] = buffers[prefix + name].detach().clone()


def _drawn(twin: nn.Module) -> str:
    """Draw every weight as the classes of the model do; returns the name of one they do not."""
    with torch.no_grad():
        for module in twin.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        whole = getattr(twin, "initialize_weights", None)
        if whole is not None:
            whole()
        left = (n for n, w in twin.named_parameters() if w.is_meta or bool(torch.isnan(w).any()))
        return next(left, "")


def _place(model: nn.Module, twin: nn.Module) -> None:
    """Move every weight and buffer to the device and the dtype that it has in the model."""
    for kind in ("named_parameters", "named_buffers"):
        theirs = dict(getattr(model, kind)(remove_duplicate=False))
        for name, value in getattr(twin, kind)(remove_duplicate=False):
            if name in theirs:
                value.data = value.data.to(theirs[name].device, theirs[name].dtype)


def twin_refusal(model: nn.Module, *, built_on: torch.device | None) -> Unavailable | None:
    """Why no second model of this size is built; None when nothing speaks against it.

    Parameters
    ----------
    model
        What a twin is made of.
    built_on
        Where it is first built whole, in torch's default dtype; None where it is laid out at once.
    """
    weights = list(model.parameters())
    absent = sum(weight.is_meta for weight in weights)
    if absent:
        return Unavailable(
            f"{absent} of {len(weights)} weights are off-loaded, and a twin with random weights "
            "would be held in memory whole"
        )
    if built_on is None and not all(weight.is_floating_point() for weight in weights):
        return Unavailable("quantised weights cannot be drawn anew")
    needed: dict[torch.device, int] = {}
    for weight in weights:
        size = weight.numel() * weight.dtype.itemsize
        needed[weight.device] = needed.get(weight.device, 0) + size
    if built_on is not None:
        size = sum(weight.numel() for weight in weights) * torch.get_default_dtype().itemsize
        needed[built_on] = max(size, needed.get(built_on, 0))
    for device, size in needed.items():
        free = free_memory(device)
        if free is not None and size > free:
            where = "the host's memory" if device.type == "cpu" else f"the memory of {device}"
            return Unavailable(
                f"a twin with random weights needs {size / 1e9:.3g} GB of {where}, and "
                f"{free / 1e9:.3g} GB are free"
            )
    return None


def free_memory(device: torch.device, table: Path = _MEMORY) -> int | None:
    """Bytes that a device can give; None where nothing says so.

    Of the host its file cache is counted, of a GPU what torch holds and does not use.
    """
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    if device.type != "cpu":
        return None
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
    refusal = twin_refusal(model, built_on=None)
    if refusal is not None:
        return refusal
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in twin.parameters():
            order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
            weight.copy_(weight.flatten()[order].reshape(weight.shape))
    return twin.eval()
