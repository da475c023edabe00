r"""A coupling and how right it is: what every solver of the family returns."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike, as_reals
from flowscope.transport.geometry import Geometry
from flowscope.transport.masses import log_mass
from flowscope.transport.problem import once

__all__ = ["Coupling", "ExactCoupling", "Status"]

Status: TypeAlias = Literal["converged", "not converged"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Coupling:
    r"""Joint masses with the potentials that make them.

    .. math:: \Pi_{ij} = a_i b_j \exp\big((f_i + g_j - C_{ij})/\varepsilon\big)

    Attributes
    ----------
    geometry
        The cost C.
    a, b
        Masses asked for; with free columns b is the prior.
    f, g
        Potentials, in units of cost, up to a constant moved from one to the other.
    epsilon
        ε of each problem.
    relaxation
        ρ of each problem: the strength of KL(Π'1‖b); ∞ where columns are fixed, 0 where free.
    marginal_error
        ℓ₁ distance of the marginals from what was asked, divided by the total mass. For relaxed
        columns, their distance from the columns that the potentials call for.
    iterations
        Sweeps spent on each problem.
    converged
        Whether each problem is within its tolerance.
    relaxed_axis
        -1 when ρ is about the columns, -2 after :meth:`transposed`.
    """

    geometry: Geometry
    a: Float[Tensor, "*batch n"]
    b: Float[Tensor, "*batch m"]
    f: Float[Tensor, "*batch n"]
    g: Float[Tensor, "*batch m"]
    epsilon: Float[Tensor, "*batch"]
    relaxation: Float[Tensor, "*batch"]
    marginal_error: Float[Tensor, "*batch"]
    iterations: Int[Tensor, "*batch"]
    converged: Bool[Tensor, "*batch"]
    relaxed_axis: int = -1

    @property
    def status(self) -> Status:
        """``"converged"`` when every problem of the batch is within tolerance."""
        return "converged" if bool(self.converged.all()) else "not converged"

    def _scalings(self) -> tuple[Tensor, Tensor]:
        e = self.epsilon[..., None]
        return log_mass(self.a) + self.f / e, log_mass(self.b) + self.g / e

    @property
    def matrix(self) -> Float[Tensor, "*batch n m"]:
        """Π itself: n × m numbers, made when asked for."""
        return self.geometry.masses(*self._scalings(), self.epsilon)

    @property
    def cost(self) -> Float[Tensor, "*batch"]:
        """⟨C, Π⟩, what the mass pays on its way; without the entropy."""
        return self.geometry.expected(*self._scalings(), self.epsilon).sum(-1)

    @property
    def value(self) -> Float[Tensor, "*batch"]:
        r"""Least value of the problem, from its dual.

        .. math:: \langle a, f\rangle + \langle b, g\rangle - \varepsilon(|\Pi| - |a|)

        and for relaxed columns :math:`-\rho\langle b, e^{-g/\rho} - 1\rangle` in place of ⟨b, g⟩.
        Its gradient is taken at fixed potentials (envelope theorem): ∂/∂C = Π, ∂/∂a = f, ∂/∂b = g.
        It can be differentiated once.

        The entropy is :math:`\varepsilon\sum\Pi\log(\Pi/(a\otimes b))`, without the terms
        :math:`-|\Pi| + |a||b|` that some libraries add. For fixed masses of total m instead of 1
        the reference a⊗b has mass m², so that the value is m times that of the normalised problem
        less :math:`\varepsilon\,m\log m`.
        """
        fixed_both = not bool(self.relaxation.isfinite().any())
        held = replace(self, f=self.f.detach(), g=self.g.detach())
        # the reference a⊗b moves with the masses: of fixed ones by a constant, of relaxed ones not
        if self.relaxed_axis == -1 or fixed_both:
            held = replace(held, a=self.a.detach())
        if self.relaxed_axis == -2 or fixed_both:
            held = replace(held, b=self.b.detach())
        sides = [(self.a, held.f), (self.b, held.g)]
        relaxed, g = sides.pop(self.relaxed_axis + 2)
        fixed, f = sides[0]
        finite = self.relaxation.isfinite() & (self.relaxation > 0)
        rho = torch.where(finite, self.relaxation, 1.0)[..., None]
        pull = torch.where(finite[..., None], -rho * torch.expm1(-g / rho), g)
        excess = held.rows.sum(-1) - fixed.detach().sum(-1)
        return once((fixed * f).sum(-1) + (relaxed * pull).sum(-1) - self.epsilon * excess)

    def apply(self, v: Tensor | ArrayLike) -> Tensor:
        """Πv for v of shape (m,), (…, m, k); no matrix is formed for a point cloud."""
        v = as_reals(v, "v", self.a.device)
        wide = torch.promote_types(v.dtype, self.a.dtype)
        if wide != self.a.dtype:
            return self._to(wide).apply(v)
        v, flat = v.to(wide), v.ndim == 1
        w = v[:, None] if flat else v
        if w.shape[-2] != self.geometry.m:
            raise InvalidInputError(
                f"v must have one entry or row for each of the {self.geometry.m} columns; found "
                f"shape {tuple(v.shape)}. For the other side use transposed().apply."
            )
        batch = np.broadcast_shapes(w.shape[:-2], self.geometry.batch)
        out = self._expanded(batch)._product(w.expand(*batch, *w.shape[-2:]))
        return out[..., 0] if flat else out

    def _expanded(self, batch: tuple[int, ...]) -> "Coupling":
        """The same coupling for a larger batch, without copies."""
        if batch == self.geometry.batch:
            return self
        vectors = {name: getattr(self, name).expand(*batch, -1) for name in ("a", "b", "f", "g")}
        return replace(
            self,
            geometry=self.geometry.expand(batch),
            epsilon=self.epsilon.expand(batch),
            **vectors,
        )

    def _product(self, w: Tensor) -> Tensor:
        return self.geometry.product(*self._scalings(), self.epsilon, w)

    def barycentric(self, y: Tensor | ArrayLike) -> Tensor:
        """Where each row's mass goes on average, Πy / Π1; y of shape (m,) or (…, m, k).

        Rows without mass have a place to go to as well: their potential says where.
        """
        y = as_reals(y, "y", self.a.device)
        unit = self._with_unit_rows()
        return unit.apply(y) / (unit.rows if y.ndim == 1 else unit.rows[..., None])

    def _with_unit_rows(self) -> "Coupling":
        return replace(self, a=torch.ones_like(self.a))

    def _to(self, dtype: torch.dtype) -> "Coupling":
        vectors = {name: getattr(self, name).to(dtype) for name in ("a", "b", "f", "g", "epsilon")}
        return replace(self, geometry=self.geometry.to(dtype), **vectors)

    @property
    def rows(self) -> Float[Tensor, "*batch n"]:
        """Row marginal, Π1."""
        return self.apply(self.b.new_ones(self.geometry.m))

    @property
    def columns(self) -> Float[Tensor, "*batch m"]:
        """Column marginal, Π'1."""
        return self.transposed().rows

    def transposed(self) -> "Coupling":
        """The same masses with rows and columns exchanged."""
        return replace(
            self,
            geometry=self.geometry.transposed(),
            a=self.b,
            b=self.a,
            f=self.g,
            g=self.f,
            relaxed_axis=-3 - self.relaxed_axis,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCoupling(Coupling):
    """A coupling without entropy: its masses are stored, and ε is zero."""

    masses: Float[Tensor, "*batch n m"]

    @property
    def matrix(self) -> Float[Tensor, "*batch n m"]:
        """Π itself."""
        return self.masses

    @property
    def cost(self) -> Float[Tensor, "*batch"]:
        """⟨C, Π⟩; its gradient holds Π fixed, which is the envelope theorem again."""
        C = self.geometry.dense()
        return torch.where(self.masses > 0, C, 0.0).mul(self.masses).sum((-2, -1))

    @property
    def value(self) -> Float[Tensor, "*batch"]:
        """The same as the cost: there is no entropy."""
        return self.cost

    def _expanded(self, batch: tuple[int, ...]) -> "ExactCoupling":
        return self  # a product broadcasts by itself

    def _with_unit_rows(self) -> "ExactCoupling":
        return self  # there is no entropy to say where no mass would go: those rows are NaN

    def _to(self, dtype: torch.dtype) -> "ExactCoupling":
        return replace(self, a=self.a.to(dtype), masses=self.masses.to(dtype))

    def _product(self, w: Tensor) -> Tensor:
        return self.masses @ w

    def transposed(self) -> "ExactCoupling":
        """The same masses with rows and columns exchanged."""
        return replace(cast(ExactCoupling, super().transposed()), masses=self.masses.mT)
