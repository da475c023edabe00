"""From one iterate of a scaling to the next: plain, or accelerated and safeguarded."""

import torch
from jaxtyping import Bool
from torch import Tensor

from flowscope.transport.anderson import Anderson
from flowscope.transport.state import Scaling

__all__ = ["Walk"]

_DEPTH = 5
_SETTLE = 3  # sweeps before acceleration: the first ones contract by themselves
_REST = 2.0  # plain sweeps after an accelerated step was undone
_ROUNDING = 8.0  # units of rounding by which a dual value may fall


class Walk:
    """From one iterate to the next, accelerated and safeguarded, one decision a problem.

    Plain sweeps never lower the dual value, so an accelerated step that does is undone: its problem
    goes on from the plain successor of the iterate before, and after two plain sweeps tries again.
    (Judging by the marginal error instead cycles: it may rise for a while on a good path.)
    """

    def __init__(self, state: Scaling, accelerate: bool) -> None:
        self._memory = Anderson(_DEPTH, state.problem.b) if accelerate else None
        self._last: tuple[Tensor, Tensor] | None = None
        self._plain = state.x
        self._rest = torch.ones_like(state.epsilon)
        self._settling = _SETTLE
        self._slack = torch.zeros_like(state.epsilon)
        self._mixed = torch.zeros_like(state.epsilon, dtype=torch.bool)
        # no potential of a solution ranges over more than the cost does
        self._farthest = state.problem.geometry.largest() / state.epsilon

    def take(self, problems: Tensor) -> "Walk":
        """Some problems, as a smaller batch."""
        new = object.__new__(Walk)
        new._memory = None if self._memory is None else self._memory.take(problems)
        new._settling, last = self._settling, self._last
        new._last = None if last is None else (last[0][problems], last[1][problems])
        for name in ("_plain", "_rest", "_slack", "_mixed", "_farthest"):
            setattr(new, name, getattr(self, name)[problems])
        return new

    def advance(self, state: Scaling) -> None:
        """Move every problem to its next iterate."""
        plain = state.x + state.change
        if self._memory is None or self._settling > 0:
            self._settling -= 1
            self._plain, state.x = plain, plain
            state.hold()
            return
        # plain sweeps are not judged: they only seem to fall, by rounding
        bad = (self._fallen(state) & self._mixed) | ~state.error.isfinite()
        log_u, x = state.log_u, state.x
        if self._last is not None:
            log_u = torch.where(bad[:, None], self._last[0], log_u)
            x = torch.where(bad[:, None], self._last[1], x)
        mixed = self._memory.step(_fixed(state, state.x), _fixed(state, state.change))
        far = ~((mixed - state.x).abs().amax(-1) <= self._farthest)
        self._mixed = ~(far | bad | (self._rest > 0))
        following = torch.where(self._mixed[:, None], mixed, plain)
        state.x = torch.where(bad[:, None], self._plain, following)
        self._last = (log_u, x)
        self._plain = torch.where(bad[:, None], self._plain, plain)
        self._rest = torch.where(bad, _REST, self._rest - 1)
        if bool(bad.any()):
            self._memory.forget(bad)
        phi, psi = state.phi, state.psi
        if state.hold():  # a new kernel: carry what is remembered into its frame
            shift = psi - state.psi
            self._plain = torch.where(bad[:, None], state.x, self._plain + shift)
            self._last = (log_u + (phi - state.phi), x + shift)
            self._slack = shift.abs().amax(-1)
            self._memory.shift(_fixed(state, shift))

    def _fallen(self, state: Scaling) -> Bool[Tensor, "B"]:
        """Problems whose dual value fell by more than its rounding."""
        lost = ~state.error.isfinite()
        if self._last is None:
            return lost
        gain = state.dual_gain(*self._last)
        unit = _ROUNDING * torch.finfo(state.x.dtype).eps
        slack, self._slack = 1 + self._slack, torch.zeros_like(self._slack)
        return lost | ~(gain >= -unit * slack)


def _fixed(state: Scaling, x: Tensor) -> Tensor:
    """Without the constant that moves freely between rows and columns."""
    if state.relaxation is not None:
        return x
    return x - (x * state.problem.b).sum(-1, keepdim=True)
