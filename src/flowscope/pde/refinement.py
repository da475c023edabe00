r"""A path of blocks in shorter steps: how close the depth of a network is to continuous time.

Each block moves the tokens by $f_\ell(u) = G_\ell(u) - u$. In $n$ steps a block becomes

$$
u \leftarrow u + \tfrac1n f_\ell(u), \qquad n \text{ times} ,
$$

an Euler scheme of $\partial_t u = f_{\lceil t\rceil}(u)$, whose error falls as $1/n$ where $f$ is
smooth. At $n = 1$ it is the network itself. Source 001, Theorem 3.2, argues from the limit; how far
the network stands from it is a number.
"""

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Stepped", "refined_path"]

Field = Float[Tensor, "batch N d"]


class Stepped(Protocol):
    """A network of steps, such as `MasterEquation` and `AblatedTransformer`."""

    def step(self, u: Field, index: int) -> Field:
        """One step."""
        ...

    @property
    def depth(self) -> int:
        """Number of steps."""
        ...


def refined_path(network: Stepped, u: Field, n: int) -> Float[Tensor, "depth+1 batch N d"]:
    """The states before the first step and after every one, each step made in n of 1/n.

    Parameters
    ----------
    network
        Its steps.
    u
        The first state.
    n
        How many short steps replace one.

    Raises
    ------
    InvalidInputError
        If n is not a positive whole number.

    Examples
    --------
    >>> from flowscope.pde import MasterEquation
    >>> model = MasterEquation(width=8, heads=2, steps=6, leak=2)
    >>> _ = [weight.data.zero_() for name, weight in model.named_parameters() if "output" in name]
    >>> ends = [refined_path(model, torch.ones(1, 3, 8), n)[-1, 0, 0, 0].item() for n in (1, 1000)]
    >>> [round(end, 4) for end in ends]  # (2/3)⁶, and nearly exp(-2) = 0.1353
    [0.0878, 0.1353]
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidInputError(f"n must be a positive whole number; got {n!r}.")
    states = [u]
    for index in range(network.depth):
        for _ in range(n):
            u = torch.lerp(u, network.step(u, index), 1 / n)
        states.append(u)
    return torch.stack(states)
