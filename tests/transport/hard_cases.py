"""Ten seeded problems on which a plain Sinkhorn sweep contracts by more than .99.

``contraction`` is the exact rate at the fixed point: the second largest squared singular value of
``a^{−½} Π b^{−½}``, the largest one being 1 (the constants).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["HardCase", "contraction", "hard_cases"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HardCase:
    """Clouds x and y with masses a and b, and an absolute ε; cost ½|x − y|², float64."""

    name: str
    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor
    epsilon: float


def hard_cases(size: int = 96) -> list[HardCase]:
    """The ten problems, the same at every call; ``size`` is the number of points a side."""
    return [_case(name, seed, size) for seed, name in enumerate(_KINDS)]


def contraction(coupling) -> float:
    """Factor by which a plain sweep shrinks the error at the fixed point of this coupling."""
    live = coupling.a > 0
    kernel = coupling.matrix[live] / (coupling.a[live, None] * coupling.b).sqrt()
    return float(torch.linalg.svdvals(kernel)[1] ** 2)


def _case(name: str, seed: int, n: int) -> HardCase:
    draw = torch.Generator().manual_seed(1000 + seed)
    d, relative, kind, masses = _KINDS[name]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    x, y = normal(n, d), normal(n, d)
    if kind == "shift":
        y = 0.7 * y + 1.5
    elif kind == "clusters":  # two far halves with unequal masses: little mass crosses
        side = (torch.arange(n) % 2).double()[:, None] * 2 - 1
        x, y = 0.5 * x + 2 * side, 0.5 * y + 2 * side
    elif kind == "grid":
        x = torch.linspace(0, 1, n, dtype=torch.float64)[:, None].expand(n, d)
        y = x.square() + 0.2
    elif kind == "tokens":  # a cloud and the same cloud one layer on
        y = x + 0.3 * y
    a, b = torch.ones(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
    if masses == "uneven":
        a, b = normal(n).exp(), normal(n).exp()
    cost = torch.cdist(x, y).square() / 2
    return HardCase(
        name=name,
        x=x,
        y=y,
        a=a / a.sum(),
        b=b / b.sum(),
        epsilon=relative * float(cost.median()),
    )


# name: (dimension, ε in units of the median cost, kind, masses)
_KINDS = {
    "line": (1, 0.01, "normal", "uneven"),
    "line, shifted": (1, 0.003, "shift", "uneven"),
    "grid": (1, 0.01, "grid", "equal"),
    "plane": (2, 0.015, "normal", "equal"),
    "plane, uneven": (2, 0.005, "normal", "uneven"),
    "plane, shifted": (2, 0.02, "shift", "equal"),
    "two clusters": (2, 0.005, "clusters", "uneven"),
    "space": (3, 0.003, "normal", "uneven"),
    "tokens": (16, 0.005, "tokens", "uneven"),
    "sixteen dimensions": (16, 0.003, "normal", "uneven"),
}
