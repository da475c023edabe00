r"""What can be said of a causal chain, whose kernel is lower triangular.

Under a causal mask token $0$ sees itself only, every other token sees no later one, and the walk
ends at token 0: the stationary law is a point mass, every current vanishes and a label such as
"equilibrium" says nothing about the head (E57). `refuse_causal` says so where it matters. Two laws
that are not empty come from the transient block $T$, tokens $1 \dots N-1$ *with* their diagonal:

$$
\nu T = \lambda \nu, \quad \lambda = \max_{i\ge1} P_{ii}
\qquad\text{(quasi-stationary)}, \qquad
\omega \propto \tfrac1{N-1}\,1^\top (I - T)^{-1} \qquad\text{(occupation)} .
$$

The diagonal is needed: the strictly lower triangular part is nilpotent, every walk of it is
absorbed within $N - 1$ steps, and nothing is left to condition on. The law $\nu$ lives on the
tokens up to the one $m$ that attains the maximum. The right eigenvector lives on those from $m$ on,
so the chain conditioned never to end (Doob transform with it) stays at $m$: a point mass again.
No step can be taken back, so entropy production is infinite under either law, and no
regime is read from them.

Both are solved by back-substitution from the last token down. All terms are non-negative, so each
entry keeps its relative accuracy.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.scores import as_kernel
from flowscope.simplex.probability import ArrayLike

__all__ = ["QuasiStationary", "is_causal", "occupation", "quasi_stationary", "refuse_causal"]

# Two diagonal entries closer than this many rounding units of the kernel are the same number.
_TIE_UNITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class QuasiStationary:
    r"""The law of a causal walk, given that it has not reached token 0 for long.

    Attributes
    ----------
    law
        $\nu$ over all tokens, zero at token 0 and after ``token``.
    survival
        $\lambda$, the chance to be alive one step later; the walk lasts $1/(1-\lambda)$ more
        steps on average.
    token
        $m$, the token that attains $\lambda = P_{mm}$.
    contraction
        $\max_{i\ge1,\,i\ne m} P_{ii}/\lambda < 1$: what is left of the way to $\nu$ after a step.
    """

    law: Float[Tensor, "*batch N"]
    survival: Float[Tensor, "*batch"]
    token: Int[Tensor, "*batch"]
    contraction: Float[Tensor, "*batch"]


def is_causal(kernel: Tensor | ArrayLike) -> Bool[Tensor, "*batch"]:
    """Whether nothing stands above the diagonal, for each matrix.

    Examples
    --------
    >>> is_causal([[[1.0, 0.0], [0.3, 0.7]], [[0.9, 0.1], [0.3, 0.7]]])
    tensor([ True, False])
    """
    return _triangular(as_kernel(kernel))


def refuse_causal(kernel: Float[Tensor, "*batch N N"], what: str) -> None:
    """Raise if a kernel of the batch is causal, saying what of it would be empty.

    Parameters
    ----------
    kernel
        Kernels that have been read by `as_kernel`.
    what
        What was asked for, as the subject of the sentence: "The stationary law".

    Raises
    ------
    InvalidInputError
        With what to use in its place.
    """
    causal = _triangular(kernel)
    if bool(causal.any()):
        raise InvalidInputError(
            f"{what} of a causal kernel{_place(causal)} says nothing: the chain is absorbed by "
            "token 0, its stationary law is a point mass, and currents and labels are empty. Use "
            "the kernel of the unmasked scores, a damped chain, or quasi_stationary."
        )


def quasi_stationary(kernel: Tensor | ArrayLike) -> QuasiStationary:
    r"""Where a causal walk is, given that it has not been absorbed by token 0 yet.

    $$
    \nu_m = 1, \qquad \nu_j = \frac{\sum_{i>j} \nu_i P_{ij}}{P_{mm} - P_{jj}} \quad (1 \le j < m),
    \qquad \nu_j = 0 \quad (j > m),
    $$

    normalised; $m = \operatorname{argmax}_{i\ge1} P_{ii}$. From a uniform start the law of the
    walks still alive tends to $\nu$, by the factor `QuasiStationary.contraction` a step.

    Parameters
    ----------
    kernel
        Causal kernels $P$.

    Raises
    ------
    InvalidInputError
        For a kernel that is not causal; one without diagonal (its transient part is nilpotent: no
        walk lives longer than N − 1 steps); one with a second absorbing token; or one whose largest
        diagonal entry is attained twice within rounding, where the limit depends on the start or
        is not there at all.

    Notes
    -----
    Float64, O(N²) for each matrix in N batched steps; no gradient.

    Examples
    --------
    >>> found = quasi_stationary([[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.1, 0.3, 0.6]])
    >>> found.law, found.survival
    (tensor([0.0000, 0.4286, 0.5714], dtype=torch.float64), tensor(0.6000, dtype=torch.float64))
    """
    P, unit = _causal_kernel(kernel, "quasi_stationary")
    stays = P.diagonal(dim1=-2, dim2=-1).clone()
    stays[..., 0] = 0.0
    ranked = stays.sort(dim=-1, descending=True, stable=True)
    survival, second, token = ranked.values[..., 0], ranked.values[..., 1], ranked.indices[..., 0]
    nilpotent = survival == 0
    if bool(nilpotent.any()):
        raise InvalidInputError(
            f"A causal kernel without diagonal{_place(nilpotent)} has no quasi-stationary law: its "
            "transient part is nilpotent and every walk is absorbed within N − 1 steps. Use "
            "occupation, or keep the diagonal."
        )
    _refuse_absorbing(P)
    tied = survival - second <= _TIE_UNITS * unit
    if bool(tied.any()):
        both = ranked.indices[tied][0, :2].tolist()
        raise InvalidInputError(
            f"The quasi-stationary law must be unique; tokens {both[0]} and {both[1]} keep the "
            f"walk with the same probability within rounding{_place(tied)}. Use occupation."
        )
    tokens = torch.arange(P.shape[-1], device=P.device)
    start = (tokens == token[..., None]).to(P)
    gap = torch.where(tokens < token[..., None], survival[..., None] - stays, 1.0)
    law = _back_substituted(P, start, gap)
    return QuasiStationary(law=law, survival=survival, token=token, contraction=second / survival)


def occupation(kernel: Tensor | ArrayLike) -> Float[Tensor, "*batch N"]:
    r"""Share of the time before absorption that a causal walk spends at each token.

    $$
    \omega_j \propto \sum_{t\ge0} (\mu T^t)_j, \qquad
    \omega_j\,(1 - P_{jj}) \propto \mu_j + \sum_{i>j} \omega_i P_{ij}, \qquad
    \mu = \tfrac1{N-1} \text{ on } 1 \dots N-1 .
    $$

    It ranks the tokens of a causal head without a free parameter. Token 0, where the walk ends,
    has none.

    Parameters
    ----------
    kernel
        Causal kernels $P$.

    Raises
    ------
    InvalidInputError
        For a kernel that is not causal, or one with a second absorbing token.

    Notes
    -----
    Float64, O(N²) for each matrix in N batched steps; $1 - P_{jj}$ is taken as the sum of the other
    entries. No gradient.

    Examples
    --------
    >>> occupation([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    tensor([0.0000, 0.6667, 0.3333], dtype=torch.float64)
    """
    P, _ = _causal_kernel(kernel, "occupation")
    _refuse_absorbing(P)
    leaves = P.tril(-1).sum(-1)
    leaves[..., 0] = 1.0
    return _back_substituted(P, torch.ones_like(leaves), leaves)


def _triangular(P: Float[Tensor, "*batch N N"]) -> Bool[Tensor, "*batch"]:
    causal = (P[..., 0, 1:] == 0).all(-1)  # cheap, and false for every unmasked head
    if bool(causal.any()):
        causal = causal & (P.triu(1) == 0).all(-1).all(-1)
    return causal


def _causal_kernel(kernel: Tensor | ArrayLike, name: str) -> tuple[Tensor, float]:
    """The kernel in float64, detached, and the rounding unit it came with."""
    P = as_kernel(kernel).detach()
    other = ~_triangular(P)
    if bool(other.any()):
        raise InvalidInputError(
            f"{name} expects a causal kernel, with zeros above the diagonal; the one given"
            f"{_place(other)} has a way forward. Use stationary_distribution."
        )
    return P.double(), torch.finfo(P.dtype).eps


def _refuse_absorbing(P: Float[Tensor, "*batch N N"]) -> None:
    stuck = P.tril(-1).sum(-1) == 0
    stuck[..., 0] = False
    if bool(stuck.any()):
        where = stuck.nonzero()[0].tolist()
        raise InvalidInputError(
            f"Only token 0 may absorb the walk; token {where[-1]} attends to itself alone"
            f"{_place(stuck.any(-1))}. Leave that head out, or damp the chain."
        )


def _back_substituted(
    P: Float[Tensor, "*batch N N"], source: Float[Tensor, "*batch N"], rate: Tensor
) -> Float[Tensor, "*batch N"]:
    """The law x with rate_j x_j = source_j + Σ_{i>j} x_i P_ij, for j ≥ 1, and x_0 = 0."""
    x = torch.zeros_like(source)
    for j in range(P.shape[-1] - 1, 0, -1):
        inflow = (x[..., j + 1 :] * P[..., j + 1 :, j]).sum(-1)
        x[..., j] = (source[..., j] + inflow) / rate[..., j]
    return x / x.sum(-1, keepdim=True)


def _place(bad: Bool[Tensor, "*batch"]) -> str:
    place = tuple(bad.nonzero()[0].tolist())
    return f" (at {place})" if place else ""
