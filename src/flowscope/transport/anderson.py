r"""Anderson acceleration of a batch of fixed-point iterations, one memory for each problem.

From residuals :math:`r_k = G(x_k) - x_k` of the last :math:`m` steps,

.. math:: x^+ = G(x) - (\Delta X + \Delta R)\,\gamma, \qquad
          \gamma = \arg\min_\gamma \|r - \Delta R\,\gamma\|_w.

The caller judges the step and calls :meth:`Anderson.forget` for problems where it was no good.
Source: 000 App. M.3 asks for it without a safeguard; Walker & Ni (2011).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Anderson"]

# Relative to the Gram matrix's trace: below this a direction of the memory is rounding.
_RIDGE = 1e-14
_RIDGE_SINGLE = 1e-8


class Anderson:
    """Memory of the last steps of each problem of a batch.

    Parameters
    ----------
    depth
        How many differences are kept, m.
    weights
        w of the norm, one for each coordinate.
    """

    def __init__(self, depth: int, weights: Float[Tensor, "B n"]) -> None:
        self._weights, self._depth, self._at = weights, depth, 0
        self._steps = weights.new_zeros(len(weights), depth, weights.shape[-1])
        self._turns = torch.zeros_like(self._steps)
        self._last: tuple[Tensor, Tensor] | None = None
        self._known = torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
        self._ridge = _RIDGE if weights.dtype == torch.float64 else _RIDGE_SINGLE

    def step(self, x: Float[Tensor, "B n"], residual: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Next point of each problem, after remembering this one."""
        if self._last is not None:
            known = self._known[:, None]
            self._steps[:, self._at] = torch.where(known, x - self._last[0], 0.0)
            self._turns[:, self._at] = torch.where(known, residual - self._last[1], 0.0)
            self._at = (self._at + 1) % self._depth
        self._last, self._known = (x, residual), torch.ones_like(self._known)
        weighted = self._turns * self._weights[:, None]
        gram = torch.bmm(weighted, self._turns.mT).double()
        right = torch.bmm(weighted, residual[..., None]).double()
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        ridge = self._ridge * trace + torch.finfo(torch.float64).tiny
        gram.diagonal(dim1=-2, dim2=-1).add_(ridge[:, None])
        mixture = torch.linalg.solve_ex(gram, right)[0].to(x.dtype)
        back = torch.bmm(mixture.mT, self._steps + self._turns)[:, 0]
        return x + residual - torch.where(back.isfinite(), back, 0.0)

    def forget(self, problems: Bool[Tensor, "B"]) -> None:
        """Clear the memory of some problems."""
        self._steps[problems], self._turns[problems] = 0.0, 0.0
        self._known = self._known & ~problems

    def shift(self, by: Float[Tensor, "B n"]) -> None:
        """Move the origin that points are measured from."""
        if self._last is not None:
            self._last = (self._last[0] + by, self._last[1])

    def take(self, problems: Tensor) -> "Anderson":
        """The memories of some problems, as a smaller batch."""
        new = Anderson(self._depth, self._weights[problems])
        new._steps, new._turns = self._steps[problems], self._turns[problems]
        new._at, new._known = self._at, self._known[problems]
        if self._last is not None:
            new._last = (self._last[0][problems], self._last[1][problems])
        return new
