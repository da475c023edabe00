r"""Adam on one flat vector of weights, each step recorded on the device.

$$
m \leftarrow \beta_1 m + (1-\beta_1) g, \quad v \leftarrow \beta_2 v + (1-\beta_2) g^2, \quad
w \leftarrow w - \eta_t \frac{m/(1-\beta_1^t)}{\sqrt{v/(1-\beta_2^t)}+\epsilon}
$$

without weight decay and without clipping, so that an instability shows. Networks of this size keep
a GPU waiting for launches; there the step, in which nothing goes to the host, is recorded once as a
CUDA graph and replayed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.errors import ModelWarning

__all__ = ["Descent", "Trained", "fast_products", "schedule"]

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_REHEARSALS = 3  # steps before a recording, which fill the caches of the libraries
_WARM_UP = 0.1  # share of the steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """What training left beside the weights: one number a step."""

    losses: Float[Tensor, "steps"]
    gradients: Float[Tensor, "steps"]


def schedule(steps: int, rate: float) -> Float[Tensor, "steps"]:
    """Learning rates: a linear rise over a tenth of the steps, then a linear fall to zero.

    >>> [round(value, 6) for value in schedule(20, 1.0).tolist()][:3]
    [0.5, 1.0, 1.0]
    """
    at = torch.arange(steps, dtype=torch.float64)
    rise = max(round(_WARM_UP * steps), 1)
    rates = torch.minimum((at + 1) / rise, (steps - at) / max(steps - rise, 1))
    return (rate * rates.clamp(0, 1)).float()


class Descent:
    """Trains the weights of a module on a loss that depends on the number of the step alone.

    Parameters
    ----------
    module
        Its parameters become views of one vector.
    loss
        Loss as a function of the step, a tensor on the device with one whole number.
    rates
        Learning rate of each step.
    counted
        Which parameters, in their order, count in the recorded norm of the gradient.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Tensor], Tensor],
        rates: Float[Tensor, "steps"],
        counted: Sequence[bool],
    ) -> None:
        self._loss, self._weights = loss, list(module.parameters())
        self._flat = torch.cat([weight.detach().reshape(-1) for weight in self._weights])
        pieces = torch.split(self._flat, [weight.numel() for weight in self._weights])
        for weight, piece in zip(self._weights, pieces, strict=True):
            weight.data = piece.view_as(weight)
        sizes = zip(self._weights, counted, strict=True)
        self._counted = torch.cat([torch.full((w.numel(),), float(c)) for w, c in sizes])
        self._counted = self._counted.to(self._flat)
        self._first, self._second = torch.zeros_like(self._flat), torch.zeros_like(self._flat)
        self._rates = rates.to(self._flat)
        self._step = torch.zeros(1, dtype=torch.long, device=self._flat.device)
        self._losses = torch.full_like(self._rates, torch.nan)
        self._gradients = torch.full_like(self._rates, torch.nan)

    def run(self, *, graph: bool, advance: Callable[[int], None] = lambda steps: None) -> Trained:
        """Make all steps.

        Parameters
        ----------
        graph
            Whether a step is recorded as a CUDA graph and replayed; the weights must be on a GPU.
        advance
            Called with a number of finished steps now and then.
        """
        steps, told = len(self._rates), 0
        if graph:
            with torch.cuda.device(self._flat.device):
                step = self._recorded()
        else:
            step = self._make
        for number in range(1, steps + 1):
            step()
            if number % max(steps // 20, 1) == 0 or number == steps:
                advance(number - told)
                told = number
        return Trained(losses=self._losses.cpu(), gradients=self._gradients.cpu())

    def _make(self) -> None:
        """One step."""
        loss = self._loss(self._step)
        parts = torch.autograd.grad(loss, self._weights)
        with torch.no_grad():
            slope = torch.cat([part.reshape(-1) for part in parts])
            self._losses.index_copy_(0, self._step, loss.detach().reshape(1))
            size = torch.linalg.vector_norm(slope * self._counted)
            self._gradients.index_copy_(0, self._step, size.reshape(1))
            self._first.lerp_(slope, 1 - _BETAS[0])
            self._second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
            rate = self._rates.index_select(0, self._step)
            self._step += 1
            first = self._first / (1 - torch.pow(_BETAS[0], self._step))
            second = self._second / (1 - torch.pow(_BETAS[1], self._step))
            self._flat.sub_(rate * first / (second.sqrt() + _EPSILON))

    def _recorded(self) -> Callable[[], None]:
        """A replay of one step; the rehearsals are undone."""
        state = (self._flat, self._first, self._second, self._step)
        before = [part.clone() for part in state]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_REHEARSALS):
                self._make()
        torch.cuda.current_stream().wait_stream(stream)
        graph, step = torch.cuda.CUDAGraph(), self._make
        try:
            with torch.cuda.graph(graph):
                self._make()
            step = graph.replay
        except RuntimeError as error:
            warnings.warn(
                f"a step of training could not be recorded as a CUDA graph ({error}); its kernels "
                "are launched one by one, which takes longer.",
                ModelWarning,
                stacklevel=3,
            )
        for part, old in zip(state, before, strict=True):
            part.copy_(old)
        return step


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the factors of matrix products to TF32 inside the ``with`` block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
