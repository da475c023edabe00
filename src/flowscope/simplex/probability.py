r"""Probability vectors: what is accepted, whose p is meant, and its split into peak and tail.

Every function of this package acts on the normalised vector

.. math:: \hat p = p / \textstyle\sum_j p_j, \qquad |\textstyle\sum_j p_j - 1|
          \le \max(\sqrt V, 4)\,\varepsilon + \tfrac V8\,\bar\varepsilon,

with the sum taken in float64; ε is the rounding unit of the dtype that came in and ε̄ that of the
dtype we compute in. A sum further from one than this (or than ½) is not rounding, and raises. The
first term is the rounding of the entries. The second is torch's own: a CPU softmax adds its V
exponentials one after the other in as few as four lanes, and V/4 such additions are off by up to
V/8 units. (√V·ε alone refuses honest float32 softmaxes: a peak of ½ over a flat tail misses one by
6√V·ε at V = 50,257, and so do a few float64 rows in a million at V = 3…12, hence the floor 4.)
Slopes are those of p ↦ f(p/Σp): they are blind to the component along p itself.

Near a vertex everything interesting is in the tail, and 1 − p₁ has lost it. Statistics are
therefore read from :func:`split_peak`, never from one minus the peak.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "ArrayLike",
    "aligned",
    "as_batch",
    "as_probabilities",
    "as_reals",
    "as_tensor",
    "as_vectors",
    "check_outcomes",
    "check_rows",
    "refuse",
    "split_peak",
    "within_range",
]

ArrayLike: TypeAlias = npt.NDArray[Any] | Sequence[Any]

# Sums are taken over this many numbers at a time: torch widens a float32 tensor as a whole.
_WIDENED = 2**22


def as_tensor(x: Tensor | ArrayLike | float, name: str, device: torch.device | None) -> Tensor:
    """Read x as a floating-point tensor; lists and numbers become float64."""
    if not isinstance(x, Tensor):
        try:
            array = x if isinstance(x, np.ndarray) else np.asarray(x, dtype=np.float64)
            x = torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"{name} must be a tensor, an array or nested lists of numbers; found a "
                f"{type(x).__name__} that could not be read as such ({error}). "
                "Convert it to a torch tensor before the call."
            ) from error
    if not x.is_floating_point():
        raise InvalidInputError(
            f"{name} must have a real floating-point dtype; found {x.dtype}. "
            "Convert it on purpose before the call, for instance with .double()."
        )
    return x


def as_reals(
    x: Tensor | ArrayLike | float, name: str, device: torch.device | None = None
) -> Tensor:
    """Read x as a tensor of float32 or float64; narrower dtypes are widened to float32."""
    x = as_tensor(x, name, device)
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def refuse(
    bad: Bool[Tensor, "*shape"], x: Float[Tensor, "*shape"], expected: str, todo: str
) -> None:
    """Raise on the first entry of x marked bad, naming its value and place."""
    if not bool(bad.any()):
        return
    place = tuple(bad.nonzero()[0].tolist())
    at = f" at {place}" if place else ""
    raise InvalidInputError(f"{expected}; found {x[place].item():.6g}{at}. {todo}")


def within_range(x: Tensor, what: str, *, infinite: bool = False) -> Tensor:
    """A result of finite numbers; raise where it is NaN, or infinite without being a limit.

    A square, a product or a difference on the way has left the range of the dtype then.
    """
    bad = ~x.isfinite() if infinite else x.isnan()
    if bool(bad.any()):
        place = tuple(bad.nonzero()[0].tolist())
        largest = torch.finfo(x.dtype).max
        raise InvalidInputError(
            f"{what} cannot be computed in {str(x.dtype).removeprefix('torch.')}, which holds "
            f"numbers up to {largest:.2g}: an intermediate result is beyond it, or the input is "
            f"not a number{f' (at {place})' if place else ''}. Divide the input by a constant, or "
            "pass float64."
        )
    return x


def check_outcomes(x: Tensor, name: str) -> None:
    """Raise unless the last axis of x holds at least two outcomes."""
    if x.ndim == 0:
        raise InvalidInputError(
            f"{name} must have an outcome axis (its last); found a number of shape (). "
            f"Pass a vector of at least two outcomes."
        )
    if x.shape[-1] < 2:
        raise InvalidInputError(
            f"{name} must have at least two outcomes on its last axis: a simplex of one is a "
            f"point; found shape {tuple(x.shape)}. Put the outcomes on the last axis."
        )


def as_vectors(
    x: Tensor | ArrayLike, name: str, device: torch.device | None = None
) -> Float[Tensor, "*batch V"]:
    """Read x as finite real vectors over at least two outcomes."""
    x = as_reals(x, name, device)
    check_outcomes(x, name)
    refuse(~x.isfinite(), x, f"{name} must be finite", "Remove or mask such entries first.")
    return x


def as_probabilities(p: Tensor | ArrayLike, name: str) -> Float[Tensor, "*batch V"]:
    """Read p as probability vectors and divide each by its sum."""
    x = as_tensor(p, name, None)
    check_outcomes(x, name)
    epsilon = torch.finfo(x.dtype).eps
    x = as_reals(x, name)
    total = _row_sums(x)
    check_rows(x, total, x.detach().amin(-1), epsilon, name)
    return x / total.to(x.dtype)[..., None]


def _row_sums(x: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch"]:
    V = x.shape[-1]
    rows = torch.split(x.reshape(-1, V), max(1, _WIDENED // V))
    return torch.cat([part.sum(-1, dtype=torch.float64) for part in rows]).reshape(x.shape[:-1])


def check_rows(
    p: Float[Tensor, "*batch V"],
    total: Float[Tensor, "*batch"],
    smallest: Float[Tensor, "*batch"],
    epsilon: float,
    name: str,
) -> None:
    """Raise unless every row is finite, without negative entry, and sums to one.

    The sums and the smallest entries come from the caller, who may have them from a pass of its
    own; the rows themselves are read again only to say what is wrong.
    """
    V = p.shape[-1]
    rounding = max(math.sqrt(V), 4.0) * epsilon + V / 8 * torch.finfo(p.dtype).eps
    tolerance = min(rounding, 0.5)
    off = total - 1
    if bool(((off.abs() <= tolerance) & (smallest >= 0)).all()):
        return
    refuse(~p.isfinite(), p, f"{name} must be finite", "Look for the overflow before the softmax.")
    refuse(p < 0, p, f"{name} must have no negative entry", "Project or mask on purpose first.")
    row = tuple((off.abs() > tolerance).nonzero()[0].tolist())
    which = f"row {row}" if row else "it"
    raise InvalidInputError(
        f"{name} must sum to one within {tolerance:.3g}, its rounding for {V} outcomes; {which} "
        f"sums to {total[row].item():.9g}, off by {off[row].item():+.3g}. Divide by the sum, or "
        "take the softmax in the dtype you pass."
    )


def split_peak(
    p: Float[Tensor, "*batch V"],
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch V"]]:
    """Split p into its largest entry and the rest, the rest with a zero in the peak's place."""
    place = p.detach().argmax(-1, keepdim=True)
    return p.gather(-1, place)[..., 0], p.scatter(-1, place, 0.0)


def aligned(
    p: Float[Tensor, "*batch V"], v: Float[Tensor, "*batch V"], names: tuple[str, str]
) -> tuple[Float[Tensor, "*batch V"], Float[Tensor, "*batch V"]]:
    """Bring two families of vectors to one shape and the wider dtype."""
    if p.shape[-1] != v.shape[-1]:
        raise InvalidInputError(
            f"{names[0]} has {p.shape[-1]} outcomes and {names[1]} has {v.shape[-1]}; they must "
            "have the same. Restrict both to common outcomes first."
        )
    dtype = torch.promote_types(p.dtype, v.dtype)
    shape = _common_batch(p.shape[:-1], v.shape[:-1], names)
    return p.to(dtype).expand(*shape, -1), v.to(dtype).expand(*shape, -1)


def as_batch(
    x: Tensor | ArrayLike | float, name: str, p: Float[Tensor, "*batch V"], owner: str
) -> Float[Tensor, "*batch"]:
    """Read x as one finite number per row of p; a plain number takes the dtype of p."""
    y = as_reals(x, name, p.device)
    y = y.to(p.dtype) if isinstance(x, int | float) else y
    refuse(~y.isfinite(), y, f"{name} must be finite", "Look for the overflow upstream.")
    _common_batch(p.shape[:-1], y.shape, (owner, name))
    return y


def _common_batch(
    first: Sequence[int], second: Sequence[int], names: tuple[str, str]
) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(tuple(first), tuple(second))
    except ValueError as error:
        raise InvalidInputError(
            f"{names[0]} and {names[1]} must have leading shapes that broadcast; found "
            f"{tuple(first)} and {tuple(second)}. Add or align the leading axes."
        ) from error
