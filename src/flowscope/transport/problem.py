"""A transport problem, checked once: geometry, masses and ε brought to one shape and dtype."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, refuse
from flowscope.transport.geometry import Geometry, as_geometry
from flowscope.transport.masses import as_masses, rounding_unit, same_total

__all__ = ["Problem", "as_problem", "as_strength", "once", "strength"]

_OTHER = {"row": "column", "column": "row"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A batch of problems with everything in the batch's shape."""

    geometry: Geometry
    a: Float[Tensor, "*batch n"]
    b: Float[Tensor, "*batch m"]
    epsilon: Float[Tensor, "*batch"]

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient with respect to costs or masses is asked for."""
        return torch.is_grad_enabled() and (
            self.geometry.requires_grad or self.a.requires_grad or self.b.requires_grad
        )

    def to(self, dtype: torch.dtype) -> "Problem":
        """The same problem in another dtype."""
        return Problem(
            geometry=self.geometry.to(dtype),
            a=self.a.to(dtype),
            b=self.b.to(dtype),
            epsilon=self.epsilon.to(dtype),
        )

    def rounding(self) -> float:
        """How far rounding alone moves a mass: the unit of the dtype times the largest C/ε."""
        largest = self.geometry.largest() / self.epsilon
        return float(torch.finfo(self.a.dtype).eps * largest.amax()) if largest.numel() else 0.0

    def flat(self) -> "Problem":
        """One batch axis, no gradient."""
        return Problem(
            geometry=self.geometry.flat(),
            a=self.a.detach().reshape(-1, self.geometry.n),
            b=self.b.detach().reshape(-1, self.geometry.m),
            epsilon=self.epsilon.reshape(-1),
        )

    def take(self, problems: Tensor | slice) -> "Problem":
        """Some problems of a flat batch."""
        return Problem(
            geometry=self.geometry.take(problems),
            a=self.a[problems],
            b=self.b[problems],
            epsilon=self.epsilon[problems],
        )


def as_problem(
    cost: Geometry | Tensor | ArrayLike,
    a: Tensor | ArrayLike | None,
    b: Tensor | ArrayLike | None,
    *,
    epsilon: float | Tensor | None,
    relative_epsilon: float | None,
    balanced: bool = True,
) -> Problem:
    """Read and check a problem; see ``docs/design/transport.md`` for what is accepted."""
    geometry = as_geometry(cost)
    wa, wb = as_masses(a, "a", geometry.n, geometry), as_masses(b, "b", geometry.m, geometry)
    dtype = torch.promote_types(torch.promote_types(wa.dtype, wb.dtype), geometry.dtype)
    if dtype != geometry.dtype:
        geometry = geometry.to(dtype)
    shapes = (geometry.batch, wa.shape[:-1], wb.shape[:-1])
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise InvalidInputError(
            "cost, a and b must have leading axes that broadcast; found "
            f"{', '.join(str(tuple(shape)) for shape in shapes)}. Align them."
        ) from error
    if geometry.batch != batch:
        geometry = geometry.expand(batch)
    wa, wb = wa.to(dtype).expand(*batch, geometry.n), wb.to(dtype).expand(*batch, geometry.m)
    if balanced:
        wb = wb * same_total(wa, wb, rounding_unit(a, dtype) + rounding_unit(b, dtype))
    _check_reach(geometry, wa, wb, "row")
    if balanced:
        _check_reach(geometry.transposed(), wb, wa, "column")
    return Problem(
        geometry=geometry,
        a=wa,
        b=wb,
        epsilon=as_strength(strength(geometry, epsilon, relative_epsilon), batch, "epsilon"),
    )


def _check_reach(geometry: Geometry, masses: Tensor, others: Tensor, side: str) -> None:
    """Raise if a row (or column, of the transposed geometry) that holds mass reaches none."""
    mask = geometry.mask()
    if mask is None:
        return
    reached = (mask & (others.detach() > 0)[..., None, :]).any(-1)
    lost = ~reached & (masses.detach() > 0)
    if bool(lost.any()):
        *problem, place = lost.nonzero()[0].tolist()
        raise InvalidInputError(
            f"every {side} that holds mass must reach some {_OTHER[side]} that does; {side} "
            f"{place}{f' of problem {tuple(problem)}' if problem else ''} is masked everywhere "
            "else. Give it mass zero or unmask a pair."
        )


def as_strength(
    x: Float[Tensor, "..."], batch: tuple[int, ...], name: str
) -> Float[Tensor, "*batch"]:
    """Bring one number, or one a problem, to the shape of the batch."""
    try:
        return x.expand(batch)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{name} must be a number or have the shape of the batch, {tuple(batch)}; found shape "
            f"{tuple(x.shape)}. Pass one for each problem."
        ) from error


def strength(
    geometry: Geometry, epsilon: float | Tensor | None, relative_epsilon: float | None
) -> Float[Tensor, "*batch"]:
    """ε of each problem, from an absolute number or a multiple of the median cost."""
    if (epsilon is None) == (relative_epsilon is None):
        raise InvalidInputError(
            "exactly one of epsilon (absolute) and relative_epsilon (in units of the median cost) "
            f"must be given; found epsilon={epsilon} and relative_epsilon={relative_epsilon}."
        )
    name, given = (
        ("epsilon", epsilon) if relative_epsilon is None else ("relative_epsilon", relative_epsilon)
    )
    value = torch.as_tensor(given, dtype=geometry.dtype, device=geometry.device).detach()
    refuse(
        ~(value.isfinite() & (value > 0)),
        value,
        f"{name} must be positive and finite",
        "For unregularised transport use exact().",
    )
    if relative_epsilon is None:
        return value
    median = geometry.median()
    refuse(
        ~(median > 0),
        median,
        "relative_epsilon needs a positive median cost",
        "Most costs are zero: pass an absolute epsilon.",
    )
    return value * median


class _Once(torch.autograd.Function):
    """The identity, whose slope refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return gradient
        refusal = torch._C._functions.DelayedError(
            b"couplings can be differentiated once; a second slope would be wrong", 1
        )
        (x,) = ctx.saved_tensors
        return refusal(gradient + 0 * x)  # in the way of any second slope


def once(x: Tensor) -> Tensor:
    """The same number; torch raises if its slope is differentiated again."""
    return _Once.apply(x) if x.requires_grad else x  # type: ignore[no-untyped-call]
