r"""The law that a kernel leaves alone.

$$
\pi P_\delta = \pi, \qquad P_\delta = (1-\delta) P + \tfrac{\delta}{N} 1 1^\top .
$$

It is unique exactly when the chain has one closed class (a set of tokens that the walk never leaves
and inside which it gets everywhere); tokens outside have $\pi_i = 0$. Damping $\delta > 0$ makes it
unique always, at the price of another chain.

**Method.** Tokens are eliminated in blocks. With $B$ eliminated and $A$ kept, the chain watched on
$A$ only, and what is lost from sight, are

$$
S = P_{AA} + P_{AB}\,G\,P_{BA}, \qquad \pi_B = \pi_A P_{AB}\,G, \qquad G = (I - P_{BB})^{-1} .
$$

$G$ counts visits and is non-negative; it is built from halves, with $1 - P_{ii}$ always replaced by
the sum of what leaves $i$ (Grassmann, Taksar, Heyman 1985). Nothing is ever subtracted, so every
entry of $\pi$ keeps its relative accuracy whatever the conditioning: a coupling of $10^{-100}$
between two parts of a chain does no harm. The last token standing must be one that every walk comes
to, so the closed class is found first. (Walks run until they settle were tried: no faster where the
chain mixes fast, useless where it does not.)
"""

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from flowscope.errors import ConvergenceError, InvalidInputError
from flowscope.markov.causal import refuse_causal
from flowscope.markov.scores import as_kernel, as_law, as_share
from flowscope.simplex.probability import ArrayLike

__all__ = ["is_irreducible", "stationary_distribution", "token_rank", "wide_kernel", "wide_law"]

_BLOCK = 32  # tokens eliminated at once
_RESIDUAL = 1e-12  # ‖πP − π‖₁ above which a law is not handed out


def stationary_distribution(
    kernel: Tensor | ArrayLike, damping: float = 0.0
) -> Float[Tensor, "*batch N"]:
    r"""The stationary law of each chain, in float64 whatever came in.

    $$
    \pi P_\delta = \pi, \qquad \sum_i \pi_i = 1 .
    $$

    Parameters
    ----------
    kernel
        Kernels $P$, rows summing to one; they are divided by their sums in float64.
    damping
        $\delta \in [0, 1]$, the chance of a step to a token drawn evenly.

    Raises
    ------
    InvalidInputError
        Undamped, for a causal kernel, and for a chain with several closed classes, two of which are
        named.
    ConvergenceError
        If the residual $\Vert\pi P - \pi\Vert_1$ exceeds $10^{-12}$ (not seen so far).

    Notes
    -----
    Relative error of each entry some $10^{-14}$; entries of transient tokens are exact zeros.
    O(N³) for each matrix, all in matrix products batched over the heads. No gradient.

    Examples
    --------
    >>> stationary_distribution([[0.9, 0.1], [0.3, 0.7]])
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    delta = as_share(damping, "damping")
    P = wide_kernel(kernel).detach()
    if delta == 0:
        refuse_causal(P, "The stationary law")
    else:
        P = (1 - delta) * P + delta / P.shape[-1]
    chains = P.reshape(-1, *P.shape[-2:])
    law = _eliminated_law(chains)
    residual = (torch.einsum("bi,bij->bj", law, chains) - law).abs().sum(-1)
    if not bool((residual <= _RESIDUAL).all()):
        raise ConvergenceError(
            f"A stationary law must have a residual below {_RESIDUAL:.0e}; found "
            f"{residual.max().item():.3g}. Damp the chain.",
            law.reshape(P.shape[:-1]),
        )
    return law.reshape(P.shape[:-1])


def token_rank(kernel: Tensor | ArrayLike, damping: float = 0.01) -> Float[Tensor, "*batch N"]:
    r"""TokenRank: PageRank with attention as the links.

    The stationary law of the damped chain: the share of time that a reader spends at each token who
    follows attention from token to token and, with probability ``damping``, goes on from a token
    drawn evenly. Damping makes it defined for every kernel, causal ones included, and every token
    has at least ``damping / N``; the value is a choice, so the ranks of a causal kernel depend on
    it (`occupation` does not).

    Parameters
    ----------
    kernel
        Kernels $P$.
    damping
        $\delta$, in $(0, 1]$.

    Examples
    --------
    >>> token_rank([[1.0, 0.0], [0.5, 0.5]], damping=0.2)
    tensor([0.8333, 0.1667], dtype=torch.float64)
    """
    if as_share(damping, "damping") == 0:
        raise InvalidInputError(
            "token_rank needs a positive damping: it is what makes the ranks unique. For none, "
            "use stationary_distribution."
        )
    return stationary_distribution(kernel, damping)


def wide_kernel(kernel: Tensor | ArrayLike) -> Float[Tensor, "*batch N N"]:
    """Read kernels and give them in float64, rows summing to one there.

    A float32 row misses one by 1e-7; without the second division two routines that treat the rest
    differently would differ by as much.
    """
    P = as_kernel(kernel)
    if P.dtype == torch.float64:
        return P
    wide = P.double()
    return wide.div_(wide.detach().sum(-1, keepdim=True))


def wide_law(
    law: Tensor | ArrayLike | None, kernel: Float[Tensor, "*batch N N"]
) -> Float[Tensor, "*batch N"]:
    """Read a law over the tokens of a wide kernel, summing to one in float64; None is uniform."""
    rho = as_law(law, kernel).to(kernel)
    return rho / rho.sum(-1, keepdim=True)


def is_irreducible(kernel: Tensor | ArrayLike) -> Bool[Tensor, "*batch"]:
    """Whether every token can be reached from every other, for each chain.

    Examples
    --------
    >>> is_irreducible([[[0.9, 0.1], [0.3, 0.7]], [[0.9, 0.1], [0.0, 1.0]]])
    tensor([ True, False])
    """
    P = wide_kernel(kernel)
    chains = P.reshape(-1, *P.shape[-2:])
    found = (chains > 0).flatten(1).all(-1)
    for b in (~found).nonzero()[:, 0].tolist():
        found[b] = int(_classes(chains[b])[0].max()) == 0
    return found.reshape(P.shape[:-2])


def _eliminated_law(P: Float[Tensor, "batch N N"]) -> Float[Tensor, "batch N"]:
    """The law by elimination, the last token standing being one that every walk comes to."""
    kept = _visited_by_all(P)
    chain, S = torch.arange(len(P), device=P.device), P.clone()
    S[chain, kept], S[:, 0] = S[:, 0].clone(), S[chain, kept]
    S[chain, :, kept], S[:, :, 0] = S[:, :, 0].clone(), S[chain, :, kept]
    high, seen = P.shape[-1], []
    while high > 1:
        low = max(high - _BLOCK, 1)
        leaving = S[:, low:high, :low]
        share = S[:, :low, low:high] @ _visits(S[:, low:high, low:high], leaving.sum(-1))
        S = torch.baddbmm(S[:, :low, :low], share, leaving)
        seen.append(share)
        high = low
    law = P.new_ones(len(P), 1, 1)
    for share in reversed(seen):
        law = torch.cat([law, law @ share], -1)
        law = law / law.sum(-1, keepdim=True)
    law = law[:, 0]
    law[chain, kept], law[:, 0] = law[:, 0].clone(), law[chain, kept]
    return law


def _visits(P: Float[Tensor, "batch b b"], exits: Float[Tensor, "batch b"]) -> Tensor:
    r"""G = (I − P)⁻¹ for a block that is left with probabilities ``exits``, without subtraction.

    Two tokens in closed form; more from two halves: G of the first half seen alone, then of the
    second with detours through the first, then all four corners.
    """
    size = P.shape[-1]
    if size == 1:
        return exits[..., None].reciprocal()
    if size == 2:
        there, back = P[..., 0, 1], P[..., 1, 0]
        e, f = exits.unbind(-1)
        corners = torch.stack([f + back, there, back, e + there], -1)
        inverse: Tensor = corners / (e * f + e * back + f * there)[..., None]
        return inverse.reshape(*inverse.shape[:-1], 2, 2)
    h = size // 2
    across, back = P[..., :h, h:], P[..., h:, :h]
    first = _visits(P[..., :h, :h], exits[..., :h] + across.sum(-1))
    detour = back @ first
    second = _visits(
        P[..., h:, h:] + detour @ across,
        exits[..., h:] + (detour @ exits[..., :h, None])[..., 0],
    )
    onward = first @ (across @ second)
    top = torch.cat([first + onward @ detour, onward], -1)
    return torch.cat([top, torch.cat([second @ detour, second], -1)], -2)


def _visited_by_all(P: Float[Tensor, "batch N N"]) -> Int[Tensor, "batch"]:
    """A token of the only closed class of each chain; several classes are refused."""
    least, kept = P.amin(-2).max(-1)  # a column without zero is seen by all
    for b in (least == 0).nonzero()[:, 0].tolist():
        label, closed = _classes(P[b])
        if len(closed) > 1:
            one, other = (np.flatnonzero(label == c)[:4].tolist() for c in closed[:2])
            raise InvalidInputError(
                f"A stationary law must be unique; chain {b} of the batch has "
                f"{len(closed)} closed classes, among them those of tokens {one} and {other}, and "
                "a walk stays in the one it enters. Damp the chain, or take each class alone."
            )
        kept[b] = int(np.flatnonzero(label == closed[0])[0])
    return kept


def _classes(P: Float[Tensor, "N N"]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The class of each token (mutually reachable tokens share one), and which are closed."""
    support = (P > 0).cpu().numpy()
    number, label = connected_components(csr_array(support), connection="strong")
    out = support & (label[:, None] != label[None, :])
    return label, np.setdiff1d(np.arange(number), label[out.any(1)])
