r"""Where the walk prefers one direction: currents, affinities, entropy production.

At a law $\rho$ the flow along the edge $ij$ is $x_{ij} = \rho_i P_{ij}$, and

$$
J_{ij} = x_{ij} - x_{ji}, \qquad
\sigma = \tfrac12 \sum_{ij} J_{ij} \log\frac{x_{ij}}{x_{ji}} \;\ge\; 0 .
$$

$J = 0$ is detailed balance. At the stationary law $\pi$ the net flow $\sum_j J_{ij}$ is zero for
every token, always (E58): what is left to ask there is whether $J$ itself is zero. Away from it,
$\sum_j J_{ij} = \rho_i - (\rho P)_i$, which `displacement` sums up. At $\pi$, $\sigma$ is the
divergence per step of the walk from its reversal, in nats.

For softmax attention $P_{ij} = e^{\beta W_{ij}}/Z_i$ with $A = \tfrac12(W - W^\top)$ the affinity
of a cycle is $2\beta$ times the sum of $A$ along it, and $\sigma = 2\beta\sum\pi_iP_{ij}A_{ij}$:
but only undamped, unmasked and at $\pi$.

Everything is in float64. Logarithms of ratios are $\log(1 + |x - y|/\min(x, y))$, which loses
nothing when $x \approx y$, so $\sigma$ is a sum of non-negative terms in floating point too.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.scores import as_scores, as_strength
from flowscope.markov.stationary import wide_kernel, wide_law
from flowscope.simplex.divergence import total_variation
from flowscope.simplex.probability import ArrayLike

__all__ = [
    "currents",
    "cycle_affinities",
    "displacement",
    "entropy_production",
    "flux_production",
    "net_flow",
]


def currents(kernel: Tensor | ArrayLike, law: Tensor | ArrayLike) -> Float[Tensor, "*batch N N"]:
    r"""Net flow along each edge: $J_{ij} = \rho_iP_{ij} - \rho_jP_{ji}$, antisymmetric.

    Parameters
    ----------
    kernel
        Kernels $P$.
    law
        $\rho$; `stationary_distribution` gives $\pi$. There is no default: at another law than
        $\pi$ these are other numbers.

    Examples
    --------
    >>> ring = [[0.0, 0.75, 0.25], [0.25, 0.0, 0.75], [0.75, 0.25, 0.0]]
    >>> currents(ring, [1 / 3, 1 / 3, 1 / 3])[0] * 6
    tensor([ 0.,  1., -1.], dtype=torch.float64)
    """
    P = wide_kernel(kernel)
    flow = _stated(law, P)[..., None] * P
    return flow - flow.mT


def net_flow(kernel: Tensor | ArrayLike, law: Tensor | ArrayLike) -> Float[Tensor, "*batch N"]:
    r"""What leaves each token more than enters it: $\sum_j J_{ij} = \rho_i - (\rho P)_i$.

    Parameters
    ----------
    kernel, law
        As for `currents`; zero for every token exactly when the law is stationary.

    Examples
    --------
    >>> net_flow([[0.5, 0.5], [0.0, 1.0]], [0.5, 0.5])
    tensor([ 0.2500, -0.2500], dtype=torch.float64)
    """
    P = wide_kernel(kernel)
    rho = _stated(law, P)
    return rho - _stepped(rho, P)


def displacement(
    kernel: Tensor | ArrayLike, law: Tensor | ArrayLike | None = None
) -> Float[Tensor, "*batch"]:
    r"""How far one step moves a law: $\mathrm{TV}(\rho P, \rho)$, from 0 to 1.

    Parameters
    ----------
    kernel, law
        As for `currents`; at the uniform law unless another is given, since at $\pi$ it is zero.

    Examples
    --------
    >>> displacement([[0.5, 0.5], [0.0, 1.0]])
    tensor(0.2500, dtype=torch.float64)
    """
    P = wide_kernel(kernel)
    rho = wide_law(law, P)
    return total_variation(_stepped(rho, P), rho)


def cycle_affinities(
    kernel: Tensor | ArrayLike, cycles: Int[Tensor, "*cycles length"]
) -> Float[Tensor, "..."]:
    r"""Log-odds of walking around a cycle one way against the other.

    $$
    \log \frac{P_{c_0c_1} P_{c_1c_2} \cdots P_{c_{k-1}c_0}}
              {P_{c_1c_0} P_{c_2c_1} \cdots P_{c_0c_{k-1}}}
    $$

    A chain is reversible exactly when all of them vanish (Kolmogorov); no law is needed.

    Parameters
    ----------
    kernel
        Kernels $P$.
    cycles
        Tokens of each cycle in order, at least three; the way back to the first is understood.

    Returns
    -------
    One number for each chain and cycle; ±∞ where one direction is impossible, NaN where both are.

    Examples
    --------
    >>> ring = [[0.0, 0.75, 0.25], [0.25, 0.0, 0.75], [0.75, 0.25, 0.0]]
    >>> cycle_affinities(ring, torch.tensor([0, 1, 2])) / torch.tensor(3.0).log()
    tensor(3.0000, dtype=torch.float64)
    """
    P = wide_kernel(kernel)
    walk = torch.as_tensor(cycles, device=P.device)
    if walk.is_floating_point() or walk.is_complex() or walk.dtype == torch.bool:
        raise InvalidInputError(f"cycles must hold whole numbers; found dtype {walk.dtype}.")
    if walk.ndim == 0 or walk.shape[-1] < 3:
        raise InvalidInputError(
            "cycles must have at least three tokens each: the odds of going there and back are "
            f"even; found shape {tuple(walk.shape)}."
        )
    N = P.shape[-1]
    if bool(((walk < 0) | (walk >= N)).any()):
        raise InvalidInputError(
            f"cycles must name tokens 0 to {N - 1}; found {int(walk.min())} to {int(walk.max())}."
        )
    onward = walk.roll(-1, -1)
    there, back = P[..., walk, onward], P[..., onward, walk]
    odds = _log_ratio(there, back)
    odds = odds.masked_fill((there == 0) & (back == 0), torch.nan)
    return odds.sum(-1)


def entropy_production(
    kernel: Tensor | ArrayLike, law: Tensor | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""Entropy production per step, in nats.

    $$
    \sigma = \tfrac12 \sum_{ij} (\rho_iP_{ij} - \rho_jP_{ji})
             \log\frac{\rho_iP_{ij}}{\rho_jP_{ji}} \;\ge\; 0
    $$

    Parameters
    ----------
    kernel, law
        As for `currents`. At $\pi$ it is the divergence rate of the walk from its reversal.

    Returns
    -------
    Zero exactly at detailed balance; +∞ where some step is possible one way only. Edges possible
    neither way count nothing.

    Notes
    -----
    O(N²). An asymmetry of relative size $a$ is read with relative error about $10^{-16}/a$, the
    rounding of the flows themselves.

    Examples
    --------
    >>> ring = [[0.0, 0.75, 0.25], [0.25, 0.0, 0.75], [0.75, 0.25, 0.0]]
    >>> entropy_production(ring, [1 / 3, 1 / 3, 1 / 3])  # (p − q) log(p/q)
    tensor(0.5493, dtype=torch.float64)
    """
    P = wide_kernel(kernel)
    rho = _stated(law, P)
    N = P.shape[-1]
    i, j = torch.triu_indices(N, N, 1, device=P.device)  # each pair once: no factor ½
    entries = P.flatten(-2)
    forth, back = entries[..., i * N + j], entries[..., j * N + i]
    x, y = rho[..., i] * forth, rho[..., j] * back
    gap, least = (x - y).abs(), torch.minimum(x, y)
    lost = least < torch.finfo(P.dtype).tiny
    term = gap * torch.log1p(gap / least.where(~lost, 1.0))
    if bool(lost.any()):
        odds = _factor_odds((rho[..., i][lost], forth[lost]), (rho[..., j][lost], back[lost]))
        term = term.masked_scatter(lost, torch.where(odds.isinf(), odds, gap[lost] * odds))
    return term.sum(-1)


def flux_production(
    scores: Tensor | ArrayLike, beta: Tensor | float, law: Tensor | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""Mean flux that a step follows.

    $$
    2\beta \sum_{ij} \rho_i P_{ij} A_{ij}, \qquad P = \operatorname{softmax}(\beta W), \quad
    A = \tfrac12 (W - W^\top)
    $$

    It equals `entropy_production` of $P$ at its stationary law, and there only: damp the chain or
    mask one side of a pair, and it does not (E58).

    Parameters
    ----------
    scores
        Raw scores $W$; a pair may be missing (−∞) on both sides.
    beta
        $\beta > 0$, one number or one for each matrix.
    law
        $\rho$, stated.

    Examples
    --------
    >>> W = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    >>> flux_production(W, 1.0, torch.full((3,), 1 / 3, dtype=torch.float64))
    tensor(0.3642, dtype=torch.float64)
    """
    W = as_scores(scores).double()
    b = as_strength(beta, W)
    P = torch.softmax(b * W, -1)
    flux = torch.where(W.isneginf(), 0.0, W) - torch.where(W.isneginf(), 0.0, W).mT
    return (b * _stated(law, P)[..., None] * P * flux).sum((-2, -1))


def _stepped(rho: Float[Tensor, "*batch N"], P: Float[Tensor, "*batch N N"]) -> Tensor:
    return (rho[..., None, :] @ P)[..., 0, :]


def _factor_odds(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> Tensor:
    """|log(x/y)| of products by their factors: a product can underflow where its log does not.

    Zero where both products are zero by a factor, ∞ where one is.
    """
    log_x, log_y = (a.log() + b.log() for a, b in (x, y))
    return (log_x - log_y).abs().nan_to_num(nan=0.0, posinf=torch.inf)


def _log_ratio(x: Tensor, y: Tensor) -> Tensor:
    """Log(x/y), accurate where x ≈ y; ±∞ where one is zero, 0 where both are."""
    gap, least = x - y, torch.minimum(x, y)
    near = gap.sign() * torch.log1p(gap.abs() / least.where(gap.abs() < least, 1.0))
    return torch.where((gap.abs() < least) | (x == y), near, x.log() - y.log())


def _stated(law: Tensor | ArrayLike, P: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N"]:
    if law is None:
        raise InvalidInputError(
            "State the law: stationary_distribution(kernel) gives the stationary one, "
            "torch.full((N,), 1 / N) the uniform one; the numbers differ."
        )
    return wide_law(law, P)
