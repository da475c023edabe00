r"""The identities of source 002 on the logits of a head: how exactly each of them holds.

Logits $z = \beta W$ are taken as the numbers they are, in float64, before any mask, and each
identity of the geometry (`flowscope.markov`) is computed along two routes. What is told is the
largest difference over the entries of a head, divided by what rounding works with:

* an entry of a kernel is the exponential of a sum of a few logits, each rounded to $2^{-53}$ of its
  size, so differences are relative to $s = 1 + \max|\beta W|$;
* $k$ normalisations in turn round $k$ times, and Sinkhorn steps do not amplify: $k\,s$;
* flows $\pi_iP_{ij}$ of a chain whose entries have relative error $\epsilon$ have relative error
  $2N\epsilon$ (O'Cinneide 1993): $N s$, relative to the flow;
* where $\log\pi$ or $\log u$ enters, its largest value is added to $s$;
* products of queries and keys cancel at the size $1 + \beta\max(|q| + |k|)^2$.

With that, one bound serves all of them: `BOUND` $= 10^{-12}$, some 4,500 roundings of float64,
which leaves room for sums over a few hundred tokens. A bridge has the tolerance of its solver. A
head whose kernel has zeros in float64 (logits some 700 apart) is refused where a logarithm of it is
needed, and counted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import FlowscopeError, InvalidInputError
from flowscope.markov.bidivergence import Bidivergence
from flowscope.markov.bridges import KernelBridge, kernel_bridge
from flowscope.markov.dials import operator_square
from flowscope.markov.irreversibility import (
    currents,
    cycle_affinities,
    entropy_production,
    flux_production,
    net_flow,
)
from flowscope.markov.kernels import (
    attention_kernel,
    diffusion_kernel,
    product_of_experts,
    sinkhorn_kernel,
    tilted,
    time_reversal,
)
from flowscope.markov.magnetic import log_kernel, magnetic_laplacian
from flowscope.markov.stationary import stationary_distribution

__all__ = ["BOUND", "IDENTITIES", "HeadScores", "Identity", "identity_errors", "magnetic_spectrum"]

BOUND = 1e-12
"""Largest difference, relative to the scale of each identity, that counts as rounding."""

_TOLERANCE = 1e-10  # of the solver of the bridge
_SWEEPS = 5_000  # of the same, after which a head is left out
_CYCLES = 64

Matrix = Float[Tensor, "H n n"]
Errors = Float[Tensor, " H"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScores:
    """Scores of some heads on one sequence, in float64, and what the identities take.

    Attributes
    ----------
    scores, beta
        W and β with logits βW, every pair there; the model's own β is its scale.
    q, k
        Queries and keys, keys repeated for the heads that share them.
    charge
        q of the phases 2πqβ(W_ij − W_ji), per unit of the logits.
    sweeps
        Column and row steps of the bistochastic kernels.
    rounding
        Relative error with which the model formed a score.
    """

    scores: Matrix
    beta: float
    q: Float[Tensor, "H n d"]
    k: Float[Tensor, "H n d"]
    charge: float
    sweeps: int
    rounding: float

    def __len__(self) -> int:
        return len(self.scores)

    def single(self, head: int) -> "HeadScores":
        """One of the heads alone."""
        some = slice(head, head + 1)
        return HeadScores(
            scores=self.scores[some], beta=self.beta, q=self.q[some], k=self.k[some],
            charge=self.charge, sweeps=self.sweeps, rounding=self.rounding,
        )  # fmt: skip

    @cached_property
    def parts(self) -> Bidivergence:
        """Divergences and sectors."""
        return Bidivergence(scores=self.scores)

    @cached_property
    def size(self) -> Errors:
        """The scale s of the module docstring."""
        return 1 + self.beta * _largest(self.scores)

    @cached_property
    def attention(self) -> Matrix:
        """Attention over every pair, P."""
        return attention_kernel(self.scores, self.beta)

    @cached_property
    def diffusion(self) -> Matrix:
        """The diffusion map of the same scores."""
        return diffusion_kernel(self.scores, self.beta)

    @cached_property
    def law(self) -> Float[Tensor, "H n"]:
        """Stationary law π of attention."""
        return stationary_distribution(self.attention)

    @cached_property
    def bistochastic(self) -> Matrix:
        """Sinkhorn(βW) after the given number of steps."""
        return sinkhorn_kernel(self.scores, self.beta, iterations=self.sweeps)

    @cached_property
    def bridge(self) -> KernelBridge:
        """The bridge of attention from the uniform law to the stationary one."""
        return kernel_bridge(
            self.attention, None, self.law, tolerance=_TOLERANCE, max_iterations=_SWEEPS
        )

    @property
    def cycles(self) -> Int[Tensor, "cycles 3"]:
        """Triples of different tokens, always the same for one number of tokens."""
        n = self.scores.shape[-1]
        draw = torch.Generator().manual_seed(0)
        order = torch.rand((_CYCLES, n), generator=draw).argsort(-1)
        return order[:, :3].to(self.scores.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Identity:
    """An equality, what its error is relative to, and its error on heads.

    Attributes
    ----------
    name, formula
        In words and in symbols.
    scale
        What the largest difference is divided by, in words.
    error
        From heads to one number each; NaN for a head it cannot speak of.
    bound
        Largest error that is still rounding.
    """

    name: str
    formula: str
    scale: str
    error: Callable[[HeadScores], Errors]
    bound: float = BOUND


def identity_errors(identity: Identity, heads: HeadScores) -> Errors:
    """Error of an identity on each head; NaN where a head is refused, ∞ where it is no number.

    Examples
    --------
    >>> x = torch.eye(3).double()[None]
    >>> head = HeadScores(scores=x, beta=1.0, q=x, k=x, charge=0.1, sweeps=9, rounding=1e-16)
    >>> max(float(identity_errors(one, head)) for one in IDENTITIES) < 1e-10
    True
    """
    try:
        found = identity.error(heads)
    except FlowscopeError:
        if len(heads) == 1:
            return heads.scores.new_full((1,), torch.nan)
        return torch.cat([identity_errors(identity, heads.single(h)) for h in range(len(heads))])
    return found


def magnetic_spectrum(heads: HeadScores, charge: float) -> Float[Tensor, "H n"]:
    """Eigenvalues of the magnetic Laplacian at a charge per unit of the logits."""
    L = magnetic_laplacian(heads.scores, heads.beta, charge * heads.beta)
    values: Tensor = torch.linalg.eigvalsh(L)
    return values


def _largest(x: Tensor) -> Errors:
    """Largest modulus of each head; ∞ when an entry is no number."""
    found = x.abs().flatten(1).amax(1)
    return torch.where(found.isnan(), torch.inf, found)


def _logs(kernel: Matrix) -> Matrix:
    if bool((kernel == 0).any()):
        raise InvalidInputError("The kernel has zeros in float64: its logits are too far apart.")
    return kernel.log()


def _forward(heads: HeadScores) -> Errors:
    ours = torch.softmax(-heads.beta * heads.parts.forward, -1)
    return _largest(ours - heads.attention) / heads.size


def _experts(heads: HeadScores) -> Errors:
    back = attention_kernel(heads.scores, heads.beta, direction="backward")
    return _largest(product_of_experts(heads.attention, back) - heads.diffusion) / heads.size


def _doob(heads: HeadScores, alpha: float) -> Errors:
    _, log_degree = log_kernel(heads.scores, heads.beta)
    bent = tilted(heads.diffusion, -alpha * log_degree)
    return _largest(bent - diffusion_kernel(heads.scores, heads.beta, alpha)) / heads.size


def _sectors(heads: HeadScores) -> Errors:
    parts = heads.parts
    gap = parts.forward - (parts.metric + parts.exact - parts.flux)
    return heads.beta * _largest(gap) / heads.size


def _affinities(heads: HeadScores) -> Errors:
    _logs(heads.attention)
    A, (i, j, k) = heads.parts.flux, heads.cycles.unbind(-1)
    around = 2 * heads.beta * (A[:, i, j] + A[:, j, k] + A[:, k, i])
    return _largest(cycle_affinities(heads.attention, heads.cycles) - around) / heads.size


def _triangles(heads: HeadScores) -> Errors:
    logs = _logs(heads.attention)
    odds = logs - logs.mT
    mean = odds.mean(-1)
    seen = odds + mean[:, None, :] - mean[:, :, None]  # mean over k of the affinity of i, j, k
    return _largest(seen - 2 * heads.beta * heads.parts.coexact) / heads.size


def _exact_part(heads: HeadScores) -> Errors:
    parts = heads.parts
    gradient = parts.antisymmetric + parts.coexact
    P = torch.softmax(-heads.beta * (parts.metric + gradient), -1)
    law = stationary_distribution(P)
    flow = law[..., None] * P
    most = torch.maximum(flow, flow.mT).clamp_min(torch.finfo(flow.dtype).tiny)
    return _largest(currents(P, law) / most) / (P.shape[-1] * heads.size)


def _with_law(heads: HeadScores) -> Errors:
    """Scale of what holds the logarithm of the stationary law."""
    return heads.size + _largest(heads.law.log())


def _production(heads: HeadScores) -> Errors:
    sigma = entropy_production(heads.attention, heads.law)
    mean = flux_production(heads.scores, heads.beta, heads.law)
    return (sigma - mean).abs() / _with_law(heads)


def _still(heads: HeadScores) -> Errors:
    return net_flow(heads.attention, heads.law).abs().sum(-1)


def _reversal(heads: HeadScores) -> Errors:
    _logs(heads.attention)
    back = time_reversal(heads.attention, heads.law)
    there, here = (cycle_affinities(P, heads.cycles) for P in (back, heads.attention))
    return _largest(there + here) / _with_law(heads)


def _uncharged(heads: HeadScores) -> Errors:
    L, P = magnetic_laplacian(heads.scores, heads.beta, 0.0), heads.diffusion
    one = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return _largest(one - L - (P * P.mT).sqrt()) / heads.size


def _nonnegative(heads: HeadScores) -> Errors:
    values = magnetic_spectrum(heads, heads.charge)
    return (-values.amin(-1)).clamp_min(0.0) / heads.size


def _gauge(heads: HeadScores) -> Errors:
    W = heads.scores
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn((W.shape[-1], 1), generator=draw, dtype=W.dtype).to(W.device) / heads.beta
    moved = magnetic_laplacian(W + rows, heads.beta, heads.charge * heads.beta)
    gap = torch.linalg.eigvalsh(moved) - magnetic_spectrum(heads, heads.charge)
    return _largest(gap) / (heads.size + heads.beta * float(rows.abs().max()))


def _steps(heads: HeadScores) -> Errors:
    return (2 * heads.sweeps + 1) * heads.size


def _sinkhorn(heads: HeadScores) -> Errors:
    ours = sinkhorn_kernel(-heads.parts.forward, heads.beta, iterations=heads.sweeps)
    return _largest(ours - heads.bistochastic) / _steps(heads)


def _transposed(heads: HeadScores) -> Errors:
    z = -heads.beta * heads.parts.backward
    z = z - z.logsumexp(-2, keepdim=True)
    for _ in range(heads.sweeps):
        z = z - z.logsumexp(-1, keepdim=True)
        z = z - z.logsumexp(-2, keepdim=True)
    return _largest(z.exp() - heads.bistochastic.mT) / _steps(heads)


def _closure(heads: HeadScores) -> Errors:
    one = heads.bistochastic
    other = one.roll(1, 0)  # the head beside it
    left = ((one.sum(-2) - 1).abs() + (other.sum(-2) - 1).abs()).sum(-1)
    product = one @ other
    rows, columns = ((product.sum(axis) - 1).abs().sum(-1) for axis in (-1, -2))
    return torch.maximum(rows, (columns - left).clamp_min(0.0)) / product.shape[-1]


def _marginals(heads: HeadScores) -> Errors:
    found = heads.bridge
    start = torch.full_like(heads.law, 1 / heads.law.shape[-1])
    gaps = (found.coupling.sum(-1) - start, found.coupling.sum(-2) - heads.law)
    return (
        torch.stack([gap.abs().sum(-1) for gap in gaps])
        .sum(0)
        .masked_fill(~found.converged, torch.nan)
    )


def _bent(heads: HeadScores) -> Errors:
    found = heads.bridge
    ours = found.coupling / found.coupling.sum(-1, keepdim=True)
    doob = tilted(heads.attention, found.end_potential)
    scale = heads.size + _largest(found.end_potential) + _largest(found.start_potential)
    return torch.maximum(_largest(ours - doob), _largest(ours - found.forward)) / scale


def _square(heads: HeadScores, a: float, b: float) -> Errors:
    q, k, beta = heads.q, heads.k, heads.beta
    W = q @ k.mT
    if a:
        expected = attention_kernel(W, beta)
    elif b:
        expected = torch.softmax(-beta * Bidivergence(scores=W).metric, -1)
    else:
        m = q + k
        apart = torch.cdist(m, m, compute_mode="donot_use_mm_for_euclid_dist")
        expected = torch.softmax(-beta * apart.square() / 8, -1)
    found = torch.softmax(operator_square(q, k, beta, a=a, b=b), -1)
    longest: Tensor = q.norm(dim=-1).amax(-1) + k.norm(dim=-1).amax(-1)
    return _largest(found - expected) / (1 + beta * longest.square())


_S, _LAW = "1 + max|βW|", "1 + max|βW| + max|log π|"
_QK, _STEPS = "1 + β max(|q| + |k|)²", "steps · (1 + max|βW|)"
_CHECKS: tuple[tuple[str, str, str, Callable[[HeadScores], Errors]], ...] = (
    ("attention", "softmax(−βd→) = softmax(βW)", _S, _forward),
    ("product of experts", "rownorm(A→ ⊙ A←) = softmax(−βD)", _S, _experts),
    ("α = ½", "α-normalisation = Doob, h = degree^−½", _S, partial(_doob, alpha=0.5)),
    ("α = 1", "α-normalisation = Doob, h = degree^−1", _S, partial(_doob, alpha=1.0)),
    ("sectors", "d→ = ½D + ½(w_i − w_j) − A", _S, _sectors),
    ("cycle affinity", "log P_ijP_jkP_ki/P_ikP_kjP_ji = 2β(A_ij + A_jk + A_ki)", _S, _affinities),
    ("flux from affinities", "mean over k of affinity(i, j, k) = 2βF_ij", _S, _triangles),
    ("reversible when exact", "F = 0: π_iP_ij = π_jP_ji", f"N ({_S}), of the flow", _exact_part),
    ("entropy production", "½ΣJ log(π_iP_ij/π_jP_ji) = 2βΣπ_iP_ijA_ij", _LAW, _production),
    ("no net flow at π", "Σ_j J_ij(π) = 0", "1", _still),
    ("time reversal", "π_jP_ji/π_i has the affinities of P, negative", _LAW, _reversal),
    ("magnetic at charge 0", "I − L = √(P ⊙ Pᵀ), P the diffusion map", _S, _uncharged),
    ("magnetic L ⪰ 0", "least eigenvalue at the charge, if below 0", _S, _nonnegative),
    ("magnetic gauge", "W_ij + c_i has the same eigenvalues", f"{_S} + max|βc|", _gauge),
    ("Sinkhorn, forward", "Sinkhorn(−βd→) = Sinkhorn(βW), equal steps", _STEPS, _sinkhorn),
    ("Sinkhorn, backward", "Sinkhorn(−βd←) = Sinkhorn(βW)ᵀ, equal steps", _STEPS, _transposed),
    ("closure", "a product is bistochastic, beyond what the steps left", "N", _closure),
    ("bridge, marginals", "Π = u⁺Pu⁻ joins the uniform law and π", "1", _marginals),
    ("bridge, Doob", "rownorm Π = Doob transform of P, h = u⁻", f"{_S} + max|log u|", _bent),
    ("square (1, 1)", "operator square = softmax(βW)", _QK, partial(_square, a=1.0, b=1.0)),
    ("square (0, 1)", "operator square = softmax(−½βD)", _QK, partial(_square, a=0.0, b=1.0)),
    ("square (0, 0)", "… = softmax(−¼β‖m_i − m_j‖²)", _QK, partial(_square, a=0.0, b=0.0)),
)

IDENTITIES = tuple(
    Identity(
        name=name,
        formula=formula,
        scale=scale,
        error=error,
        bound=_TOLERANCE if error is _marginals else BOUND,
    )
    for name, formula, scale, error in _CHECKS
)
"""Every identity that is checked on scores alone."""
