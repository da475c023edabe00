r"""How much of a motion turns, read beside fields that do not.

.. math:: R_{\rm norm} = \frac{R}{U}, \qquad \text{represented} = \frac{U}{E}, \qquad
          \frac RE \;\le\; \text{share that turns} \;\le\; 1 - \frac GE

U is the energy of what gradients and fields represent, E that of the whole step: noise, and what
lies outside the coordinates, included. R_norm is a share of U and says nothing about the motion
where U/E is small; the bounds do.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.controls import gaussian_rotation
from flowscope.flows.hodge.energies import (
    Energies,
    Influence,
    energies,
    influence,
    split_halves,
)
from flowscope.flows.hodge.estimates import Estimate, ratio
from flowscope.flows.hodge.joint import (
    Design,
    Half,
    JointMoments,
    averaged,
    chosen_penalty,
    design,
    halves,
    products,
    ridged,
    summed,
)
from flowscope.flows.hodge.judgement import chances
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
    root, inverse = roots(diffusion_matrix(diffusion, x.shape[1], x))
    v = taken.velocities @ inverse
    whole = _whole(total_energy, v)
    z = taken.whitened(x)
    used = functions(z, generator=g, degree=degree)
    chart = root @ torch.linalg.inv(taken.scale).mT
    fitted = _fitted(design(used, z, chart), v, units, drawn.splits.to(x.device), chosen.folds)
    made = log_sum_exp_controls(
        z, chart, energy=float(fitted.energies.total[0]), residual=fitted.residual,
        labels=units.labels, generator=g,
    )  # fmt: skip
    others = fitted.on(made, units)
    controls = tuple((others.rotation / others.total).tolist())
    margin = max(math.fsum(controls) / len(controls), MARGIN)
    return RotationReading(
        **_estimates(fitted, whole, units, chosen.level),
        controls=controls,
        margin=margin,
        null=_null(fitted, margin, drawn.signs.to(x.device)),
        energy=float(whole.mean()),
        degree=used.smooth.degree,
        regressors=len(used.columns),
        potentials=used.potential_size,
        n=len(x),
        groups=units.groups,
        blocks=units.count,
        planted=_planted(fitted, made, x @ inverse, units, g),
    )


def _planted(
    fitted: "_Fitted", made: Tensor, x: Tensor, units: Blocks, generator: torch.Generator
) -> float:
    """R_norm of the controls with a rotation of known share: what the reading would have seen."""
    if x.shape[1] < 2:
        return math.nan
    turning = gaussian_rotation(x, generator)
    turning = turning - fitted.gradient_of(turning, units)
    size = float(turning.square().sum(1).mean())
    energy = max(float(fitted.energies.total[0]), 0.0)
    if not size > 0:
        return math.nan
    scale = math.sqrt(PLANTED / (1 - PLANTED) * energy / size)
    read = fitted.on(made + scale * turning[..., None], units)
    return float((read.rotation / read.total).mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitted:
    """Everything that the points determine, and the fit of the velocities to it."""

    design: Design
    moments: JointMoments
    splits: Tensor
    pairs: list[tuple[Half, Half]]
    energies: Energies
    influence: Influence
    residual: Tensor

    def on(self, fields: Tensor, units: Blocks) -> Energies:
        """Energies of other fields on the same points."""
        right = products(self.design, fields, units)
        return energies(self.moments, right, self.splits, self.pairs)

    def gradient_of(self, field: Tensor, units: Blocks) -> Tensor:
        """The gradient part of a field without noise, fitted on all points."""
        every = torch.ones_like(self.moments.count)
        mean = averaged(products(self.design, field[..., None], units), every, self.moments.count)
        return self.design.field(halves(self.moments, every[None])[0].gradient(mean)[:, 0])


def _fitted(over: Design, v: Tensor, units: Blocks, splits: Tensor, folds: int) -> _Fitted:
    moments = summed(over, units)
    right = products(over, v[..., None], units)
    pull = chosen_penalty(moments, right, over.penalty, folds)
    pairs = split_halves(moments, splits, pull)
    found = energies(moments, right, splits, pairs)
    every = torch.ones_like(moments.count)
    half = ridged(halves(moments, every[None])[0], pull)
    mean = averaged(right, every, moments.count)
    left = v - over.field((half.rotation(mean) + half.gradient(mean))[:, 0])
    # A fit bends towards its noise; what it leaves is brought back to the noise's energy.
    noise = float(v.square().sum(1).mean()) - max(float(found.total[0]), 0.0)
    size = float(left.square().sum(1).mean())
    scale = (max(noise, 0.0) / size) ** 0.5 if size > 0 else 0.0
    return _Fitted(
        design=over,
        moments=moments,
        splits=splits,
        pairs=pairs,
        energies=found,
        influence=influence(moments, right, splits, pairs),
        residual=scale * left,
    )


def _whole(total: Tensor | None, v: Tensor) -> Tensor:
    """Squared length of each whole step."""
    inside = v.square().sum(1)
    if total is None:
        whole = inside
    else:
        whole = total.detach().to(v)
        if whole.shape != inside.shape or not bool(whole.isfinite().all()):
            raise InvalidInputError(
                f"total_energy must be {len(v)} finite numbers, one per point; found shape "
                f"{tuple(whole.shape)}. Pass the squared length of each whole step."
            )
        if float(whole.mean()) < (1 - 1e-6) * float(inside.mean()):
            raise InvalidInputError(
                f"total_energy must hold the energy of the velocities, {float(inside.mean()):.3g} "
                f"on average; found {float(whole.mean()):.3g}. Pass squared lengths of whole "
                "steps in the units of the velocities."
            )
    if not float(whole.mean()) > 0:
        raise InvalidInputError("nothing moves: every velocity is zero. Pass steps that move.")
    return whole


def _blocked(whole: Tensor, units: Blocks) -> Tensor:
    """Influence of each block on the mean of a number per point."""
    sums = torch.zeros(units.count, dtype=whole.dtype, device=whole.device)
    sums.index_add_(0, units.labels, whole - whole.mean())
    return units.count * sums / len(whole)


def _estimates(fitted: _Fitted, whole: Tensor, units: Blocks, level: float) -> dict[str, Estimate]:
    of, moved = fitted.energies, fitted.influence.energies
    R, G, U = (
        (float(x[0]), moved[:, k]) for k, x in enumerate((of.rotation, of.gradient, of.total))
    )
    E = float(whole.mean()), _blocked(whole, units)
    return {
        "normalised": ratio(R, U, level),
        "represented": ratio(U, E, level),
        "rotation": ratio(R, E, level),
        "gradient": ratio(G, E, level),
    }


def _null(fitted: _Fitted, margin: float, signs: Tensor) -> Tensor:
    """R_norm less the margin, where the truth is the margin, for each draw of signs."""
    of, by = fitted.energies, fitted.influence
    U, plain = float(of.total[0]), float(of.plain[0])
    if not U > 0:
        return torch.full_like(signs[:, 0], math.nan)
    # What P took up is added to R; it raises chance in the same proportion.
    raised = float(of.rotation[0]) / plain if plain > 0 else 1.0
    quadratic = ((signs @ by.noise) * signs).sum(1)
    linear = math.sqrt(margin * U) * (signs @ by.linear)
    measure = margin * U * (signs @ by.measure)
    return min(max(raised, 1.0), _MOST_RAISED) * (quadratic + linear + measure) / U
