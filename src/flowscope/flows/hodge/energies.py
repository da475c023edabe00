r"""Cross-fitted energies of rotation and gradient, with the influence of each block on them.

.. math:: R = \langle \hat w_1, \hat w_2\rangle + \text{what } P_1, P_2 \text{ took up}, \qquad
          G = \langle P_1 v, P_2 v\rangle, \qquad U = \langle \hat u_1, \hat u_2\rangle .

Noise and what lies outside the functions multiply to zero between halves, so R and G are energies
of what is represented, neither raised nor lowered by noise. Counting block b once more moves R by

.. math:: \psi_b = \langle \hat w(\eta_b), \hat w'\rangle
          + \tfrac1N(\langle \hat w_1, \hat w_2\rangle_b - N_b R)

with η_b what the *other* half does not explain of the block (its own half has bent towards it) and
ŵ' the rotation of the other half.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from flowscope.flows.hodge.joint import Half, JointMoments, Products, averaged, halves, ridged

__all__ = ["Energies", "Influence", "energies", "influence", "split_halves"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Energies:
    """R, G and U of several fields on the same points, and R before what P took up is added."""

    rotation: Float64[Tensor, "c"]
    gradient: Float64[Tensor, "c"]
    total: Float64[Tensor, "c"]
    plain: Float64[Tensor, "c"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """What each block does to the energies of one field.

    Attributes
    ----------
    energies
        b·ψ_b: of R, G and U.
    noise
        ⟨ŵ(η_b), ŵ(η_c)⟩ for block b of one half and c of the other, mean over the splits.
    linear
        ⟨ŵ(η_b), ŵ'⟩ with ŵ' scaled to energy 1.
    measure
        (⟨ŵ₁, ŵ₂⟩_b − N_b R)/(N R); zero where R is not positive.
    """

    energies: Float64[Tensor, "b 3"]
    noise: Float64[Tensor, "b b"]
    linear: Float64[Tensor, "b"]
    measure: Float64[Tensor, "b"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Fits of one half: coefficients of rotation, gradient and velocity, for each field."""

    half: Half
    weights: Float64[Tensor, "b"]
    parts: tuple[Tensor, Tensor, Tensor]


def split_halves(
    of: JointMoments, splits: Bool[Tensor, "S b"], pull: Float64[Tensor, "ds"]
) -> list[tuple[Half, Half]]:
    """Equations of both halves of each split, factorised, with the penalty λD."""
    pairs = []
    for first in splits:
        one, two = halves(of, torch.stack([first, ~first]).double())
        pairs.append((ridged(one, pull), ridged(two, pull)))
    return pairs


def energies(
    of: JointMoments, right: Products, splits: Bool[Tensor, "S b"], pairs: Sequence[tuple[Half, Half]]
) -> Energies:
    r"""Energies by the product of two halves, mean over several halvings.

    .. math:: \frac1S\sum_s \langle\hat w_{1s}, \hat w_{2s}\rangle

    Parameters
    ----------
    of : moments of the blocks.
    right : products of each field with gradients and regressors.
    splits : which blocks are in the first half, for each of S splits.
    pairs : factorised equations of these halves; they serve every field.

    Notes
    -----
    O(S·b·c·(r + ds)²). A potential fitted to finitely many points takes up a little of a true
    rotation; its expectation is added to R, as in :mod:`flowscope.flows.hodge.influence`.
    """
    whole = of.total(torch.ones_like(of.count))
    found = torch.zeros(4, right.gradients.shape[-1], dtype=of.count.dtype, device=of.count.device)
    for first, pair in zip(splits, pairs, strict=True):
        one, two = _sides(of, right, first, pair)
        products = [
            (x * _stacked(whole.applied(y))[0]).sum(0)
            for x, y in zip(one.parts, two.parts, strict=True)
        ]
        taken = 0.5 * (_taken(of, one, two) + _taken(of, two, one))
        found += torch.stack([products[0] + taken, products[1], products[2], products[0]])
    found /= len(pairs)
    return Energies(rotation=found[0], gradient=found[1], total=found[2], plain=found[3])


def influence(
    of: JointMoments, right: Products, splits: Bool[Tensor, "S b"], pairs: Sequence[tuple[Half, Half]]
) -> Influence:
    r"""Influence of each block on the energies of one field.

    .. math:: b\,\psi_b, \qquad \langle\hat w(\eta_b), \hat w(\eta_c)\rangle

    Parameters
    ----------
    of, splits, pairs : as for :func:`energies`.
    right : products of the field with gradients and regressors.

    Notes
    -----
    O(S·b·(r + ds)²).
    """
    b, n = len(of.count), of.count.sum()
    whole = of.total(torch.ones_like(of.count))
    pulls, inside = (torch.zeros(b, 3, dtype=n.dtype, device=n.device) for _ in range(2))
    noise = torch.zeros(b, b, dtype=n.dtype, device=n.device)
    linear = torch.zeros(b, dtype=n.dtype, device=n.device)
    for first, pair in zip(splits, pairs, strict=True):
        one, two = _sides(of, right, first, pair)
        moves = _moves(of, right, one, two), _moves(of, right, two, one)
        for k in range(3):
            x, y = one.parts[k], two.parts[k]
            ahead, behind = (_stacked(whole.applied(side))[0] for side in (x, y))
            shift = (moves[0][k].mT @ behind + moves[1][k].mT @ ahead)[:, 0]
            pulls[:, k] += shift - shift.mean()
            inside[:, k] += (_stacked(of.applied(y))[..., 0] @ x[:, 0]) / n
            if k == 0:
                size = 0.5 * float((x * ahead).sum() + (y * behind).sum())
                linear += shift / max(size, 1e-300) ** 0.5
        noise += _stacked(whole.applied(moves[0][0]))[0].mT @ moves[1][0]
    S, share = len(pairs), of.count / n
    inside = (inside - share[:, None] * inside.sum(0)) / S, inside.sum(0) / S
    level = float(inside[1][0])
    return Influence(
        energies=b * (pulls / S + inside[0]),
        noise=noise / S,
        linear=linear / S,
        measure=inside[0][:, 0] / level if level > 0 else torch.zeros_like(share),
    )


def _sides(
    of: JointMoments, right: Products, first: Tensor, pair: tuple[Half, Half]
) -> tuple[_Side, _Side]:
    one, two = (
        _side(half, row.double(), right, of.count)
        for half, row in zip(pair, (first, ~first), strict=True)
    )
    return one, two


def _side(half: Half, weights: Tensor, right: Products, count: Tensor) -> _Side:
    mean = averaged(right, weights, count)
    w, g = half.rotation(mean), half.gradient(mean)
    return _Side(half=half, weights=weights, parts=(w, g, w + g))


def _stacked(of: Products) -> Tensor:
    return torch.cat([of.gradients, of.regressors], -2)


def _taken(of: JointMoments, own: _Side, other: _Side) -> Tensor:
    """Energy of a true rotation that the potential of a half takes up by chance."""
    w = own.weights / (own.weights @ of.count)
    members = w > 0
    ahead, behind = (
        w[members][:, None, None] * _members(of, members).applied(side.parts[0]).gradients
        for side in (own, other)
    )
    b, r, c = ahead.shape
    solved = own.half.potential(behind.transpose(0, 1).reshape(r, b * c)).reshape(r, b, c)
    return torch.einsum("brc,rbc->c", ahead, solved)


def _moves(of: JointMoments, right: Products, own: _Side, other: _Side) -> tuple[Tensor, ...]:
    """Change of rotation, gradient and velocity of a half with the weight of each block."""
    w = own.weights / (own.weights @ of.count)
    explained = of.applied(other.parts[2][:, :1])
    left = Products(
        gradients=(w[:, None] * (right.gradients[..., :1] - explained.gradients)[..., 0]).mT,
        regressors=(w[:, None] * (right.regressors[..., :1] - explained.regressors)[..., 0]).mT,
    )
    # A gradient part also moves with the rotation that a block takes for a gradient.
    plain = of.applied(other.parts[1][:, :1]).gradients
    slope = (w[:, None] * (right.gradients[..., :1] - plain)[..., 0]).mT
    turned = own.half.rotation(left)
    rising = torch.cat([own.half.potential(slope), torch.zeros_like(left.regressors)])
    return turned, rising, turned + own.half.gradient(left)


def _members(of: JointMoments, chosen: Tensor) -> JointMoments:
    return JointMoments(
        count=of.count[chosen],
        stiffness=of.stiffness[chosen],
        coupling=of.coupling[chosen],
        gram=of.gram[chosen],
    )
