r"""The secular equation of the mobility: its eigenvalues without its matrix.

J = diag p − ppᵀ is a rank-one change of a diagonal matrix. Besides 0, its eigenvalues are the
roots λ of Σ_j p_j/(p_j − λ) = 0, one between each two neighbours of the sorted p. Split at the
j-th gap, p_{j+1} < λ < p_j, the equation reads

.. math:: \phi(\lambda) := \sum_{p_i \ge p_j} \frac{p_i}{p_i - \lambda}
          \;=\; \sum_{p_i \le p_{j+1}} \frac{p_i}{\lambda - p_i} =: \psi(\lambda),

two sums of positive terms: nothing cancels, and since φ rises and log ψ falls at least as fast as
log λ rises, a relative error in the sums is at most the same relative error in λ.

The iteration is Newton's on 1/ψ − 1/φ, which is smooth through both poles. For the largest root φ
has one term, 1/φ is linear and 1/ψ is concave (ψ is a Stieltjes function), so the iterates rise to
the root from below and the error obeys e' ≤ e²/(λ − p₂), the stopping rule. Equal neighbours
enclose the eigenvalue p_j itself, and outcomes without mass add eigenvalues 0.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.simplex.blocks import reduced, strips

__all__ = ["eigenvalue_slopes", "interlaced_roots", "largest_root"]

# Far above need: over 10⁶ random, tied, clustered and peaked rows the largest root took 2 steps in
# float32 and 4 in float64, the others 9. Sixty bisections exhaust the digits of any bracket.
_MAX_STEPS, _NEWTON_STEPS, _BISECTIONS = 30, 40, 70


def largest_root(
    peak: Float[Tensor, " rows"], tail: Float[Tensor, "rows V"]
) -> Float[Tensor, " rows"]:
    """Largest root, in float64, of rows split into their peak and the rest.

    V-wide sums run in the dtype of the tail, one number per row in float64. The rows need not sum
    to one: the root scales with them.
    """
    epsilon, tiny = torch.finfo(tail.dtype).eps, torch.finfo(tail.dtype).tiny
    p1, p2 = peak.double(), reduced(tail, lambda part: part.amax(-1)).amax(-1).double()
    mass = reduced(tail, lambda part: part.sum(-1)).double().sum(-1)
    floor = 2 * p1 * p2 / (p1 + p2)  # the root of the two largest entries alone
    settled = (p1 - p2 <= 4 * epsilon * p1) | (p2 == 0)
    root = _two_term_root(p1, p2, mass).clamp(floor, p1)
    for _ in range(_MAX_STEPS):
        point = root.to(tail.dtype)
        at = point.double()
        psi, square = _secular_sums(tail, point)
        slope = (psi + square) / at  # Σ t/(λ − t)²
        step = ((p1 - at) * psi.square() - p1 * psi) / (p1 * slope + psi.square())
        root = (at + step).clamp(floor, p1)
        small = (step.square() <= 8 * epsilon * at * (at - p2)) | (step.abs() <= tiny)
        if bool((settled | small).all()):
            break
    return torch.where(settled, torch.where(p2 == 0, 0.0, 0.5 * (p1 + p2)), root)


def _secular_sums(
    tail: Float[Tensor, "rows V"], point: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """Σ r and Σ r² over each row of r = t/(λ − t), in float64 from one strip to the next."""
    sums = []
    spread = point[:, None].expand_as(tail)
    for rows, points in zip(strips(tail), strips(spread), strict=True):
        both = []
        for part, at in zip(rows, points, strict=True):
            ratio = at - part
            torch.div(part, ratio, out=ratio)
            both.append(torch.stack([ratio.sum(-1), ratio.square_().sum(-1)]))
        sums.append(torch.stack(both).double().sum(0))
    first, second = torch.cat(sums, -1)
    return first, second


def _two_term_root(p1: Tensor, p2: Tensor, mass: Tensor) -> Tensor:
    """Root with ψ = p₂/(λ − p₂) + (T₁ − p₂)/λ, which bounds ψ from below."""
    rest = (mass - p2).clamp(min=0.0)
    half = 0.5 * (p1 * p2 + p1 * (p2 + rest) + p2 * rest)
    total = p1 + p2 + rest
    return (half + (half.square() - total * p1 * p2 * rest).clamp(min=0.0).sqrt()) / total


def interlaced_roots(
    ordered: Float[Tensor, "rows V"], gap: Int[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    """Root between entries ``gap`` and ``gap + 1`` of each float64 row sorted downwards.

    Safeguarded Newton: a step that leaves the bracket, or comes late, is a geometric bisection.
    """
    epsilon = torch.finfo(ordered.dtype).eps
    high = ordered.gather(-1, gap[:, None])[:, 0]
    low = ordered.gather(-1, gap[:, None] + 1)[:, 0]
    settled = (high - low <= 4 * epsilon * high) | (low == 0)
    shut = torch.where(low == 0, 0.0, 0.5 * (low + high))
    root, done = 2 * low * high / (low + high), settled
    for count in range(_NEWTON_STEPS + _BISECTIONS):
        step, above = _newton_step(ordered, root)
        high, low = torch.where(above, root, high), torch.where(above, low, root)
        trial = root + step
        inside = (low <= trial) & (trial <= high) & (count < _NEWTON_STEPS)
        trial = torch.where(inside, trial, (low * high).sqrt())
        root = torch.where(done, root, trial)
        done = done | (step.abs() <= 4 * epsilon * root) | (high - low <= 4 * epsilon * high)
        if bool(done.all()):
            break
    return torch.where(settled, shut, root)


def _newton_step(p: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """Newton step of 1/ψ − 1/φ at each root, and whether the point is above the root."""
    gap = root[:, None] - p
    ratio = p / gap
    curve = ratio / gap
    below = gap > 0
    psi, phi = ratio.where(below, 0.0).sum(-1), -ratio.where(~below, 0.0).sum(-1)
    psi_slope, phi_slope = curve.where(below, 0.0).sum(-1), curve.where(~below, 0.0).sum(-1)
    step = (1 / phi - 1 / psi) / (psi_slope / psi.square() + phi_slope / phi.square())
    return step, phi > psi


def eigenvalue_slopes(
    p: Float[Tensor, "rows V"], eigenvalue: Float[Tensor, " rows"], index: Int[Tensor, " rows"]
) -> Float[Tensor, "rows V"]:
    r"""Slope ∂λ/∂p, up to a constant, of one eigenvalue of each row; float64, Σp = 1.

    .. math:: \frac{\partial\lambda}{\partial p_i} = v_i^2 - 2 v_i \langle p, v\rangle
              = \frac{u_i^2 - 2u_i}{\|u\|^2}, \qquad u_i = \frac{p_i}{p_i - \lambda}

    A multiple eigenvalue has no slope of its own. m equal entries share λ = p_j and get the mean
    over the cluster, 1/m each (for m = 2 the slope itself); eigenvalues 0 of z outcomes without
    mass get the slope towards equal mass on them: 1/z, and 1/z + 1/(V − z) for the largest.
    """
    distance = p - eigenvalue[:, None]
    cluster = distance.abs() <= 8 * torch.finfo(p.dtype).eps * eigenvalue[:, None]
    u = p / distance.where(~cluster, 1.0)
    simple = (u.square() - 2 * u) / u.square().sum(-1, keepdim=True)
    tied = cluster.to(p.dtype) / cluster.sum(-1, keepdim=True).clamp(min=1)
    empty = p == 0
    z = empty.sum(-1)
    m = p.shape[-1] - z
    rate = 1 / z.clamp(min=1) + (index == m - 1) / m
    rate = rate.where(index < p.shape[-1] - 1, 0.0)
    slope = torch.where(cluster.any(-1, keepdim=True), tied, simple)
    return torch.where(eigenvalue[:, None] > 0, slope, empty * rate[:, None])
