r"""The part of a score's error that moves marginals.

A wrong score ŝ = s + e changes the probability-flow velocity by −½ae, and the continuity equation
sees of that field only its gradient part under the law:

.. math:: a e = a\nabla\theta + w, \qquad \nabla\cdot(\mu w) = 0, \qquad
          \tfrac12 \nabla\cdot(\mu\, a e) = \tfrac12\nabla\cdot(\mu\, a\nabla\theta).

The two parts are orthogonal, E[eᵀae] = E[∇θᵀa∇θ] + E[wᵀa⁻¹w]. The rotational one moves points
along level sets of the law and leaves every marginal as it is; a denoising loss counts both.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.samples import as_groups, as_points, as_spd, check_shape
from flowscope.simplex.probability import ArrayLike

__all__ = ["FieldSplit", "ScoreError", "gradient_part", "score_error"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldSplit:
    """Energy E[vᵀa⁻¹v] of a field and of its gradient and rotational parts.

    Both parts are cross-fitted and may fall below 0 by chance; they are not clipped. ``unresolved``
    is the rest of the total: what the features of the projection do not follow, or noise in the
    field. Status and reason are those of the projection.
    """

    total: float
    gradient: float
    rotational: float
    unresolved: float
    status: Literal["ok", "abstained"]
    because: str

    @property
    def gradient_share(self) -> float:
        """Share of the resolved energy that the marginals feel; 0 for a field that vanishes."""
        resolved = self.gradient + self.rotational
        return self.gradient / resolved if resolved > 0 else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreError:
    """Mean square error of a score, E[eᵀae], and its gradient and rotational parts.

    ``unresolved`` is the rest, see :class:`FieldSplit`. ``relative`` is the root of the error over
    that of E[sᵀas], ``relative_gradient`` the same for the part that moves marginals.
    """

    total: float
    gradient: float
    rotational: float
    unresolved: float
    relative: float
    relative_gradient: float
    status: Literal["ok", "abstained"]
    because: str


def gradient_part(
    points: Float[Tensor, "n d"] | ArrayLike,
    field: Float[Tensor, "n d"] | ArrayLike,
    *,
    diffusion: Float[Tensor, "d d"] | ArrayLike | float = 1.0,
    groups: Int64[Tensor, " n"] | ArrayLike | None = None,
    generator: torch.Generator,
) -> FieldSplit:
    r"""How much of a field is of the form a∇θ, under the law of the points.

    .. math:: \mathbb E[v^\top a^{-1} v] = \mathbb E[\nabla\theta^\top a \nabla\theta]
              + \mathbb E[w^\top a^{-1} w], \qquad
              \nabla\cdot(\mu a \nabla\theta) = \nabla\cdot(\mu v)

    Parameters
    ----------
    points : x, samples of μ.
    field : v at these points.
    diffusion : a, a matrix, its diagonal, or a number.
    groups : prompt or image of each point, for the halves of the cross-fit.
    generator : for the features and halves of the projection.

    Raises
    ------
    InvalidInputError
        If the shapes differ, a point is not finite, or a is not symmetric positive definite.

    Notes
    -----
    By the sample (Galerkin) solver of :func:`flowscope.flows.hodge.rotation`, at its cost.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    >>> split = gradient_part(x, -x, generator=generator)
    >>> round(split.gradient_share, 2)
    1.0
    """
    x = as_points(points, "points", at_least=8).detach()
    numbers = as_groups(groups, len(x), x.device, at_least=2)
    v = as_points(field, "field").detach().to(x)
    check_shape(v, tuple(x.shape), "field", "points")
    a = as_spd(diffusion, x.shape[1], "diffusion", x)
    total = float((v * torch.linalg.solve(a, v.mT).mT).sum(-1).mean())
    if total == 0:
        return FieldSplit(
            total=0.0, gradient=0.0, rotational=0.0, unresolved=0.0, status="ok", because=""
        )
    # Here and not above: the projection's package reads samples through this one.
    from flowscope.flows.hodge import rotation

    found = rotation(x, v, diffusion=a, groups=numbers, generator=generator, method="samples")
    return FieldSplit(
        total=total,
        gradient=found.total - found.energy,
        rotational=found.energy,
        unresolved=total - found.total,
        status=found.status,
        because=found.because,
    )


def score_error(
    points: Float[Tensor, "n d"] | ArrayLike,
    learned: Float[Tensor, "n d"] | ArrayLike,
    true: Float[Tensor, "n d"] | ArrayLike,
    *,
    diffusion: Float[Tensor, "d d"] | ArrayLike | float = 1.0,
    groups: Int64[Tensor, " n"] | ArrayLike | None = None,
    generator: torch.Generator,
) -> ScoreError:
    r"""Error of a score, split into the part that moves marginals and the part that does not.

    .. math:: \mathbb E[e^\top a e] = \mathbb E[\nabla\theta^\top a\nabla\theta]
              + \mathbb E[w^\top a^{-1} w], \qquad e = \hat s - s, \quad a e = a\nabla\theta + w

    Parameters
    ----------
    points : x, samples of the law whose score s is.
    learned : ŝ at these points.
    true : s, or a better estimate of it, at these points.
    diffusion : a, of the process the score is to be used in.
    groups : prompt or image of each point, for the halves of the cross-fit.
    generator : for the projection.

    Raises
    ------
    InvalidInputError
        If the shapes differ, an entry is not finite, or a is not symmetric positive definite.

    Notes
    -----
    :func:`gradient_part` of the field ae. The probability-flow velocity is off by −½ae, so the
    rate at which marginals move is a quarter of ``gradient``, in the metric a⁻¹.

    Examples
    --------
    A score that turns N(0, I) about the origin is wrong everywhere and harmless.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    >>> turned = -x + x @ torch.tensor([[0.0, 0.5], [-0.5, 0.0]], dtype=torch.float64)
    >>> found = score_error(x, turned, -x, generator=generator)
    >>> round(found.relative, 2), bool(found.relative_gradient < 0.1)
    (0.5, True)
    """
    x = as_points(points, "points", at_least=8).detach()
    fit = as_points(learned, "learned").detach().to(x)
    truth = as_points(true, "true").detach().to(x)
    check_shape(fit, tuple(x.shape), "learned", "points")
    check_shape(truth, tuple(x.shape), "true", "points")
    a = as_spd(diffusion, x.shape[1], "diffusion", x)
    split = gradient_part(x, (fit - truth) @ a, diffusion=a, groups=groups, generator=generator)
    size = float((truth @ a * truth).sum(-1).mean())
    if not (math.isfinite(size) and math.isfinite(split.total)):
        raise InvalidInputError(
            f"the squares of the scores must stay in the range of {x.dtype}; found a mean of "
            f"{size:.3g} and an error of {split.total:.3g}. Pass float64, or leave out such points."
        )
    return ScoreError(
        total=split.total,
        gradient=split.gradient,
        rotational=split.rotational,
        unresolved=split.unresolved,
        relative=_root_ratio(split.total, size),
        relative_gradient=_root_ratio(split.gradient, size),
        status=split.status,
        because=split.because,
    )


def _root_ratio(part: float, whole: float) -> float:
    """√(part/whole), 0 for a part below zero by the error of its estimate."""
    if whole == 0:
        return math.inf if part > 0 else 0.0
    return math.sqrt(max(part, 0.0) / whole)
