r"""The magnetic Laplacian: the diffusion map of a head with the flux of its scores as a phase.

The symmetric divergence $D$ forgets which way a pair is turned. A phase outside the normalisation
keeps it, with a free charge $q$:

$$
H_{ij} = e^{-\beta D_{ij}}\,e^{2\pi i q (W_{ij} - W_{ji})}, \qquad
g_i = \sum_j e^{-\beta D_{ij}}, \qquad
L = I - g^{-1/2} H g^{-1/2} \succeq 0 .
$$

$L$ is Hermitian with spectrum in $[0, 2]$. At $q = 0$ it is one minus the symmetric form of the
diffusion-map kernel. A field $a_i - a_j$ added to $W$ changes no $D$ and turns $L$ into
$e^{i\phi}Le^{-i\phi}$, $\phi = 4\pi q a$: the spectrum depends on the phases around cycles
(*holonomies*) only, and scores whose flux is exact have the spectrum of charge 0. Source: 002, with
the phase of errata E56.

Entries are formed as $e^{-\beta D_{ij} - \frac12\log g_i - \frac12\log g_j}$, at most one in
modulus whatever the sign of $D$. Everything is batched over leading axes (heads) and dense, $N^2$
complex numbers a head; `flowscope.markov.eigenmaps.magnetic_map` needs no matrix.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.operators import as_charge, pair_phases, refuse_loners
from flowscope.markov.scores import as_scores, as_strength
from flowscope.simplex.probability import ArrayLike, refuse

__all__ = ["holonomy", "log_kernel", "magnetic_laplacian"]


def magnetic_laplacian(
    scores: Tensor | ArrayLike,
    beta: Tensor | float = 1.0,
    charge: float = 0.0,
    *,
    loops: bool = True,
) -> Complex[Tensor, "*batch N N"]:
    r"""Hermitian normalised Laplacian $L = I - g^{-1/2} H g^{-1/2}$.

    Parameters
    ----------
    scores
        Raw scores W, $-\infty$ on both sides where there is no pair.
    beta
        β > 0, one or one for each matrix.
    charge
        $q$, finite.
    loops
        Whether $K_{ii} = 1$ counts. A diffusion map has loops, a graph has none.

    Returns
    -------
    Tensor
        complex64 for scores in single precision, complex128 for float64.

    Raises
    ------
    InvalidInputError
        For scores that `as_scores` refuses, a charge that is not finite, or, without loops, a
        token without any pair.

    Examples
    --------
    >>> W = torch.tensor([[0.0, 0.5, -0.5], [-0.5, 0.0, 0.5], [0.5, -0.5, 0.0]]).double()
    >>> L = magnetic_laplacian(W, beta=1.0, charge=1 / 3, loops=False)
    >>> torch.linalg.eigvalsh(L).round(decimals=9).abs()
    tensor([0.0000, 1.5000, 1.5000], dtype=torch.float64)
    """
    q, W = as_charge(charge), as_scores(scores)
    E, log_degree = log_kernel(W, beta, loops=loops)
    half = 0.5 * log_degree
    weights = (E - (half[..., None] + half[..., None, :])).exp()
    L = torch.polar(weights, pair_phases(W, W.mT, q)).neg_()
    L.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return L


def log_kernel(
    scores: Tensor | ArrayLike, beta: Tensor | float = 1.0, *, loops: bool = True
) -> tuple[Float[Tensor, "*batch N N"], Float[Tensor, "*batch N"]]:
    r"""Logarithms of the kernel, $-\beta D$, and of its degrees $g$.

    Parameters
    ----------
    scores, beta, loops
        As for `magnetic_laplacian`.

    Examples
    --------
    >>> E, log_degree = log_kernel([[0.0, -1.0], [0.0, 0.0]])
    >>> E[0, 1], log_degree[0].exp()
    (tensor(-1., dtype=torch.float64), tensor(1.3679, dtype=torch.float64))
    """
    W = as_scores(scores)
    w = W.diagonal(dim1=-2, dim2=-1)
    E = (W + W.mT - (w[..., None] + w[..., None, :])) * as_strength(beta, W)
    refuse(E.isposinf(), E, f"−βD must be within the range of {E.dtype}", "Lower β or the scores.")
    # Rounding of the four terms is not zero, and D_ii is.
    E.diagonal(dim1=-2, dim2=-1).fill_(0.0 if loops else -torch.inf)
    return E, refuse_loners(E.logsumexp(-1))


def holonomy(
    scores: Tensor | ArrayLike,
    charge: float,
    cycles: Int[Tensor, "cycles length"] | Iterable[Sequence[int]],
) -> Float[Tensor, "*batch cycles"]:
    r"""Total phase around cycles, $\sum_{e}\theta_e = 2\pi q\sum_{(i,j)}(W_{ij} - W_{ji})$.

    It is not reduced modulo $2\pi$: divide by $4\pi q$ for the flux $\sum A_{ij}$ itself.

    Parameters
    ----------
    scores
        Raw scores W; every pair of a cycle must be there.
    charge
        $q$, finite.
    cycles
        Tokens of each cycle in order; the way back to the first is added. Lengths may differ.

    Raises
    ------
    InvalidInputError
        For a cycle of fewer than two tokens, a token that is not there, or a pair that is masked.

    Examples
    --------
    >>> W = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    >>> holonomy(W, 0.25, [(0, 1, 2), (0, 2, 1)]) / torch.pi
    tensor([ 1.5000, -1.5000])
    """
    q, W = as_charge(charge), as_scores(scores)
    N, found = W.shape[-1], []
    for cycle in cycles:
        i = torch.as_tensor(cycle, device=W.device)
        whole = not (i.is_floating_point() or i.is_complex() or i.dtype == torch.bool)
        if not whole or i.ndim != 1 or len(i) < 2 or not bool(((i >= 0) & (i < N)).all()):
            raise InvalidInputError(
                f"a cycle must name at least two of the tokens 0 … {N - 1} by whole numbers; found "
                f"{i.tolist()}. Give each cycle as a sequence of tokens."
            )
        j = i.roll(-1)
        if bool(W[..., i, j].isneginf().any()):
            raise InvalidInputError(
                f"the cycle {i.tolist()} passes a pair that is masked, and a missing pair has no "
                "phase. Choose a cycle of pairs that are there."
            )
        found.append(pair_phases(W[..., i, j], W[..., j, i], q).sum(-1))
    if not found:
        raise InvalidInputError("holonomy was given no cycle. Name at least one.")
    return torch.stack(found, -1)
