r"""What is told of a head, from its logits: one number of each kind per matrix of a batch.

With logits $z$, kernel $P = \operatorname{softmax}_j z_{ij}$ (damped or not) and its stationary law
$\pi$ on $n$ tokens:

* ``entropy_production``: $\frac12\sum J_{ij}\log\frac{\pi_iP_{ij}}{\pi_jP_{ji}}$, nats per step;
  for the plain softmax chain $\sum\pi_iP_{ij}(z_{ij}-z_{ji})$, the same without a logarithm;
* ``displacement``: $\mathrm{TV}(\rho P,\rho)$ at the uniform $\rho$: how far one step of a walk
  that starts anywhere is from being anywhere;
* ``gap``: $1-\lvert\lambda_2\rvert$;
* ``effective_keys``: mean over rows of $e^{H(P_i)}$;
* ``top_token``: the largest $\pi_j$;
* ``flux_ratio``, ``exact_share``, ``negative_share``: sectors of the scores (`Bidivergence`), from
  logits of both sides of every pair.

A causal kernel conditioned on not being absorbed has a law and a survival, and neither current nor
label (`flowscope.markov.quasi_stationary`).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.markov.causal import quasi_stationary
from flowscope.markov.irreversibility import displacement, entropy_production
from flowscope.markov.kernels import damped_kernel
from flowscope.markov.krylov import KrylovSpace
from flowscope.markov.relaxation import spectral_gap
from flowscope.markov.stationary import stationary_distribution
from flowscope.simplex.probability import within_range

__all__ = [
    "QUANTITIES",
    "chain_production",
    "chain_quantities",
    "quasi_quantities",
    "sector_quantities",
]

QUANTITIES = (
    "entropy_production",
    "displacement",
    "gap",
    "effective_keys",
    "top_token",
    "survival",
    "flux_ratio",
    "exact_share",
    "negative_share",
)
"""Names of what is told of a head, in the order of tables."""

_SMALL = 39  # tokens up to which elimination is as fast
_DIMENSIONS = (20, 40, 80)  # of Krylov spaces that are tried before elimination
_LAW_ERROR = 1e-4  # in total variation
_SQUARED = (1e-15, 1e15)  # scores whose squares and sums of them stay in single precision
_GAP_ERROR = 2e-3  # backward error of the second eigenvalue; its own is mostly 50 times less

Logits = Float[Tensor, "*batch n n"]
Values = dict[str, Float[Tensor, "*batch"]]


def chain_quantities(logits: Logits, damping: float = 0.0) -> Values:
    """Numbers of the chain of each head.

    Parameters
    ----------
    logits
        Attention logits, −∞ where there is no such pair.
    damping
        Probability of a jump to any token; needed where a mask hides one side of a pair.

    Notes
    -----
    Beyond 39 tokens the law and λ₂ come from a Krylov space where it settles them (the law to
    1e-4 in total variation, λ₂ to a backward error of 2e-3), from elimination where it does not.

    Raises
    ------
    InvalidInputError
        When the chain has no unique stationary law, as under a causal mask without damping.

    Examples
    --------
    >>> values = chain_quantities(torch.zeros(4, 4))
    >>> round(float(values["effective_keys"]), 6), round(float(values["gap"]), 6)
    (4.0, 1.0)
    """
    n = logits.shape[-1]
    z = logits.reshape(-1, n, n)
    P = torch.softmax(z, -1)
    whole = bool(z.sum().isfinite())  # a mask is −∞; ten times faster than asking every entry
    keys = _effective_keys(P, z if whole else z.masked_fill(z.isneginf(), 0.0), z)
    if damping:
        P = damped_kernel(P, damping)
    law, gap = _law_and_gap(P) if (whole or damping) and n > _SMALL else _eliminated(P)
    values = {
        "entropy_production": _production(z, P, law, short=whole and not damping),
        "displacement": _moved(P),
        "gap": gap,
        "effective_keys": keys,
        "top_token": law.amax(-1),
    }
    for name in ("entropy_production", "effective_keys"):
        within_range(values[name], f"The {name.replace('_', ' ')} of these logits")
    return {name: value.reshape(logits.shape[:-2]) for name, value in values.items()}


def chain_production(logits: Logits, damping: float = 0.0) -> Float[Tensor, "*batch"]:
    """Entropy production of the chain of each head, nats per step, and nothing else.

    Parameters
    ----------
    logits, damping
        As for `chain_quantities`, whose ``entropy_production`` this is.

    Raises
    ------
    InvalidInputError
        When the chain has no unique stationary law, as under a causal mask without damping.

    Examples
    --------
    >>> float(chain_production(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))) < 1e-6  # no cycle
    True
    """
    n = logits.shape[-1]
    z = logits.reshape(-1, n, n)
    P = torch.softmax(z, -1)
    whole = bool(z.sum().isfinite())
    if damping:
        P = damped_kernel(P, damping)
    if (whole or damping) and n > _SMALL:
        law, _ = _law_and_gap(P)
    else:
        law = stationary_distribution(P)
    production = _production(z, P, law, short=whole and not damping)
    within_range(production, "The entropy production of these logits")
    return production.reshape(logits.shape[:-2])


def _production(z: Tensor, P: Tensor, law: Tensor, *, short: bool) -> Float[Tensor, "b"]:
    """Entropy production, without logarithms where the kernel is the softmax of all logits."""
    if not short:
        return entropy_production(P, law)
    pull = (z - z.mT).mul_(P).sum(-1)
    return (pull.double() * law).sum(-1).clamp_min(0.0)


def _law_and_gap(P: Float[Tensor, "b n n"]) -> tuple[Tensor, Tensor]:
    """Law and gap of irreducible chains: a Krylov space, a larger one, then elimination."""
    batch, n = P.shape[:2]
    law = torch.zeros(batch, n, dtype=torch.float64, device=P.device)
    gap = torch.zeros(batch, dtype=torch.float64, device=P.device)
    left = torch.arange(batch, device=P.device)
    space = KrylovSpace.of(P)
    for dimension in (d for d in _DIMENSIONS if 2 * d <= n):
        space = space.grown(dimension)
        found = space.leading()
        settled = found.settled(law=_LAW_ERROR, modulus=_GAP_ERROR)
        wide = found.law[settled].double()
        law[left[settled]] = wide / wide.sum(-1, keepdim=True)
        gap[left[settled]] = 1 - found.modulus[settled]
        left = left[~settled]
        if not len(left):
            return law, gap
        space = space.some(~settled)
    law[left], gap[left] = _eliminated(P[left])
    return law, gap


def _eliminated(P: Float[Tensor, "b n n"]) -> tuple[Tensor, Tensor]:
    law = stationary_distribution(P)
    return law, spectral_gap(P, law)


def _moved(P: Float[Tensor, "b n n"]) -> Float[Tensor, "b"]:
    """`displacement` from the uniform law, for kernels that are known to be kernels."""
    return (P.mean(-2) - 1 / P.shape[-1]).abs().sum(-1) / 2


def _effective_keys(P: Logits, seen: Logits, logits: Logits) -> Float[Tensor, "*batch"]:
    # log Σ e^z = max z − log max P: the sum was taken by the softmax already
    total = logits.amax(-1) - P.amax(-1).log()
    entropy = total - (P * seen).sum(-1)
    return entropy.exp().mean(-1)


def quasi_quantities(logits: Logits) -> Values:
    """Numbers of a causal chain conditioned on not being absorbed; no current, no label.

    Raises
    ------
    InvalidInputError
        When the logits are not causal: then nothing is absorbed, and the chain has a law of its
        own.
    """
    P = torch.softmax(logits, -1)
    found = quasi_stationary(P)
    keys = _effective_keys(P, logits.masked_fill(P == 0, 0.0), logits)
    within_range(keys, "The effective keys of these logits")
    return {
        "displacement": displacement(P),
        "effective_keys": keys,
        "top_token": found.law.amax(-1),
        "survival": found.survival,
    }


def sector_quantities(scores: Logits) -> Values:
    r"""How the scores of every pair divide into metric, exact and flux parts.

    The numbers of `Bidivergence.flux_ratio`, `Bidivergence.exact_share` and `Signature` (its share
    of pairs with $D_{ij} < 0$) from sums over rows, without forming the centred matrices: for
    $X = \frac12(d^\rightarrow - d^\leftarrow)$ with row means $\varphi$ and $S =
    \frac12(W + W^\top)$ with row means $r$ and mean $m$,

    $$
    \Vert\nabla\varphi\Vert^2 = 2n\Vert\varphi\Vert^2, \qquad
    \Vert F\Vert^2 = \Vert X\Vert^2 - \Vert\nabla\varphi\Vert^2, \qquad
    \Vert CSC\Vert^2 = \Vert S\Vert^2 - 2n\Vert r\Vert^2 + n^2m^2 .
    $$

    Examples
    --------
    >>> values = sector_quantities(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    >>> float(values["exact_share"])  # two tokens have no cycle
    1.0
    """
    n = scores.shape[-1]
    scores = _within_range(scores)
    turned, w = scores.mT.contiguous(), scores.diagonal(dim1=-2, dim2=-1)
    unit = torch.finfo(scores.dtype).eps * scores.abs().amax((-2, -1))
    twice_s = scores + turned
    # D_ij < 0 where w_i + w_j is below W_ij + W_ji by more than the rounding of four scores
    level = w[..., :, None] + (w + 4 * unit[..., None])[..., None, :]
    below = torch.count_nonzero(twice_s > level, (-2, -1))
    # 2X = w_i − w_j − 2A; centring forgets the mean of S, whose square would drown the rest
    twice_x = turned.sub_(scores).add_(w[..., :, None]).sub_(w[..., None, :])
    twice_s -= twice_s.mean((-2, -1), keepdim=True)
    phi, r = (x.mean(-1).double() / 2 for x in (twice_x, twice_s))
    size_x, size_s = (_square_sum(x) / 4 for x in (twice_x, twice_s))
    gradient = 2 * n * phi.square().sum(-1)
    noise = n * unit.double()
    flux = (size_x - gradient).clamp_min(0.0).sqrt()
    flux = torch.where(flux <= noise, 0.0, flux)
    metric = (size_s - 2 * n * r.square().sum(-1)).clamp_min(0.0).sqrt()
    still = size_x.sqrt() <= noise
    return {
        "flux_ratio": torch.where(flux == 0, 0.0, flux / metric),
        "exact_share": torch.where(still, 1.0, gradient / size_x.clamp_min(noise**2)),
        "negative_share": below.double() / (n * (n - 1)),
    }


def _within_range(scores: Logits) -> Logits:
    """The same scores, divided by their largest where their squares would leave the dtype."""
    largest = scores.abs().amax((-2, -1), keepdim=True)
    within_range(largest, "The sectors of these scores", infinite=True)
    moderate = (largest == 0) | ((largest > _SQUARED[0]) & (largest < _SQUARED[1]))
    if bool(moderate.all()):
        return scores
    # twice, as the inverse of a subnormal number is beyond the range
    root = torch.where(moderate, 1.0, largest.double().sqrt()).to(scores.dtype)
    return scores / root / root


def _square_sum(x: Logits) -> Float[Tensor, "*batch"]:
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norms.double().square().sum(-1)
