r"""Attention as what it takes from the token itself, from others, and from sinks.

$$
o_i = \underbrace{P_{ii}v_i}_{\text{self}}
    + \underbrace{\sum_{j\ne i,\,j\notin S}P_{ij}v_j}_{\text{others}}
    + \underbrace{\sum_{j\in S}P_{ij}v_j}_{\text{sink}}
  = \underbrace{(1-\kappa_i)v_i}_{\text{local}}
    + \underbrace{\sum_{j\notin S}P_{ij}(v_j-v_i)}_{\text{diffusion}} + \text{sink},
    \qquad \kappa_i = \sum_{j\in S}P_{ij} .
$$

The mass on sinks, $\kappa_i$, is a killing rate: the leak of attention. Local and diffusion cancel
in large part (cosines of −.7 to −.98 in trained models), so their sizes mean little; what diffusion
does is read from the spread of the tokens (`flowscope.pde.spread_balance`).

With positions $x_j$ the moments of a row are a velocity and a diffusivity (E64),

$$
c_i = \sum_{j\notin S}P_{ij}\frac{x_j-x_i}{\Delta t}, \qquad
D_i = \frac12\sum_{j\notin S}P_{ij}\frac{(x_j-x_i)^2}{\Delta t} .
$$
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.pde.states import as_states
from flowscope.simplex.probability import (
    ArrayLike,
    as_probabilities,
    as_reals,
    refuse,
    within_range,
)

__all__ = [
    "AttentionParts",
    "Moments",
    "advection_diffusion",
    "as_square_kernel",
    "attention_parts",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionParts:
    """Parts of the output of attention; two splits that share the sink.

    Attributes
    ----------
    part_self, part_others, part_sink
        What comes from the token itself (nothing where it is a sink), from other tokens that are
        no sinks, and from the sinks. Their sum is the output.
    local, diffusion
        (1 − κ)v and Σ P(v_j − v_i) over tokens that are no sinks; with the sink, the output again.
    leak
        κ: mass of each row on the sinks.
    """

    part_self: Float[Tensor, "*batch N d"]
    part_others: Float[Tensor, "*batch N d"]
    part_sink: Float[Tensor, "*batch N d"]
    local: Float[Tensor, "*batch N d"]
    diffusion: Float[Tensor, "*batch N d"]
    leak: Float[Tensor, "*batch N"]


def attention_parts(
    P: Float[Tensor, "*batch N N"] | ArrayLike,
    v: Float[Tensor, "*batch N d"] | ArrayLike,
    sinks: Sequence[int],
) -> AttentionParts:
    """Output of attention, split by where it comes from.

    Parameters
    ----------
    P
        Attention kernels: rows of queries over keys that sum to one.
    v
        Values of the keys.
    sinks
        Tokens that attention uses as a place to put mass, such as the first; may be empty.

    Raises
    ------
    InvalidInputError
        If P is not square or no kernel, v does not fit, or a sink is no token.

    Examples
    --------
    >>> parts = attention_parts([[0.5, 0.5], [0.25, 0.75]], [[1.0], [3.0]], [0])
    >>> parts.part_sink.tolist(), parts.leak.tolist()
    ([[0.5], [0.25]], [0.5, 0.25])
    """
    kernel = as_square_kernel(P)
    values = as_states(v, "v").to(kernel.dtype)
    n = kernel.shape[-1]
    if values.shape[-2] != n:
        raise InvalidInputError(
            f"there must be as many values as keys, {n}; found {values.shape[-2]}."
        )
    is_sink = _marked(sinks, n, kernel.device)
    seen = kernel.masked_fill(is_sink, 0.0)
    diagonal = torch.diagonal(seen, dim1=-2, dim2=-1)[..., None]
    part_self = diagonal * values
    from_seen = seen @ values
    leak = (kernel * is_sink).sum(-1)
    local = seen.sum(-1)[..., None] * values
    return AttentionParts(
        part_self=part_self,
        part_others=from_seen - part_self,
        part_sink=(kernel * is_sink) @ values,
        local=local,
        diffusion=from_seen - local,
        leak=leak,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Velocity and diffusivity of attention at every token, in positions per unit of time."""

    advection: Float[Tensor, "*batch N"]
    diffusion: Float[Tensor, "*batch N"]


def advection_diffusion(
    P: Float[Tensor, "*batch N N"] | ArrayLike,
    positions: Float[Tensor, "N"] | ArrayLike | None = None,
    *,
    sinks: Sequence[int] = (),
    dt: float = 1.0,
) -> Moments:
    r"""First two moments of where attention looks, without the sinks.

    .. math:: \frac{(Pu - u)_i}{\Delta t} = c_i u'(x_i) + D_i u''(x_i)

    exactly for quadratic u, when there are no sinks.

    Parameters
    ----------
    P
        Attention kernels.
    positions
        x of the tokens; 0, 1, 2, … by default.
    sinks
        Columns left out.
    dt
        Δt > 0, the depth of one layer.

    Raises
    ------
    InvalidInputError
        If P is not square or no kernel, positions do not fit, dt is not positive, or a moment is
        beyond the range of the dtype.

    Notes
    -----
    Source 001 eq 8 has the wrong units and sign (E64).

    Examples
    --------
    >>> moments = advection_diffusion([[1.0, 0.0], [0.5, 0.5]])
    >>> moments.advection.tolist(), moments.diffusion.tolist()
    ([0.0, -0.5], [0.0, 0.25])
    """
    kernel = as_square_kernel(P)
    n = kernel.shape[-1]
    x = torch.arange(n) if positions is None else as_reals(positions, "positions")
    if x.shape != (n,) or not bool(x.isfinite().all()):
        raise InvalidInputError(
            f"positions must be {n} finite numbers, one a token; found shape {tuple(x.shape)}."
        )
    if not 0 < dt < float("inf"):
        raise InvalidInputError(f"dt must be positive and finite; got {dt!r}.")
    place = x.to(kernel)
    apart = place[None, :] - place[:, None]
    seen = kernel.masked_fill(_marked(sinks, n, kernel.device), 0.0)
    return Moments(
        advection=_moment(seen, apart, dt),
        diffusion=_moment(seen, apart.square(), 2 * dt),
    )


def _moment(seen: Tensor, power: Tensor, unit: float) -> Float[Tensor, "*batch N"]:
    # where nothing is seen, a power beyond the range counts nothing
    sums = torch.where(seen > 0, seen * power, 0.0).sum(-1)
    return within_range(sums / unit, "a moment of attention", infinite=True)


def as_square_kernel(P: Tensor | ArrayLike) -> Float[Tensor, "*batch N N"]:
    """Read P as kernels with as many keys as queries."""
    kernel = as_probabilities(P, "P")
    if kernel.ndim < 2 or kernel.shape[-1] != kernel.shape[-2]:
        raise InvalidInputError(
            "P must be square, as many queries as keys; found shape "
            f"{tuple(kernel.shape)}. Cross-attention has no token that looks at itself."
        )
    return kernel


def _marked(sinks: Sequence[int], n: int, device: torch.device) -> Bool[Tensor, "N"]:
    try:
        places = torch.as_tensor(list(sinks), dtype=torch.int64, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"sinks must be a list of positions, which may be empty; got {sinks!r}."
        ) from error
    refuse(
        (places < 0) | (places >= n),
        places.double(),
        f"sinks must be tokens from 0 to {n - 1}",
        "Name them by their position.",
    )
    marked = torch.zeros(n, dtype=torch.bool, device=device)
    marked[places] = True
    return marked
