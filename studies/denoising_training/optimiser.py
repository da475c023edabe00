"""Muon: steps of matrices whose singular values are all about one (Jordan et al., 2024)."""

import torch
from torch import Tensor, nn

__all__ = ["Muon", "orthogonal"]

_STEPS = 5
# Coefficients of the quintic iteration published with Muon.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of ``[n, rows, columns]``."""
    wide = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if wide else matrices
    x = x.to(torch.bfloat16) if x.is_cuda else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return (x.mT if wide else x).float()


class Muon:
    """Momentum, orthogonal steps, decay of the weights towards zero.

    A parameter is a stack of matrices ``[layers, parts · rows, columns]``; ``parts`` says how many
    matrices lie below one another.
    """

    def __init__(
        self, parameters: list[tuple[nn.Parameter, int]], momentum: float, decay: float
    ) -> None:
        self.parameters, self.momentum, self.decay = parameters, momentum, decay
        self.memory = [torch.zeros_like(parameter) for parameter, _ in parameters]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step with the gradients that the parameters hold."""
        for (parameter, parts), memory in zip(self.parameters, self.memory, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            memory.lerp_(gradient, 1 - self.momentum)
            ahead = gradient.lerp(memory, self.momentum)
            layers, rows, columns = ahead.shape
            matrices = ahead.view(layers * parts, rows // parts, columns)
            size = max(1.0, rows / parts / columns) ** 0.5
            update = orthogonal(matrices).view_as(parameter)
            parameter.mul_(1 - rate * self.decay).add_(update, alpha=-rate * size)
