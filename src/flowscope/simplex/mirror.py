r"""Mirror steps on the simplex and the flow they discretise.

The entropic proximal step of a linear cost and the replicator equation are one family, tilts of a
prior by an exponential:

.. math:: \arg\min_p \langle c, p\rangle + \tau\,\mathrm{KL}(p\,\|\,u) \;\propto\; u\,e^{-c/\tau},
          \qquad \dot p = J(p)\,b \;\Rightarrow\; p(t) \propto p_0\,e^{bt}.

Source 000 calls the first a JKO step. It is a Fisher–Rao (mirror) step; JKO is the proximal step
of the Wasserstein distance. It equals attention only for a uniform prior u.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import (
    ArrayLike,
    aligned,
    as_batch,
    as_probabilities,
    as_reals,
    as_vectors,
    check_outcomes,
    refuse,
)

__all__ = ["mirror_step", "replicator_flow"]


def mirror_step(
    prior: Float[Tensor, "*batch V"] | ArrayLike,
    cost: Float[Tensor, "*batch V"] | ArrayLike,
    temperature: Float[Tensor, "*batch"] | ArrayLike | float,
) -> Float[Tensor, "*batch V"]:
    r"""Minimiser of a linear cost plus the divergence from a prior.

    .. math:: p^+ = \arg\min_{p \in \Delta} \langle c, p \rangle + \tau\,\mathrm{KL}(p \,\|\, u)
              \;\propto\; u \odot e^{-c/\tau}

    Parameters
    ----------
    prior : u, probability vectors; an outcome with u_j = 0 stays at zero.
    cost : c, real or +∞; an infinite cost masks its outcome. Leading axes broadcast.
    temperature : τ > 0, one number or one per row.

    Raises
    ------
    InvalidInputError
        If the prior is not a family of probability vectors, a cost is NaN or −∞, τ ≤ 0, the shapes
        do not match, or a row has no outcome with positive prior and finite cost.

    Notes
    -----
    Exponents are taken relative to the cheapest live outcome. O(V). The minimum itself is
    −τ log Σ u_j e^{−c_j/τ}. Source 000 Prop. 2.1, where u drops out of the proof: p⁺ is attention
    for uniform u only.

    Examples
    --------
    >>> mirror_step([0.5, 0.25, 0.25], [0.0, 0.0, torch.inf], 1.0)
    tensor([0.6667, 0.3333, 0.0000], dtype=torch.float64)
    """
    u = as_probabilities(prior, "prior")
    c = as_reals(cost, "cost", u.device)
    check_outcomes(c, "cost")
    todo = "Mask an outcome with +inf."
    refuse(c.isnan() | (c == -torch.inf), c, "cost must be real or +inf (a mask)", todo)
    u, c = aligned(u, c, ("prior", "cost"))
    tau = as_batch(temperature, "temperature", u, "prior")
    refuse(tau <= 0, tau, "temperature must be > 0", "The limit 0 is the argmin of the cost.")
    open_ = c < torch.inf
    live = open_ & (u > 0)
    _check_live(live)
    c = c.where(open_, 0.0)
    cheapest = c.detach().where(live, torch.inf).amin(-1, keepdim=True)
    return _tilted(u, (cheapest - c) / tau[..., None], open_)


def replicator_flow(
    p0: Float[Tensor, "*batch V"] | ArrayLike,
    drift: Float[Tensor, "*batch V"] | ArrayLike,
    t: Float[Tensor, "*batch"] | ArrayLike | float,
) -> Float[Tensor, "*batch V"]:
    r"""Solution at time t of the replicator equation with constant drift.

    .. math:: \dot p = J(p)\, b = p \odot (b - \langle p, b \rangle), \qquad
              p(t) \propto p_0 \odot e^{b t}

    Parameters
    ----------
    p0 : p₀, the probability vectors at time 0; an outcome with no mass never gets any.
    drift : b, finite vectors; leading axes broadcast.
    t : the time, of either sign, one number or one per row; several times for one vector broadcast
        to one row per time.

    Raises
    ------
    InvalidInputError
        If p0 is not a family of probability vectors, b or t is not finite, or the shapes do not
        match.

    Notes
    -----
    Exact for every t, O(V): no integration. Source 000 §5 (softmax of z(t) = z₀ + bt) and Prop. 2.1
    (a mirror step of cost −b and temperature 1/t). The entropy moves at the rate −Cov_p(b, log p),
    of either sign; 000 L.1 says it can only fall.

    Examples
    --------
    >>> replicator_flow([0.5, 0.5], [1.0, 0.0], [0.0, 1.0])
    tensor([[0.5000, 0.5000],
            [0.7311, 0.2689]], dtype=torch.float64)
    """
    u = as_probabilities(p0, "p0")
    u, b = aligned(u, as_vectors(drift, "drift", u.device), ("p0", "drift"))
    time = as_batch(t, "t", u, "p0")[..., None]
    live = u > 0
    fastest = b.detach().where(live, -torch.inf).amax(-1, keepdim=True)
    slowest = b.detach().where(live, torch.inf).amin(-1, keepdim=True)
    reference = torch.where(time >= 0, fastest, slowest)
    return _tilted(u, (b - reference) * time, torch.ones_like(live))


def _check_live(live: Bool[Tensor, "*batch V"]) -> None:
    dead = ~live.any(-1)
    if not bool(dead.any()):
        return
    row = tuple(dead.nonzero()[0].tolist())
    raise InvalidInputError(
        "every row must have at least one outcome with positive prior and finite cost; found none "
        f"in {f'row {row}' if row else 'the only row'}. Unmask an outcome or drop the row."
    )


def _tilted(
    u: Float[Tensor, "*batch V"],
    exponent: Float[Tensor, "*batch V"],
    open_: Bool[Tensor, "*batch V"],
) -> Float[Tensor, "*batch V"]:
    """Normalise u e^exponent over the open outcomes; the exponent is at most 0 where u > 0.

    Through logarithms where u > 0, so that a tiny prior under a large exponent is not lost, and as
    a plain product where u = 0: its value is 0 and its slope in u is the weight, which is capped
    below overflow.
    """
    live = open_ & (u > 0)
    score = (u.where(live, 1.0).log() + exponent).where(live, -torch.inf)
    top = score.detach().amax(-1, keepdim=True)
    cap = 0.9 * math.log(torch.finfo(u.dtype).max)
    empty = u * (exponent - top).clamp(max=cap).exp()
    mass = torch.where(live, (score - top).exp(), empty.where(open_, 0.0))
    return mass / mass.sum(-1, keepdim=True)
