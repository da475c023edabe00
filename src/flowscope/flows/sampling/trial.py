"""A trial step of Dormand and Prince's method as one piece of work on fixed memory.

:func:`flowscope.flows.sampling.smooth_path` launches it at once on a GPU, where its hundred and
more small kernels would be launched one by one otherwise. The clock and the step are numbers in the
memory of the device, because a recorded function keeps the numbers of the host that it was
recorded with.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.flows.recording import Recording
from flowscope.flows.sampling.fields import Field, field_at

__all__ = ["RecordedTrial"]


class RecordedTrial:
    """Trial steps from one state to the next, recorded at the second.

    Parameters
    ----------
    velocity : tensor operations alone, the same at every call; t is on the device of x.
    x : the first state.
    slopes : where the slopes are written; the first one is that of the state.
    stages, error : weights of the slopes in each stage, and in the error.
    rtol, atol : every entry's error is measured by atol + rtol |x|.

    Attributes
    ----------
    x, new
        The state, and the one after the trial step.
    """

    def __init__(
        self,
        velocity: Field,
        x: Float[Tensor, "..."],
        slopes: Float[Tensor, "stages ..."],
        stages: Sequence[Sequence[float]],
        error: Sequence[float],
        *,
        rtol: float,
        atol: float,
    ) -> None:
        self._velocity, self._rtol, self._atol = velocity, rtol, atol
        self.x, self.new = x.clone(), torch.empty_like(x)
        self._slopes = slopes
        self._flat = slopes.flatten(1).mT if x.ndim else slopes[None]
        width = len(error)
        rows = [[*row, *[0.0] * (width - len(row))] for row in (*stages, error)]
        self._table = torch.tensor(rows, dtype=x.dtype).to(x.device)
        on_gpu = x.device.type == "cuda"
        self._given = torch.zeros(len(stages) + 1, dtype=torch.float64, pin_memory=on_gpu)
        self._clock = self._given.to(x.device)
        self._numbers = torch.zeros(2, dtype=x.dtype, device=x.device)
        self._recording = Recording(self._work, x.device)

    def __call__(self, times: Sequence[float], step: float) -> tuple[float, float]:
        """Try a step with stages at these times; the largest error by its tolerance, and |new|."""
        self._given.numpy()[:] = [*times, step]
        self._clock.copy_(self._given, non_blocking=True)
        self._recording()
        ratio, largest = self._numbers.tolist()  # waits, so that the numbers given may be replaced
        return ratio, largest

    def accept(self) -> Tensor:
        """Take the new state as the state; its slope becomes the first."""
        self.x.copy_(self.new)
        self._slopes[0].copy_(self._slopes[-1])
        return self.x

    def _work(self) -> None:
        clock = self._clock.to(self.x.dtype)
        weights = self._table * clock[-1]
        start = new = self.x.reshape(-1)
        for number in range(len(self._table) - 1):
            slopes = self._flat[:, : number + 1]
            new = torch.addmv(start, slopes, weights[number, : number + 1])
            slope = field_at(self._velocity, clock[number], new.view_as(self.x), "velocity")
            self._slopes[number + 1].copy_(slope)
        error = torch.mv(self._flat, weights[-1])
        size = torch.maximum(start.abs(), new.abs())
        ratio = (error / torch.add(self._atol, size, alpha=self._rtol)).abs().amax()
        torch.stack([ratio, new.abs().amax()], out=self._numbers)
        self.new.copy_(new.view_as(self.x))
