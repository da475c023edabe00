r"""The way from the output of attention to its write to the stream, found and checked on a pass.

After its kernel, attention joins its heads, projects them, and may scale the result: by a gate of
each feature (diffusion transformers) or by a norm (Gemma). With $y = M(o)$ the projection,

$$
w_{if} = a_i\, b_f\, y_{if}
$$

holds in all of them, $a$ a number for every token (one, or the divisor of a norm on this pass) and
$b$ one for every feature. So the parts of $o$ become parts of the write that sum to it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flowscope.records import Unavailable

__all__ = ["OutputPath", "output_path"]

_ROUNDS = 3  # of alternating least squares for the two scales
_ALLOWED = 2e3  # roundings by which the replayed write may miss the model's


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputPath:
    """A linear map from outputs of attention to writes, on one pass.

    Attributes
    ----------
    module
        The output projection.
    token_scale, feature_scale
        a and b; per row of the batch.
    error
        ‖replayed write − write‖ / ‖write‖.
    """

    module: nn.Module
    token_scale: Float[Tensor, "batch L 1"]
    feature_scale: Float[Tensor, "batch 1 d"]
    error: float

    def __call__(self, part: Float[Tensor, "batch H L dv"]) -> Float[Tensor, "batch L d"]:
        """The part of the write that comes from a part of attention's output; no bias."""
        joined = _joined(part)
        nothing = _projected(self.module, torch.zeros_like(joined[:1, :1]))
        written = _projected(self.module, joined) - nothing
        return self.token_scale * self.feature_scale * written

    def bias(self, like: Float[Tensor, "batch H L dv"]) -> Float[Tensor, "batch L d"]:
        """What the path adds whatever attention returns."""
        written = _projected(self.module, torch.zeros_like(_joined(like)[:1, :1]))
        return self.token_scale * self.feature_scale * written


def output_path(
    scope: nn.Module,
    output: Float[Tensor, "batch H L dv"],
    write: Float[Tensor, "batch L d"],
    usual: nn.Module | None = None,
) -> OutputPath | Unavailable:
    """Find the projection below ``scope`` that takes ``output`` to ``write``.

    Parameters
    ----------
    scope
        The module that calls attention, or its block.
    output, write
        Of one pass: what the kernel returned, and what was added to the stream.
    usual
        The projection that was found on an earlier pass; it is tried first.

    Returns
    -------
    OutputPath or Unavailable
        Unavailable where no projection below the scope gives the write up to scales of tokens and
        features, within rounding.
    """
    if output.ndim != 4 or write.ndim != 3 or output.shape[-2] != write.shape[-2]:
        return Unavailable("attention and write do not have the same tokens")
    joined, best = _joined(output), None
    known = None if usual is None else _fitted(usual, joined, write)
    if known is not None and known.error <= _bound(known.module):
        return known
    for module in scope.modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2:
            continue
        sizes = {tuple(weight.shape), tuple(weight.shape[::-1])}
        if (write.shape[-1], joined.shape[-1]) not in sizes or not weight.is_floating_point():
            continue
        path = _fitted(module, joined, write)
        if path is not None and (best is None or path.error < best.error):
            best = path
    if best is None or not best.error <= _bound(best.module):
        return Unavailable(
            "no projection takes the output of attention to its write: another map stands between"
        )
    return best


def _fitted(
    module: nn.Module, joined: Float[Tensor, "batch L m"], write: Float[Tensor, "batch L d"]
) -> OutputPath | None:
    try:
        y = _projected(module, joined)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # not a projection of this width
    if y.shape != write.shape or not y.is_floating_point():
        return None
    a, b = torch.ones_like(write[..., :1]), torch.ones_like(write[:, :1])
    if not bool((y - write).norm() <= _bound(module) * write.norm()):
        b = _ratio_of_longest(write, y)
        for _ in range(_ROUNDS):
            a = _ratio(write, b * y, -1)
            b = _ratio(write, a * y, -2)
    missed = (a * b * y - write).norm() / write.norm().clamp_min(torch.finfo(write.dtype).tiny)
    return OutputPath(module=module, token_scale=a, feature_scale=b, error=float(missed.detach()))


def _ratio(goal: Tensor, x: Tensor, axis: int) -> Tensor:
    """Least-squares scale along an axis; 1 where there is nothing to scale."""
    squares = x.square().sum(axis, keepdim=True)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(squares > 0, (goal * x).sum(axis, keepdim=True) / squares.clamp_min(tiny), 1)


def _ratio_of_longest(goal: Tensor, x: Tensor) -> Tensor:
    """Feature scales read from the longest token of every row."""
    longest = x.norm(dim=-1, keepdim=True).argmax(-2, keepdim=True).expand(-1, 1, x.shape[-1])
    above, below = goal.gather(-2, longest), x.gather(-2, longest)
    return torch.where(below == 0, 1.0, above / torch.where(below == 0, 1.0, below))


def _projected(module: nn.Module, joined: Tensor) -> Tensor:
    """The projection in its own precision, its result widened to that of its input."""
    y = module(joined.to(_dtype(module)))
    if not isinstance(y, Tensor):
        raise TypeError("not a projection")
    return y.to(joined.dtype)


def _bound(module: nn.Module) -> float:
    """How far a replayed write may miss, relative to its size.

    Rounding of a long sum in single precision, in which models of float64 often compute norms.
    """
    rounding = torch.finfo(_dtype(module))
    return 8 * rounding.eps if rounding.bits < 32 else _ALLOWED * torch.finfo(torch.float32).eps


def _dtype(module: nn.Module) -> torch.dtype:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.dtype


def _joined(x: Float[Tensor, "batch H L dv"]) -> Float[Tensor, "batch L m"]:
    return x.transpose(-2, -3).flatten(-2)
