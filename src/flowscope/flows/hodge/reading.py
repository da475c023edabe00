r"""How much of a motion turns, read beside fields that do not.

.. math:: R_{\rm norm} = \frac{R}{U}, \qquad \text{represented} = \frac{U}{E}, \qquad
          \frac RE \;\le\; \text{share that turns} \;\le\; 1 - \frac GE

U is the energy of what gradients and fields represent, E that of the whole step: noise, and what
lies outside the coordinates, included. R_norm is a share of U and says nothing about the motion
where U/E is small; the bounds do.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.controls import gaussian_rotation
from flowscope.flows.hodge.energies import Energies, Fits, Influence, energies, fits, influence
from flowscope.flows.hodge.estimates import Estimate, ratio
from flowscope.flows.hodge.halves import (
    Halves,
    chosen_penalty,
    halves,
    ridged,
    shares,
    split_weights,
)
from flowscope.flows.hodge.joint import Design, JointMoments, Products, design, products, summed
from flowscope.flows.hodge.judgement import chances
from flowscope.flows.hodge.layout import Layout, layout
from flowscope.flows.hodge.log_sum_exp import log_sum_exp_controls
from flowscope.flows.hodge.outcome import PLANTED, Settings
from flowscope.flows.hodge.potentials import functions
from flowscope.flows.hodge.problem import Blocks, Diffusion, blocks, diffusion_matrix, roots, sample
from flowscope.simplex.probability import ArrayLike

__all__ = ["MARGIN", "RotationReading", "rotation_reading"]

# A share of rotation up to this is taken for the leak of the dictionary.
MARGIN = 0.01
# More halvings than this hardly narrow R, and each costs two factorisations.
_SPLITS = 4
# Near R = 0 the share that was added back is a ratio of two small numbers.
_MOST_RAISED = 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationReading:
    """Rotation of one field, beside nine gradient fields on the same points.

    Attributes
    ----------
    normalised
        R_norm = R/U, a share of what is represented.
    represented
        U/E, the share of the step's energy that gradients and fields represent.
    rotation, gradient
        R/E and G/E: bounds of the share that turns are R/E and 1 − G/E.
    controls
        R_norm of the nine log-sum-exp gradients.
    margin
        What R_norm must exceed: the mean of the controls, or .01 where that is more.
    null
        R_norm less the margin when R_norm *is* the margin, for each draw of signs; readings with
        one seed and the same groups share the signs.
    energy
        E.
    degree, regressors, potentials
        Of the fields, and the numbers of functions.
    n, groups, blocks
        Points, groups, and blocks that groups were pooled into.
    planted
        Mean R_norm of the controls once a rotation of share .05 is added to each; NaN in one
        coordinate.
    """

    normalised: Estimate
    represented: Estimate
    rotation: Estimate
    gradient: Estimate
    controls: tuple[float, ...]
    margin: float
    null: Float64[Tensor, "B"]
    energy: float
    degree: int
    regressors: int
    potentials: int
    n: int
    groups: int
    blocks: int
    planted: float = math.nan

    @property
    def control(self) -> float:
        """Mean of the controls."""
        return math.fsum(self.controls) / len(self.controls)


def rotation_reading(
    points: Float[Tensor, "N d"] | ArrayLike,
    velocities: Float[Tensor, "N d"] | ArrayLike,
    *,
    groups: Int[Tensor, "N"] | None,
    seed: int,
    total_energy: Float[Tensor, "N"] | None = None,
    diffusion: Diffusion = 1.0,
    degree: int | None = None,
    settings: Settings | None = None,
) -> RotationReading:
    r"""Read the rotation of a field, its bounds, and nine gradient controls.

    .. math:: \Big[\frac RE,\; 1 - \frac GE\Big]

    Parameters
    ----------
    points, velocities : x, and the field u at each, in the same coordinates; noise is allowed for.
    groups : which points depend on each other (the prompt); None if none do.
    seed : of halves, signs, centres and waves: readings with one seed and the same groups share
        halves and signs.
    total_energy : squared length of each point's whole step, in the metric of the diffusion, where
        the coordinates hold a part of it only; by default that of the velocities.
    diffusion : a, constant; plain lengths by default.
    degree : highest degree of the fields; see :func:`flowscope.flows.hodge.potentials.functions`.
    settings : splits (4 by default), folds, blocks, draws and level.

    Raises
    ------
    InvalidInputError
        If shapes do not match, an entry is not finite, the points do not span their space, there
        are too few of them or fewer groups than four, nothing moves, or a total energy is below
        that of the velocities.

    Notes
    -----
    One set of factorisations for the data and its controls. R is that of the rotation's projection
    on fields of low degree (and waves, with three coordinates or fewer): rough rotation in many
    coordinates is not seen, and is then part of neither R nor G.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(4000, 2, generator=g, dtype=torch.float64)
    >>> u = torch.stack([-x[:, 1], x[:, 0]], 1) - x
    >>> read = rotation_reading(x, u, groups=None, seed=0)
    >>> round(read.normalised.value, 1), round(1 - read.gradient.value, 1)
    (0.5, 0.5)
    """
    chosen = settings or Settings(splits=_SPLITS)
    g = torch.Generator().manual_seed(seed)
    taken = sample(
        points, velocities, reference=None, times=None,
        blocks=lambda N: blocks(
            groups, N, generator=g, at_most=chosen.blocks, least=max(chosen.folds, 4)
        ),
    )  # fmt: skip
    drawn = chances(taken.blocks.count, chosen, g)  # before the functions: layers share them
    x, units = taken.points, taken.blocks
    root, inverse = (
        y.to(x.device) for y in roots(diffusion_matrix(diffusion, x.shape[1], torch.empty(0)))
    )
    v = taken.velocities @ inverse
    whole, energy = _whole(total_energy, v)
    z = taken.whitened(x)
    used = functions(z, generator=g, degree=degree)
    chart = torch.linalg.solve_triangular(taken.scale, root, upper=False).mT  # root = rootᵀ
    over = layout(units)
    fitted = _fitted(design(used, z, chart, over), v, over, drawn.splits, chosen.folds)
    made = log_sum_exp_controls(
        z, chart, energy=fitted.energies.total[0], residual=fitted.residual,
        units=units, generator=g,
    )  # fmt: skip
    leak, planted = _controls(fitted, made, x @ inverse, g)
    read = _read(fitted, leak, planted, whole, units)
    margin = max(math.fsum(read.controls) / len(read.controls), MARGIN)
    return RotationReading(
        **_estimates(read, energy, chosen.level, x.device),
        controls=read.controls,
        margin=margin,
        null=_null(fitted, read, margin, drawn.signs.to(x.device)),
        energy=energy,
        degree=used.smooth.degree,
        regressors=len(used.columns),
        potentials=used.potential_size,
        n=len(x),
        groups=units.groups,
        blocks=units.count,
        planted=read.planted,
    )


def _controls(
    fitted: "_Fitted", made: Tensor, x: Tensor, generator: torch.Generator
) -> tuple[Float64[Tensor, "c"], Float64[Tensor, ""]]:
    """R_norm of the controls, and its mean with a rotation of known share in each of them.

    The latter is what the reading would have seen.
    """
    if x.shape[1] < 2:
        return fitted.share(fitted.fits(made)), torch.full_like(x[0, 0], math.nan)
    turning = gaussian_rotation(x, generator)
    turning = turning - fitted.gradient_of(turning)
    size = turning.square().sum(1).mean()
    energy = fitted.energies.total[0].clamp_min(0)
    scale = (PLANTED / (1 - PLANTED) * energy / size).sqrt()
    scale = scale.masked_fill(~(size > 0), math.nan)
    both = fitted.fits(torch.cat([made, turning[..., None]], 2))
    still, added = both.chosen(slice(-1)), both.chosen(slice(-1, None))
    return fitted.share(still), fitted.share(still.plus(added, scale)).mean()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitted:
    """Everything that the points determine, and the fit of the velocities to it.

    ``every`` holds the equations of all points, and ``members`` the most blocks of a half.
    """

    design: Design
    layout: Layout
    moments: JointMoments
    pairs: Halves
    every: Halves
    members: int
    energies: Energies
    influence: Influence
    residual: Float64[Tensor, "N d"]

    def products(self, fields: Float64[Tensor, "N d c"]) -> Products:
        """Products of other fields on the same points."""
        return products(self.design, self.layout.laid(fields), self.layout)

    def fits(self, fields: Float64[Tensor, "N d c"]) -> Fits:
        """Fits of other fields on the same halves."""
        return fits(self.moments, self.products(fields), self.pairs)

    def share(self, of: Fits) -> Float64[Tensor, "c"]:
        """R_norm of other fields, from their fits."""
        found = energies(of, self.every.mean.chosen(0), self.pairs, self.members)
        return found.rotation / found.total

    def gradient_of(self, field: Float64[Tensor, "N d"]) -> Float64[Tensor, "N d"]:
        """The gradient part of a field without noise, fitted on all points."""
        mean = self.products(field[..., None]).averaged(self.every.shares)
        slope = self.every.potential(mean.gradients)
        rising = torch.cat([slope, torch.zeros_like(mean.regressors)], 1)
        return self.layout.lifted(self.design.field(rising[0, :, 0]))


def _fitted(of: Design, v: Tensor, over: Layout, splits: Tensor, folds: int) -> _Fitted:
    moments = summed(of, over)
    right = products(of, over.laid(v[..., None]), over)
    h, b = 2 * len(splits), len(over.count)
    fold = torch.arange(b) % folds == torch.arange(folds)[:, None]
    halved = split_weights(splits)
    weights = torch.cat([halved, torch.ones(1, b), ~fold, fold]).double()
    share = shares(weights.to(v.device), over.count)
    bare = halves(moments, share[: h + 1 + folds])
    pull = of.penalty
    if of.bent:
        pull = chosen_penalty(
            moments, right, pull, trained=bare.chosen(slice(h + 1, None)), held=share[-folds:]
        )
    half = ridged(bare.chosen(slice(h + 1)), pull)
    pairs, every = half.chosen(slice(h)), half.chosen(slice(h, None))
    whole, members = every.mean.chosen(0), int(halved.sum(1).max())
    fitted = fits(moments, right, pairs)
    found = energies(fitted, whole, pairs, members)
    fit = every.parts(right.averaged(every.shares))[2, 0, :, 0]
    left = v - over.lifted(of.field(fit))
    # A fit bends towards its noise; what it leaves is brought back to the noise's energy.
    noise = v.square().sum(1).mean() - found.total[0].clamp_min(0)
    size = left.square().sum(1).mean()
    return _Fitted(
        design=of,
        layout=over,
        moments=moments,
        pairs=pairs,
        every=every,
        members=members,
        energies=found,
        influence=influence(moments, whole, right, fitted, pairs=pairs, count=over.count),
        residual=(noise.clamp_min(0) / size).sqrt().masked_fill(~(size > 0), 0) * left,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    """Numbers of a reading on the host; R, G, U, and what blocks do to them and to the energy."""

    energies: tuple[float, float, float]
    plain: float
    controls: tuple[float, ...]
    planted: float
    moved: Float64[Tensor, "b 3"]
    whole: Float64[Tensor, "b"]


def _read(
    fitted: _Fitted, controls: Tensor, planted: Tensor, whole: Tensor, units: Blocks
) -> _Read:
    """Everything that is read from the device, at once."""
    of, moved = fitted.energies, fitted.influence.energies
    parts = [
        of.rotation, of.gradient, of.total, of.plain, planted[None], controls,
        moved.flatten(), _blocked(whole, units),
    ]  # fmt: skip
    b, c = len(moved), len(controls)
    numbers, leak, pulls, blocked = torch.split(torch.cat(parts).cpu(), [5, c, 3 * b, b])
    R, G, U, plain, share = numbers.tolist()
    return _Read(
        energies=(R, G, U),
        plain=plain,
        controls=tuple(leak.tolist()),
        planted=share,
        moved=pulls.view(b, 3),
        whole=blocked,
    )


def _whole(total: Tensor | None, v: Tensor) -> tuple[Tensor, float]:
    """Squared length of each whole step, and its mean."""
    inside = v.square().sum(1)
    whole = inside if total is None else total.detach().to(v)
    if whole.shape == inside.shape:
        checks = whole.mean(), inside.mean(), whole.isfinite().all()
        mean, least, finite = torch.stack([one.to(v) for one in checks]).tolist()
    if whole.shape != inside.shape or (total is not None and not finite):
        raise InvalidInputError(
            f"total_energy must be {len(v)} finite numbers, one per point; found shape "
            f"{tuple(whole.shape)}. Pass the squared length of each whole step."
        )
    if mean < (1 - 1e-6) * least:
        raise InvalidInputError(
            f"total_energy must hold the energy of the velocities, {least:.3g} "
            f"on average; found {mean:.3g}. Pass squared lengths of whole "
            "steps in the units of the velocities."
        )
    if not mean > 0:
        raise InvalidInputError("nothing moves: every velocity is zero. Pass steps that move.")
    return whole, mean


def _blocked(whole: Tensor, units: Blocks) -> Tensor:
    """Influence of each block on the mean of a number per point."""
    sums = torch.zeros(units.count, dtype=whole.dtype, device=whole.device)
    sums.index_add_(0, units.labels, whole - whole.mean())
    return units.count * sums / len(whole)


def _estimates(
    read: _Read, energy: float, level: float, device: torch.device
) -> dict[str, Estimate]:
    R, G, U = zip(read.energies, read.moved.mT, strict=True)
    E = energy, read.whole
    made = {
        "normalised": ratio(R, U, level),
        "represented": ratio(U, E, level),
        "rotation": ratio(R, E, level),
        "gradient": ratio(G, E, level),
    }
    moved = torch.stack([one.pseudo_values for one in made.values()]).to(device)
    return {
        name: replace(one, pseudo_values=values)
        for (name, one), values in zip(made.items(), moved, strict=True)
    }


def _null(fitted: _Fitted, read: _Read, margin: float, signs: Tensor) -> Tensor:
    """R_norm less the margin, where the truth is the margin, for each draw of signs."""
    by = fitted.influence
    (R, _, U), plain = read.energies, read.plain
    if not U > 0:
        return torch.full_like(signs[:, 0], math.nan)
    # What P took up is added to R; it raises chance in the same proportion.
    raised = R / plain if plain > 0 else 1.0
    quadratic = ((signs @ by.noise) * signs).sum(1)
    linear = math.sqrt(margin * U) * (signs @ by.linear)
    measure = margin * U * (signs @ by.measure)
    return min(max(raised, 1.0), _MOST_RAISED) * (quadratic + linear + measure) / U
