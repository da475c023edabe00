"""Stacks of halves, blocks and clusterings against plain loops over each of them."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from flowscope.flows.hodge.clusters import clusterings, clusters, drawn_chances
from flowscope.flows.hodge.energies import energies, fits, influence
from flowscope.flows.hodge.halves import (
    chosen_penalty,
    halves,
    ridged,
    shares,
    split_weights,
)
from flowscope.flows.hodge.joint import Design, products, summed
from flowscope.flows.hodge.layout import layout
from flowscope.flows.hodge.problem import Blocks

D, R, S = 2, 7, 3
RIDGES = [10.0**k for k in range(-6, 2)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, g):
    return torch.randn(*shape, generator=g, dtype=torch.float64)


class Problem:
    """Random gradients, regressors and fields on blocks of unequal sizes."""

    def __init__(self, sizes=(9, 40, 12, 33, 38, 25, 41), fields=2, seed=0):
        g = seeded(seed)
        N = sum(sizes)
        self.labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        self.labels = self.labels[torch.randperm(N, generator=g)]
        self.units = Blocks(labels=self.labels, count=len(sizes), groups=len(sizes))
        self.X, self.Q = normal(N, D, R, g=g), normal(N, S, g=g)
        self.v = normal(N, D, fields, g=g) + self.X @ normal(R, fields, g=g)
        self.penalty = torch.tensor([0.0, 1.0, 3.0]).double().repeat(D)
        self.count = torch.tensor(sizes).double()
        self.over = layout(self.units)
        design = Design(
            gradients=self.over.laid(self.X),
            regressors=self.over.laid(self.Q),
            exact=2,
            bent=2,
            penalty=self.penalty,
        )
        self.design = design
        self.moments = summed(design, self.over)
        self.right = products(design, self.over.laid(self.v), self.over)
        self.floor = torch.tensor([1e-8] * 2 + [0.03] * (R - 2), dtype=torch.float64)

    def columns(self, rows):
        """X and Q ⊗ e_j of some points, one row for each coordinate of each point."""
        eye = torch.eye(D).double()
        wide = torch.einsum("ns,ej->nejs", self.Q[rows], eye).reshape(-1, D, D * S)
        return torch.cat([self.X[rows], wide], 2).flatten(0, 1)

    def equations(self, members):
        """M and right-hand sides of the mean over the points of some blocks."""
        rows = torch.isin(self.labels, torch.tensor(members))
        A, n = self.columns(rows), int(rows.sum())
        return A.T @ A / n, A.T @ self.v[rows].flatten(0, 1) / n

    def fits(self, members, pull):
        """Coefficients of rotation, gradient and velocity, by plain solutions."""
        M, right = self.equations(members)
        return self.solved(M, right, pull)

    def solved(self, M, right, pull):
        K, B = M[:R, :R] + self.floor.diag(), M[:R, R:]
        slope = torch.linalg.solve(K, right[:R])
        schur = M[R:, R:] - B.T @ torch.linalg.solve(K, B) + (pull + 1e-8).diag()
        f = torch.linalg.solve(schur, right[R:] - B.T @ slope)
        turned = torch.cat([-torch.linalg.solve(K, B @ f), f])
        rising = torch.cat([slope, torch.zeros_like(f)])
        return turned, rising, turned + rising

    def made(self, splits, pull):
        share = shares(split_weights(splits), self.count)
        every = shares(torch.ones(1, len(self.count)).double(), self.count)
        pairs = ridged(halves(self.moments, share), pull)
        whole = halves(self.moments, every).mean.chosen(0)
        return pairs, whole, int(split_weights(splits).sum(1).max())


def halvings(b, count, seed=3):
    return torch.rand(count, b, generator=seeded(seed)).argsort(1) < b // 2


def listed(row):
    return row.nonzero().flatten().tolist()


SIZES = {
    "unequal": (9, 40, 12, 33, 38, 25, 41),
    "equal": (30,) * 6,
    "one large": (200, 20, 21, 22),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_sums_over_blocks_are_those_of_a_loop(sizes):
    of = Problem(sizes)
    for b in range(len(sizes)):
        rows = of.labels == b
        A = of.columns(rows)
        M, right = A.T @ A, A.T @ of.v[rows].flatten(0, 1)
        assert_close(of.moments.stiffness[b], M[:R, :R])
        assert_close(of.moments.coupling[b], M[:R, R:])
        assert_close(torch.block_diag(*[of.moments.gram[b]] * D), M[R:, R:])
        assert_close(of.right.stacked[b], right)
        x = normal(R + D * S, 3, g=seeded(1))
        assert_close(of.moments.applied(x)[b], M @ x)
    assert of.over.count.tolist() == list(sizes)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_points_come_back_from_their_places(sizes):
    of = Problem(sizes)
    laid = of.over.laid(of.v)
    assert_close(of.over.lifted(laid), of.v, rtol=0, atol=0)
    assert len(laid) <= len(of.v) / 0.9
    assert_close(laid.sum(0), of.v.sum(0))
    shelves = of.over.shelves
    assert sum(blocks for blocks, _ in shelves) == len(sizes)
    assert all(small < large for (_, large), (_, small) in pairwise(shelves))
    x = normal(R + D * S, g=seeded(1))
    plain = (of.columns(of.labels >= 0) @ x).reshape(-1, D)
    assert_close(of.over.lifted(of.design.field(x)), plain)


def test_halves_are_fitted_as_one_by_one():
    of = Problem()
    splits, pull = halvings(7, 3), 0.1 * of.penalty
    pairs, _, members = of.made(splits, pull)
    parts = pairs.parts(of.right.averaged(pairs.shares))
    rows = [side for first in splits for side in (first, ~first)]
    assert members == 4
    for h, row in enumerate(rows):
        for k, plain in enumerate(of.fits(listed(row), pull)):
            assert_close(parts[k, h], plain, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("weight", [0.1, 30.0])
def test_the_penalty_is_that_of_plain_cross_validation(weight, monkeypatch):
    of = Problem(fields=1)
    folds, b = 3, 7
    fold = torch.arange(b) % folds
    losses = torch.zeros(len(RIDGES)).double()
    for k in range(folds):
        M, right = of.equations(listed(fold == k))
        for i, ridge in enumerate(RIDGES):
            u = of.fits(listed(fold != k), ridge * weight * of.penalty)[2]
            losses[i] += (u * (M @ u - 2 * right)).sum()
    held = (fold == torch.arange(folds)[:, None]).double()
    found = []
    for most in (1, 2**30):  # one fold after another, and all at once
        monkeypatch.setattr("flowscope.flows.hodge.halves._AT_ONCE", most)
        found.append(chosen_penalty(
            of.moments, of.right, weight * of.penalty,
            trained=halves(of.moments, shares(1 - held, of.count)), held=shares(held, of.count),
        ))  # fmt: skip
    assert int(losses.argmin()) > 0
    assert_close(found[0], RIDGES[int(losses.argmin())] * weight * of.penalty)
    assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_energies_are_those_of_a_loop_over_halves(sizes):
    of = Problem(sizes)
    b = len(sizes)
    splits, pull = halvings(b, 3), 0.1 * of.penalty
    pairs, whole, members = of.made(splits, pull)
    fitted = fits(of.moments, of.right, pairs)
    found = energies(fitted, whole, pairs, members)
    M, _ = of.equations(range(b))
    plain, taken = torch.zeros(3, 2).double(), torch.zeros(2).double()
    for first in splits:
        sides = listed(first), listed(~first)
        one, two = (of.fits(side, pull) for side in sides)
        plain += torch.stack([(x * (M @ y)).sum(0) for x, y in zip(one, two, strict=True)])
        for side, own, other in zip(sides, (one, two), (two, one), strict=True):
            K = of.equations(side)[0][:R, :R] + of.floor.diag()
            n = of.count[side].sum()
            for block in side:
                rows = of.labels == block
                A = of.columns(rows)
                G = (A.T @ A)[:R] / n
                taken += 0.5 * ((G @ own[0]) * torch.linalg.solve(K, G @ other[0])).sum(0)
    assert_close(found.plain, plain[0] / 3, rtol=1e-9, atol=1e-11)
    assert_close(found.rotation, (plain[0] + taken) / 3, rtol=1e-9, atol=1e-11)
    assert_close(found.gradient, plain[1] / 3, rtol=1e-9, atol=1e-11)
    assert_close(found.total, plain[2] / 3, rtol=1e-9, atol=1e-11)


def test_influences_are_those_of_a_loop_over_halves():
    of = Problem(fields=1)
    b, n = 7, of.count.sum()
    splits, pull = halvings(b, 3), 0.1 * of.penalty
    pairs, whole, _ = of.made(splits, pull)
    fitted = fits(of.moments, of.right, pairs)
    found = influence(of.moments, whole, of.right, fitted, pairs=pairs, count=of.count)
    M, _ = of.equations(range(b))
    each = [of.equations([k]) for k in range(b)]
    pulls, inside = torch.zeros(b, 3).double(), torch.zeros(b, 3).double()
    noise, linear = torch.zeros(b, b).double(), torch.zeros(b).double()
    for first in splits:
        sides = listed(first), listed(~first)
        plain = [of.fits(side, pull) for side in sides]
        moves = torch.zeros(2, 3, R + D * S, b).double()
        for k, side in enumerate(sides):
            own, share = of.equations(side)[0], of.count / of.count[side].sum()
            for block in side:
                G, right = each[block]
                w, g, _ = of.solved(own, share[block] * (right - G @ plain[1 - k][2]), pull)
                rising = of.solved(own, share[block] * (right - G @ plain[1 - k][1]), pull)[1]
                moves[k, ..., block] = torch.stack([w, rising, w + g])[..., 0]
        shift = sum(torch.stack([moves[k, p].T @ M @ plain[1 - k][p][:, 0] for p in range(3)], 1)
                    for k in range(2))  # fmt: skip
        pulls += shift - shift.mean(0)
        for p in range(3):
            x, y = plain[0][p][:, 0], plain[1][p][:, 0]
            inside[:, p] += torch.stack([c * (x @ G @ y) for c, (G, _) in zip(of.count, each,
                                         strict=True)]) / n  # fmt: skip
        w = [fit[0][:, 0] for fit in plain]
        linear += shift[:, 0] / (0.5 * sum(x @ M @ x for x in w)).sqrt()
        noise += moves[0, 0].T @ M @ moves[1, 0]
    spread = inside - of.count[:, None] / n * inside.sum(0)
    assert_close(found.energies, b * (pulls + spread) / 3, rtol=1e-8, atol=1e-10)
    assert_close(found.noise, noise / 3, rtol=1e-8, atol=1e-10)
    assert_close(found.linear, linear / 3, rtol=1e-8, atol=1e-10)
    level = inside[:, 0].sum()
    measure = spread[:, 0] / level if level > 0 else 0 * spread[:, 0]
    assert_close(found.measure, measure, rtol=1e-8, atol=1e-10)


def test_fits_of_a_sum_are_sums_of_fits():
    of, scale = Problem(), torch.tensor(0.3).double()
    pairs, whole, members = of.made(halvings(7, 3), 0.1 * of.penalty)
    both = fits(of.moments, of.right, pairs)
    found = both.chosen(slice(1)).plus(both.chosen(slice(1, None)), scale)
    laid = of.over.laid(of.v[..., :1] + scale * of.v[..., 1:])
    plain = fits(of.moments, products(of.design, laid, of.over), pairs)
    assert_close(found.parts, plain.parts)
    assert_close(
        energies(found, whole, pairs, members).rotation,
        energies(plain, whole, pairs, members).rotation,
    )


def plain_clusters(z, chances):
    """k-means with spread-out starts, one centre after another."""
    rows = [int(chances[0] * len(z))]
    for chance in chances[1:]:
        mass = (z[:, None] - z[rows]).square().sum(2).amin(1).cumsum(0)
        if float(mass[-1]) == 0:
            break
        rows.append(int((mass < chance * mass[-1]).sum()))
    centres = z[rows].clone()
    for _ in range(12):
        label = (z[:, None] - centres).square().sum(2).argmin(1)
        for k in label.unique().tolist():
            centres[k] = z[label == k].mean(0)
    rest = (z[:, None] - centres).square().sum(2).amin(1).mean() / z.shape[1]
    return centres, rest.clamp_min(1e-6).sqrt()


@pytest.mark.parametrize("distinct", [400, 9, 1])
def test_clusterings_at_once_are_those_one_by_one(distinct):
    z = normal(distinct, 3, g=seeded(0))[torch.arange(400) % distinct]
    counts, g = (6, 10, 16), seeded(1)
    chances = [drawn_chances(count, g) for count in counts]
    found = clusterings(z, chances)
    for k, (count, each) in enumerate(zip(counts, chances, strict=True)):
        centres, width = plain_clusters(z, each)
        assert len(centres) == min(count, distinct)
        assert_close(found.centres[k][found.there[k]], centres)
        assert_close(found.width[k], width)
    alone = clusters(z, 6, generator=seeded(1))
    assert_close(alone.centres, found.centres[0][found.there[0]])
