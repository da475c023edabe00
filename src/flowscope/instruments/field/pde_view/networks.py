"""The networks of the study: tokens and positions, an arm, and a class from the mean token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.instruments.field.pde_view import PdeView
from flowscope.instruments.field.pde_view.names import ARMS, SIMULATOR
from flowscope.pde import AblatedTransformer, MasterEquation

__all__ = ["Core", "Network", "arrays_of", "core", "network", "restored", "shared_weights"]

Core = AblatedTransformer | MasterEquation


class Network(nn.Module):
    """Classifies a sequence of tokens; there is no norm outside the arm."""

    def __init__(self, vocabulary: int, tokens: int, classes: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(tokens, width))
        self.head = nn.Linear(width, classes)
        self.core: Core

    def forward(self, tokens: Int[Tensor, "batch N"]) -> Float[Tensor, "batch classes"]:
        """Logits of the classes."""
        logits: Tensor = self.head(self.core(self.start(tokens)).mean(-2))
        return logits

    def start(self, tokens: Int[Tensor, "batch N"]) -> Float[Tensor, "batch N d"]:
        """The states before the first block."""
        states: Tensor = self.embedding(tokens) + self.positions
        return states


def network(arm: str, config: PdeView, seed: int, sizes: tuple[int, int, int]) -> Network:
    """A network of random weights.

    Arms of one seed start from the same embedding and head, and, where their branches have the same
    shape, from the same branches.

    Parameters
    ----------
    arm, config, seed
        Which, its size, and what its weights are drawn with.
    sizes
        Size of the vocabulary, tokens of a sequence, classes.
    """
    vocabulary, tokens, classes = sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Network(vocabulary, tokens, classes, config.width)
    made.core = core(arm, config, seed)
    return made


def core(arm: str, config: PdeView, seed: int) -> Core:
    """The blocks of an arm with random weights."""
    kind = ARMS[arm]
    sizes: dict[str, Any] = {"width": config.width, "heads": config.heads}
    if arm == SIMULATOR:
        sizes |= {"gamma": config.gamma, "diffusion": config.diffusion}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        if kind.master:
            return MasterEquation(steps=config.blocks, **sizes, **kind.settings)
        return AblatedTransformer(blocks=config.blocks, **sizes, **kind.settings)


def shared_weights(module: nn.Module) -> list[bool]:
    """Which parameters all arms have: those of the blocks without their norms."""
    names = [name for name, _ in module.named_parameters()]
    return [
        "norm" not in name and ("attentions" in name or "perceptrons" in name) for name in names
    ]


def arrays_of(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Weights of a module as arrays by name."""
    return {name: value.detach().cpu().numpy() for name, value in module.named_parameters()}


def restored(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put weights that `arrays_of` gave into a module."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(torch.from_numpy(np.array(arrays[name])))
