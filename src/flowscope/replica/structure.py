r"""What source 004 assumes about a block, measured: pattern, MLP, order of routing, products.

With the modal gains of `flowscope.replica.gains`,

$$
\eta_k(g) = (1 + \lambda_k^{\rm MLP}) + \rho(g)\,\chi_k + \pi_k(g) ,
$$

the source takes it that $|\pi_k| \ll |\chi_k|$ (eq 59), that $\lambda_k^{\rm MLP}$ does not
depend on $k$ (eq 60), that $\chi$ is larger for leading modes than for trailing ones (eq 61), and
that gains multiply from layer to layer (eq 56). Gains multiply within *one* reverse step at most:
hidden states are made anew at each (E85).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.replica.gains import fitted_modes, inner_product, modal_gains
from flowscope.replica.propagator import Propagator

__all__ = [
    "ModalProduct",
    "StructuralAssumptions",
    "modal_product",
    "structural_assumptions",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuralAssumptions:
    r"""What source 004 takes for granted about a block, as it is; per mode, or per state.

    Attributes
    ----------
    chi
        $\chi_k$, gain of routing without its gate (that is, at $g = 0$).
    pi
        Gain of both pattern channels at this coupling, as it enters $\eta_k(g)$.
    mlp
        $\lambda_k^{\rm MLP}$, direct gain less one.
    chi_leading, chi_trailing
        Means of χ over the first and the last modes.
    """

    chi: Float[Tensor, "modes *batch"]
    pi: Float[Tensor, "modes *batch"]
    mlp: Float[Tensor, "modes *batch"]
    chi_leading: Float[Tensor, "*batch"]
    chi_trailing: Float[Tensor, "*batch"]

    @property
    def pattern_share(self) -> Float[Tensor, "modes *batch"]:
        r"""$|\pi_k| / |\chi_k|$; eq 59 wants it far below one."""
        return (self.pi / self.chi).abs()

    @property
    def mlp_spread(self) -> Float[Tensor, "*batch"]:
        r"""Standard deviation of $\lambda^{\rm MLP}$ over modes by its mean; eq 60 wants 0."""
        return self.mlp.std(0, correction=0) / self.mlp.mean(0).abs()

    @property
    def chi_difference(self) -> Float[Tensor, "*batch"]:
        """Leading less trailing; eq 61 wants it positive."""
        return self.chi_leading - self.chi_trailing


def structural_assumptions(
    propagator: Propagator,
    modes: Float[Tensor, "modes *batch N width"],
    g: float,
    *,
    band: int | None = None,
) -> StructuralAssumptions:
    """The assumptions of 004 eqs 59–61, measured on a block.

    Parameters
    ----------
    propagator, modes, g
        As for `modal_gains`; leading modes first.
    band
        How many modes at each end are compared; a quarter of them by default, at least one.

    Raises
    ------
    InvalidInputError
        As `modal_gains`, and if the two bands overlap.

    Notes
    -----
    Routing and pattern gains contain what the MLP makes of them, which eq 33 of the source drops.

    Examples
    --------
    >>> from flowscope.replica import ReplicaBlock
    >>> block = ReplicaBlock(lambda H: 3 * (H[None],), lambda H, o: 2 * H + o[0], 0.0)
    >>> modes = torch.tensor([[[1.0], [1.0]], [[1.0], [-1.0]]]) / 2**0.5
    >>> found = structural_assumptions(Propagator(block, torch.zeros(2, 1)), modes, 0.5)
    >>> float(found.chi_difference.round(decimals=5)), float(found.mlp_spread)
    (1.0, 0.0)
    """
    count = len(modes)
    size = max(count // 4, 1) if band is None else band
    if not 1 <= size <= count // 2:
        raise InvalidInputError(
            f"a band must have at least one mode and at most half of the {count} given; got {size}."
        )
    free = modal_gains(propagator, modes, 0.0)
    gated = free if g == 0 else modal_gains(propagator, modes, g)
    return StructuralAssumptions(
        chi=free.routing,
        pi=gated.query + gated.key,
        mlp=free.direct - 1,
        chi_leading=free.routing[:size].mean(0),
        chi_trailing=free.routing[-size:].mean(0),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ModalProduct:
    r"""Gains multiplied over layers against the gain of the layers run one after another.

    Attributes
    ----------
    product
        $\prod_\ell r_k^\top K_\ell r_k$.
    measured
        $r_k^\top K_L \cdots K_1 r_k$.
    """

    product: Float[Tensor, "modes *batch"]
    measured: Float[Tensor, "modes *batch"]

    @property
    def log_ratio(self) -> Float[Tensor, "modes *batch"]:
        """log(measured/product): zero where gains multiply; NaN where they differ in sign."""
        return torch.log(self.measured / self.product)


def modal_product(
    propagators: Sequence[Propagator], modes: Float[Tensor, "modes *batch N width"], g: float
) -> ModalProduct:
    r"""Whether gains multiply from layer to layer, within one reverse step.

    Parameters
    ----------
    propagators
        Those of consecutive layers of one pass, the first layer first.
    modes, g
        As for `modal_gains`; one basis for all layers.

    Raises
    ------
    InvalidInputError
        If there are no layers, or the state of one is not what the layer before it makes: then they
        are not consecutive layers of one step, and gains do not multiply (E85).

    Notes
    -----
    Source 004 eqs 56–57, within a step only.

    Examples
    --------
    >>> from flowscope.replica import ReplicaBlock
    >>> block = ReplicaBlock(lambda H: 3 * (H[None],), lambda H, o: 2 * H, 0.0)
    >>> layer = Propagator(block, torch.zeros(2, 1))
    >>> modal_product([layer, layer], torch.tensor([[[1.0], [0.0]]]), 0.5).measured
    tensor([4.])
    """
    if not propagators:
        raise InvalidInputError("a product over layers needs at least one layer; got none.")
    for place, (before, after) in enumerate(pairwise(propagators)):
        _refuse_a_jump(before, after, place)
    first = fitted_modes(modes, propagators[0])
    product, h = torch.ones_like(inner_product(first, first)), first
    for propagator in propagators:
        r = fitted_modes(modes, propagator)
        product = product * inner_product(r, propagator.apply(r, g))
        h = propagator.apply(h, g)
    return ModalProduct(product=product, measured=inner_product(first, h))


def _refuse_a_jump(before: Propagator, after: Propagator, place: int) -> None:
    reached, taken = before.next_state, after.H0
    if reached.shape == taken.shape:
        apart = float((reached - taken).norm())
        if apart <= 1e-2 * float(reached.norm()):
            return
    raise InvalidInputError(
        f"layer {place + 1} of the list does not start from the state that layer {place} makes, so "
        "they are not consecutive layers of one step. Gains multiply within one step only: hidden "
        "states are made anew at each reverse step."
    )
