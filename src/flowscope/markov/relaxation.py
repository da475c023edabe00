r"""How fast a chain forgets where it started.

$$
|\lambda_2| = \max_{k\ge2} |\lambda_k(P)|, \qquad \gamma = 1 - |\lambda_2|, \qquad
t_{\rm rel} = \frac1\gamma, \qquad
t_{\rm mix}(\eta) = \min\bigl\{t : \max_i \mathrm{TV}(P^t_{i\cdot}, \pi) \le \eta\bigr\} .
$$

$\gamma$ is the absolute spectral gap: zero for a chain that never settles, because it is periodic
or has several closed classes. In units of steps, what is left of a start shrinks like
$(1-\gamma)^t$, in the end; until then non-reversible chains may do as they like, and $t_{\rm mix}$
says how long it takes from the worst start, without asymptotics.

**Method of the gap.** A chain that drifts along the text is far from normal: in float64 the
eigenvalues of its $P$ are wrong in the first digit. Those of

$$
S_{ij} = \sqrt{\pi_i}\,P_{ij} / \sqrt{\pi_j}, \qquad A = S - \sqrt\pi\sqrt\pi^\top,
$$

are the same, except that $A$ has a 0 in place of the eigenvalue 1, and $S$ is symmetric if $P$ is
reversible and never longer than 1. (A chain without a positive law is taken as it is, less its mean
row, which replaces the 1 too.) Up to 64 tokens the eigenvalues are computed. Beyond, a Krylov space
of $A^{16}$ gives a Ritz pair of $A$, which is taken when its residual is below $10^{-6}$. Often
$\lambda_2$ has company: the eigenvalues of a random kernel fill a disk, those of a near-permutation
a ring, and no eigenvector stands out. There the powers are squared on and

$$
\log|\lambda_2| = \lim_{m\to\infty} \tfrac1m\bigl(\log\Vert A^{2m}\Vert - \log\Vert A^m\Vert\bigr)
$$

is read once it has settled to $10^{-4}$ of itself, not before $m = 4N$ (what is carried around the
tokens once may look like what stays) and not before $m = 10^4/|\log|\lambda_2||$ (moduli closer
than $1/m$ are not told apart). A slow chain would need more than $2^{20}$ and gets all its
eigenvalues, and so does one whose gap is below $10^{-7}$ and may be zero.
"""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.stationary import (
    is_irreducible,
    stationary_distribution,
    wide_kernel,
    wide_law,
)
from flowscope.simplex.probability import ArrayLike

__all__ = ["mixing_time", "relaxation_time", "spectral_gap", "spectrum"]

_SMALL = 64  # tokens up to which all eigenvalues are computed
_DOUBLINGS, _KRYLOV, _RESIDUAL = 4, 12, 1e-6
_SETTLED, _LAST_DOUBLING = 1e-4, 20
_STILL = 1e-7  # gap that may be none


def spectrum(kernel: Tensor | ArrayLike) -> Complex[Tensor, "*batch N"]:
    """All eigenvalues of each kernel, the largest modulus first; complex128, O(N³).

    Among equal moduli, as of a conjugate pair, the order is by the angle from 0 to 2π.

    Examples
    --------
    >>> spectrum([[0.9, 0.1], [0.3, 0.7]]).real
    tensor([1.0000, 0.6000], dtype=torch.float64)
    """
    P = wide_kernel(kernel).detach()
    values: Tensor = torch.linalg.eigvals(_balanced(P, None)[0]).reshape(P.shape[:-1])
    angle = torch.remainder(values.angle(), 2 * math.pi)
    order = angle.argsort(-1)
    values = values.gather(-1, order)
    # Rounding must not decide which of two equal moduli comes first.
    moduli = (values.abs() * 2.0**40).round()
    return values.gather(-1, moduli.sort(dim=-1, descending=True, stable=True).indices)


def spectral_gap(
    kernel: Tensor | ArrayLike, law: Tensor | ArrayLike | None = None
) -> Float[Tensor, "*batch"]:
    r"""Absolute spectral gap $\gamma = 1 - |\lambda_2|$ of each chain, from 0 to 1.

    Parameters
    ----------
    kernel
        Kernels $P$, of any kind: a causal one has the gap $1 - \max_{i\ge1} P_{ii}$.
    law
        $\pi$ where it is known already, which saves its computation.

    Notes
    -----
    Float64, no gradient. Beyond 64 tokens the module says how; the error of $\log|\lambda_2|$ is
    then below about $10^{-4}$ of itself, and mostly at rounding.

    Examples
    --------
    >>> spectral_gap([[0.9, 0.1], [0.3, 0.7]])
    tensor(0.4000, dtype=torch.float64)
    """
    P = wide_kernel(kernel).detach()
    S, root = _balanced(P, law)
    A = S - root
    second = _largest(A) if P.shape[-1] <= _SMALL else _modulus(A)
    return (1 - second).clamp(0.0, 1.0).reshape(P.shape[:-2])


def relaxation_time(
    kernel: Tensor | ArrayLike, law: Tensor | ArrayLike | None = None
) -> Float[Tensor, "*batch"]:
    r"""Relaxation time $1/\gamma$ in steps; at least 1, infinite for a chain that never settles.

    (The other usage, $-1/\log|\lambda_2|$, agrees for slow chains and is smaller by about ½.)

    Parameters
    ----------
    kernel, law
        As for `spectral_gap`.

    Notes
    -----
    A gap below 1e-13 is rounding and counts as zero.

    Examples
    --------
    >>> relaxation_time([[0.9, 0.1], [0.3, 0.7]])
    tensor(2.5000, dtype=torch.float64)
    """
    gap = spectral_gap(kernel, law)
    return 1 / torch.where(gap < 1e-13, 0.0, gap)


def mixing_time(
    kernel: Tensor | ArrayLike,
    tolerance: float = 0.25,
    *,
    law: Tensor | ArrayLike | None = None,
    longest: int = 2**20,
) -> Float[Tensor, "*batch"]:
    r"""Steps until every start is within a tolerance of the stationary law, exactly.

    $$
    \min\{t : \max_i \mathrm{TV}(P^t_{i\cdot}, \pi) \le \eta\}
    $$

    Parameters
    ----------
    kernel
        Kernels $P$.
    tolerance
        $\eta \in (0, 1)$.
    law
        $\pi$ where it is known already; else `stationary_distribution`, with its refusals.
    longest
        Where the time exceeds this many steps the answer is ∞, as it is for a periodic chain.

    Notes
    -----
    The distance does not grow with $t$, so powers are doubled until it is small and the time found
    bit by bit: $2\log_2 t$ products of N×N matrices, float64, no gradient.

    Examples
    --------
    >>> mixing_time([[0.9, 0.1], [0.3, 0.7]])  # .75·.6ᵗ ≤ .25
    tensor(3., dtype=torch.float64)
    """
    if not 0 < tolerance < 1:
        raise InvalidInputError(
            f"tolerance must lie strictly between 0 and 1; got {tolerance!r}. A quarter is usual."
        )
    if longest < 1:
        raise InvalidInputError(f"longest must be at least one step; got {longest!r}.")
    P = wide_kernel(kernel).detach()
    pi = stationary_distribution(P) if law is None else wide_law(law, P)
    chains, pi = P.reshape(-1, *P.shape[-2:]), pi.reshape(-1, 1, P.shape[-1])

    powers = [chains]
    while 2 ** len(powers) <= longest and bool((_distance(powers[-1], pi) > tolerance).any()):
        powers.append(_stochastic(powers[-1] @ powers[-1]))
    far = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device).expand_as(chains)
    steps = pi.new_zeros(len(chains))
    for k in reversed(range(len(powers))):
        further = _stochastic(far @ powers[k])
        short = _distance(further, pi) > tolerance
        far = torch.where(short[:, None, None], further, far)
        steps = steps + 2.0**k * short
    # All bits set means that not even the largest power reached was enough.
    time = torch.where(steps == 2.0 ** len(powers) - 1, torch.inf, steps + 1)
    at_once = (1 - pi.amin(-1)[:, 0]) <= tolerance
    time = time.masked_fill(time > longest, torch.inf).masked_fill(at_once, 0.0)
    return time.reshape(P.shape[:-2])


def _balanced(
    P: Float[Tensor, "*batch N N"], law: Tensor | ArrayLike | None
) -> tuple[Tensor, Tensor]:
    """The chains as a flat batch, scaled by √π where it is positive, and what to deflate by."""
    chains = P.reshape(-1, *P.shape[-2:])
    S, rest = chains, chains.mean(-2, keepdim=True).expand_as(chains)
    whole = is_irreducible(chains)
    if bool(whole.any()):
        if law is None:
            pi = stationary_distribution(chains[whole])
        else:
            pi = wide_law(law, P).detach().reshape(-1, P.shape[-1])[whole]
        root = pi.clamp_min(1e-300).sqrt()
        scaled = root[:, :, None] * chains[whole] / root[:, None, :]
        if bool(whole.all()):
            return scaled, root[:, :, None] * root[:, None, :]
        S, rest = S.clone(), rest.clone()
        S[whole], rest[whole] = scaled, root[:, :, None] * root[:, None, :]
    return S, rest


def _distance(power: Float[Tensor, "batch N N"], pi: Tensor) -> Float[Tensor, "batch"]:
    return 0.5 * (power - pi).abs().sum(-1).amax(-1)


def _stochastic(power: Float[Tensor, "batch N N"]) -> Float[Tensor, "batch N N"]:
    """Rows that sum to one again: squaring doubles what they miss."""
    return power.div_(power.sum(-1, keepdim=True))


def _largest(A: Float[Tensor, "batch N N"]) -> Float[Tensor, "batch"]:
    values: Tensor = torch.linalg.eigvals(A)
    return values.abs().amax(-1)


def _modulus(A: Float[Tensor, "batch N N"]) -> Float[Tensor, "batch"]:
    """Spectral radius: by a Ritz pair, else by the growth of powers, else by all eigenvalues."""
    found, residual = _ritz_modulus(A)
    left = (residual > _RESIDUAL).nonzero()[:, 0]
    if len(left):
        grown, settled = _growth(A[left])
        found[left] = grown
        if not bool(settled.all()):
            found[left[~settled]] = _largest(A[left[~settled]])
    still = ((1 - found).abs() < _STILL).nonzero()[:, 0]
    if len(still):  # whether such a gap is zero is not for a space in float32 to say
        found[still] = _largest(A[still])
    return found


def _ritz_modulus(A: Float[Tensor, "batch N N"]) -> tuple[Tensor, Tensor]:
    """Largest Ritz value of A on a Krylov space of a power of it, and its residual.

    The space need not be exact and is made in float32; the pair is measured in float64.
    """
    power = A.float()
    for _ in range(_DOUBLINGS):
        power = _normed(power @ power)[0]
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(A.shape[-1], 1, generator=generator).to(A.device)
    v = power @ v.expand(len(A), -1, -1)
    basis = power.new_zeros(len(A), _KRYLOV, A.shape[-1])
    for k in range(_KRYLOV):
        before = v.norm(dim=1, keepdim=True)
        for _ in range(2 if k else 0):  # once leaves a part of what was there
            v = v - basis[:, :k].mT @ (basis[:, :k] @ v)
        size = v.norm(dim=1, keepdim=True)
        # In a space that is invariant already, what is left of v is rounding.
        v = torch.where(size > 1e-5 * before, v / size, 0.0)
        basis[:, k] = v[..., 0]
        v = power @ v
    space = basis.double()
    image = A @ space.mT
    values, vectors = torch.linalg.eig(space @ image)
    chain = torch.arange(len(A), device=A.device)
    y = vectors[chain, :, values.abs().argmax(-1)][..., None]
    u, Au = space.mT.to(y) @ y, image.to(y) @ y
    length = u.norm(dim=1).clamp_min(torch.finfo(A.dtype).tiny)
    value = (u.conj() * Au).sum(1) / length**2
    return value.abs()[:, 0], ((Au - value[:, None] * u).norm(dim=1) / length)[:, 0]


def _growth(A: Float[Tensor, "batch N N"]) -> tuple[Tensor, Tensor]:
    """Spectral radius of A from ‖A²ᵐ‖/‖Aᵐ‖, and for which chains it has settled."""
    count, tokens = A.shape[:2]
    settled = torch.zeros(count, dtype=torch.bool, device=A.device)
    index = torch.arange(count, device=A.device)
    power, log_norm = _normed(A)
    found, before = torch.zeros_like(log_norm), torch.full_like(log_norm, torch.inf)
    for k in range(_LAST_DOUBLING + 1):
        power, more = _normed(power @ power)
        rate = (log_norm + more) * 2.0**-k
        log_norm = 2 * log_norm + more
        # Powers up to m cannot tell moduli apart whose logarithms differ by less than 1/m.
        resolved = 2.0**k * _SETTLED * rate.abs() >= 1
        near = (rate - before).abs() <= _SETTLED * rate.abs()
        done = (resolved & near | (rate == -torch.inf)) & (2**k >= 4 * tokens)
        found[index[done]], settled[index[done]] = rate[done].exp(), True
        hopeless = (2.0**_LAST_DOUBLING * _SETTLED * rate.abs() < 1) & (k >= 4)
        keep, before = ~(done | hopeless), rate
        if not bool(keep.all()):
            power, log_norm, index = power[keep], log_norm[keep], index[keep]
            before = before[keep]
        if not len(index):
            break
    return found, settled


def _normed(power: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices divided by their norms, and the logarithms of these."""
    norm = power.flatten(1).norm(dim=-1)
    return power / norm.clamp_min(torch.finfo(power.dtype).tiny)[:, None, None], norm.log()
