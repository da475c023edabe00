r"""Rotation of a velocity: the part of u − b_R that no potential explains, and how large it is.

.. math:: u - b_R = a\nabla\theta + w, \qquad
          \nabla\cdot(\mu\, a\nabla\theta) = \nabla\cdot(\mu\,(u - b_R)), \qquad
          R = \int \langle w, a^{-1}w\rangle\, d\mu .

The problem is weighted by μ: only then is w orthogonal to gradients where the points are (errata
E44). Velocities of single points are noisy, and what noise leaves over after a fit looks like
rotation; w is therefore fitted on two halves of the groups and R is the product of the two (E46).
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.binned import binned_rotation
from flowscope.flows.hodge.outcome import Extrapolated, Rotation, Settings
from flowscope.flows.hodge.problem import (
    Blocks,
    Diffusion,
    Reference,
    Sample,
    blocks,
    diffusion_matrix,
    roots,
    sample,
)
from flowscope.flows.hodge.regression import fitted_hjb
from flowscope.flows.hodge.samples import sample_rotation, weak
from flowscope.simplex.probability import ArrayLike

__all__ = ["rotation"]

# Shares of the mean eigenvalue that an estimated diffusion is regularised by when it is nearly
# singular: when its smallest eigenvalue is below the last of them.
_EPSILONS = (1e-1, 1e-2, 1e-3)


def rotation(
    points: Float[Tensor, "N d"] | ArrayLike,
    velocities: Float[Tensor, "N d"] | ArrayLike,
    *,
    diffusion: Diffusion | Literal["estimate"],
    generator: torch.Generator,
    reference: Reference = None,
    method: Literal["samples", "grid"] = "samples",
    groups: Int[Tensor, "N"] | None = None,
    times: Float[Tensor, "N"] | None = None,
    scores: Float[Tensor, "N d"] | None = None,
    regularise: tuple[float, ...] = (),
    settings: Settings | None = None,
) -> Rotation:
    r"""Rotational energy of a sampled velocity, its share, its interval and its null test.

    .. math:: R = \int \langle w, a^{-1}w\rangle\, d\mu, \qquad
              R_{\rm norm} = R \Big/ \int \langle u - b_R, a^{-1}(u - b_R)\rangle\, d\mu

    Parameters
    ----------
    points : x, samples of μ (of μ_t, when times are passed).
    velocities : u at each point; noise is allowed for.
    diffusion : a, constant: a matrix, its diagonal or a number; ``"estimate"`` takes the
        covariance of the velocities around their fit, times ``settings.step``.
    generator : draws halves, folds, frequencies, resamples and signs.
    reference : b_R, its values at the points, a function of them, or None for zero.
    method : ``"samples"`` for any dimension, ``"grid"`` for three at most.
    groups : which points depend on each other (the prompt, the image); None if none do.
    times : t of each point; the dictionary then holds powers and waves of t, the gradient is in x,
        and R is the mean over all times.
    scores : ∇log μ_t at each point; with times, the HJB residual is measured too.
    regularise : decreasing ε for a singular diffusion, which a + εI then stands for.
    settings : everything else, see :class:`flowscope.flows.hodge.Settings`.

    Raises
    ------
    InvalidInputError
        If shapes do not match, an entry is not finite, the points do not span their space, the
        diffusion is singular and ``regularise`` is empty, or there are too few points for linear
        fields or too few groups for the folds.

    Notes
    -----
    Samples: Galerkin in polynomials and waves (:mod:`flowscope.flows.hodge.dictionary`), so R is
    that of the projection of w on low-degree fields. Grid: cell averages and finite volumes
    (:mod:`flowscope.flows.hodge.grid`). Source 000 Cor. 7.3, App. G and N.2, with the weight μ,
    one metric above and below, and cross-fitting (errata E44–E46). R is not comparable between
    coordinates or models; R_norm of the same map is.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(4000, 2, generator=g, dtype=torch.float64)
    >>> u = torch.stack([-x[:, 1], x[:, 0]], 1) - x
    >>> found = rotation(x, u + torch.randn(4000, 2, generator=g), diffusion=1.0, generator=g)
    >>> round(found.normalised, 1), found.p_value < 0.01, found.status
    (0.5, True, 'ok')
    """
    chosen = settings or Settings()
    least = max(chosen.folds, 4)

    def units(N: int) -> Blocks:
        return blocks(groups, N, generator=generator, at_most=chosen.blocks, least=least)

    if method not in ("samples", "grid"):
        raise InvalidInputError(f"method must be 'samples' or 'grid'; found {method!r}.")
    taken = sample(points, velocities, reference=reference, blocks=units, times=times)
    table = _diffusions(taken, diffusion, regularise, chosen, generator)
    rows = []
    for epsilon, a in table:
        if method == "grid":
            found = _on_grid(taken, a, chosen, generator)
        else:
            fitted = weak(taken, a, chosen, generator)
            residual = fitted_hjb(fitted, scores, reference, generator)
            found = replace(sample_rotation(fitted, chosen, generator), hjb=residual)
        rows.append(Extrapolated(epsilon=epsilon, energy=found.energy, normalised=found.normalised))
    shown = tuple(rows) if table[-1][0] > 0 else ()
    return replace(found, diffusion=table[-1][1], extrapolation=shown)


def _on_grid(of: Sample, a: Tensor, settings: Settings, generator: torch.Generator) -> Rotation:
    if of.timed:
        raise InvalidInputError(
            "A grid holds one time; found times. Use method='samples', or one time at a call."
        )
    roots(a)  # refuses a singular one
    return binned_rotation(of, a, settings, generator)


def _diffusions(
    of: Sample,
    diffusion: Diffusion | Literal["estimate"],
    regularise: tuple[float, ...],
    settings: Settings,
    generator: torch.Generator,
) -> list[tuple[float, Float64[Tensor, "d d"]]]:
    d = of.points.shape[1]
    eye = torch.eye(d, dtype=torch.float64, device=of.points.device)
    if isinstance(diffusion, str):
        if diffusion != "estimate":
            raise InvalidInputError(
                f"diffusion must be a matrix, its diagonal, a number or 'estimate'; found "
                f"{diffusion!r}."
            )
        a = _estimated(of, settings, generator)
        values = torch.linalg.eigvalsh(a)
        size = float(values.mean())
        if not regularise and float(values[0]) < _EPSILONS[-1] * size:
            regularise = tuple(size * e for e in _EPSILONS)
    else:
        a = diffusion_matrix(diffusion, d, of.points)
    if any(e <= 0 for e in regularise) or list(regularise) != sorted(regularise, reverse=True):
        raise InvalidInputError(
            f"regularise must hold positive numbers in decreasing order; found {regularise}."
        )
    return [(e, a + e * eye) for e in regularise] or [(0.0, a)]


def _estimated(of: Sample, settings: Settings, generator: torch.Generator) -> Tensor:
    """Residual covariance of the velocities around their fit, times the step."""
    unit = torch.eye(of.points.shape[1], dtype=torch.float64, device=of.points.device)
    # Any metric gives the same regression but for the ridge; that of the velocities is neutral.
    centred = of.velocities - of.velocities.mean(0)
    spread = centred.mT @ centred / len(centred)
    fitted = weak(of, spread + 1e-6 * spread.trace() * unit, settings, generator)
    residual = of.velocities - fitted.velocity
    free = len(residual) - fitted.dictionary.regressors
    return settings.step * (residual.mT @ residual) / free
