"""Depth paths of a model that is nothing but a linear output: what is known of them is exact."""

from types import SimpleNamespace

import numpy as np
import torch

from flowscope.instruments.audit.paths import Paths
from flowscope.probes import LogitReadout
from flowscope.records import Unavailable

PROMPTS, TOKENS, LAYERS, WIDTH, VOCABULARY = 20, 16, 8, 6, 40


class LinearTail:
    """z = U h: a tail with the face of `Tail`."""

    positionwise, device = True, torch.device("cpu")

    def __init__(self, U):
        self.weight, self.bias, self.width = U, torch.zeros(len(U)), len(U)

    def widened(self, operands="exact"):
        return self

    def linear_output(self):
        from flowscope.tap import LinearOutput

        program = SimpleNamespace(run=lambda hidden: hidden)
        return LinearOutput(weight=self.weight, bias=self.bias, _program=program)

    def rows(self, hidden):
        return hidden @ self.weight.mT


def paths_of(hidden, generator):
    """Paths around states [tokens, layers + 1, d], TOKENS of them per prompt."""
    U = torch.randn(VOCABULARY, hidden.shape[-1], generator=generator)
    n = len(hidden)
    return Paths(
        prompt=np.repeat(np.arange(n // TOKENS), TOKENS),
        position=np.tile(np.arange(TOKENS), n // TOKENS),
        hidden=hidden,
        close=np.arange(0, n, 4),
        between=Unavailable("a linear map has no writes"),
        readout=LogitReadout(LinearTail(U)),
    )


def flow_paths(A, *, noise=0.0, seed=0):
    """States of ḣ = A h at LAYERS + 1 times in [0, 1], with noise added to every step."""
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(PROMPTS * TOKENS, WIDTH, generator=g)
    step = torch.linalg.matrix_exp(A / LAYERS)
    states = [h]
    for _ in range(LAYERS):
        fresh = torch.randn(h.shape, generator=g)
        states.append(states[-1] @ step.mT + noise * fresh)
    return paths_of(torch.stack(states, 1), g)
