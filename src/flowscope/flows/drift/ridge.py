r"""Ridge regression of velocities on features.

.. math:: \hat W_\lambda = \arg\min_W \frac1N \sum_i \|v_i - w_0 - W^\top \phi(t_i, y_i)\|^2
          + \lambda \|W\|_F^2 ,

φ of unit variance and w₀ free. The mean of v is fitted for nothing and the features have no unit,
so λ is relative: it is compared with the eigenvalues of a correlation matrix, whose mean is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.features import FeatureMap, FeatureProduct, feature_map
from flowscope.flows.drift.folds import group_folds
from flowscope.flows.drift.samples import DriftSample, check_moving
from flowscope.simplex.probability import as_reals, within_range

__all__ = ["Ridge", "ridge_drift"]

# Features are formed this many numbers at a time.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False, kw_only=True)
class Ridge:
    """A drift linear in its features; see :func:`ridge_drift`.

    Attributes
    ----------
    features : φ, with the names of its columns and of those dropped.
    weights : (w₀; W), one row per feature, the intercept first.
    strength : λ chosen.
    errors : held-out mean of ‖v − b‖² for each λ tried, in the order given.
    rank : rank of the correlation matrix of φ; at most ``len(features) - 1``.
    """

    features: FeatureMap
    weights: Float64[Tensor, "F_plus_1 r"]
    strength: float
    errors: dict[float, float]
    rank: int
    name: str = "ridge"

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t."""
        return within_range(self.unchecked(t, y, context), "The velocity")

    def unchecked(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N r"]:
        """Velocity at y and t, NaN where it leaves the range of its dtype: for an integrator."""
        states = as_reals(y, "y")
        return self._product(t, states, context).to(states.dtype)

    @cached_property
    def _product(self) -> FeatureProduct:
        return self.features.product(self.weights)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Moments:
    """Sums over some pairs: φφᵀ, φvᵀ and ‖v‖²; the first feature is one, so they hold the means."""

    gram: Float64[Tensor, "P P"]
    cross: Float64[Tensor, "P r"]
    energy: Float64[Tensor, ""]

    def minus(self, other: "_Moments") -> "_Moments":
        return _Moments(
            gram=self.gram - other.gram,
            cross=self.cross - other.cross,
            energy=self.energy - other.energy,
        )


def ridge_drift(
    sample: DriftSample,
    *,
    strengths: Sequence[float] = (1e-4, 1e-3, 1e-2),
    folds: int = 5,
    rich: bool = False,
    bilinear: int = 8,
) -> Ridge:
    r"""Drift by ridge regression, its strength chosen by cross-validation over prompts.

    .. math:: \hat b(t, y) = w_0 + \hat W_\lambda^\top \phi(t, y), \qquad
              \lambda = \arg\min_\lambda \sum_k \sum_{i \in k}
              \big\|v_i - \hat b_\lambda^{(-k)}(t_i, y_i)\big\|^2

    Parameters
    ----------
    sample : pairs (y, v) with times t and prompts.
    strengths : λ to try, relative to the mean eigenvalue of the correlation matrix of φ.
    folds : k runs over so many folds of whole prompts, the same each time.
    rich, bilinear : as in :func:`flowscope.flows.drift.feature_map`.

    Raises
    ------
    InvalidInputError
        If there are fewer prompts than folds, no strength or one that is not positive, or nothing
        moves.

    Notes
    -----
    One Gram matrix per fold, O(N·F²), and one eigendecomposition per fold for all strengths; the
    features of a fold are standardised by the rest. Float64, whatever comes in. Source 000 §7 with
    its strengths; their scale, which it leaves open, and the grouping are ours. φ is not of full
    rank (LayerNorm sums to zero), which a positive λ makes harmless.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> start = torch.linspace(1, 2, 10).double()[:, None, None]
    >>> paths = torch.cat([start, 0.5 * start], 1)  # v = −y/2
    >>> sample = drift_sample(paths, torch.tensor([0.0, 1.0]), torch.arange(10))
    >>> ridge_drift(sample, strengths=[1e-9])(0.0, torch.tensor([[1.6]]))
    tensor([[-0.8000]])
    """
    if not strengths or not all(0 < s < float("inf") for s in strengths):
        raise InvalidInputError(
            f"strengths must be positive numbers, at least one; found {list(strengths)}. Features "
            "are rank-deficient by construction, so 0 has no unique solution."
        )
    check_moving(sample)
    fold_of = group_folds(sample.groups, folds)
    phi = feature_map(sample, rich=rich, bilinear=bilinear)
    parts = [_moments(phi, sample.at(fold_of == k)) for k in range(folds)]
    total = _Moments(
        gram=sum((p.gram for p in parts), torch.zeros(())),
        cross=sum((p.cross for p in parts), torch.zeros(())),
        energy=sum((p.energy for p in parts), torch.zeros(())),
    )
    missed = torch.zeros(len(strengths), dtype=torch.float64)
    for part in parts:
        fitted, _ = _fits(total.minus(part), strengths)
        missed += torch.stack([_squared_error(part, W) for W in fitted]).cpu()
    errors = dict(zip(strengths, (missed / len(sample)).tolist(), strict=True))
    strength = min(errors, key=errors.__getitem__)
    (weights,), rank = _fits(total, [strength])
    return Ridge(features=phi, weights=weights, strength=strength, errors=errors, rank=rank)


def _moments(phi: FeatureMap, sample: DriftSample) -> _Moments:
    P, device = len(phi), sample.states.device
    gram = torch.zeros(P, P, dtype=torch.float64, device=device)
    cross = torch.zeros(P, sample.width, dtype=torch.float64, device=device)
    for rows in torch.split(torch.arange(len(sample), device=device), max(1, _CHUNK // P)):
        part = sample.at(rows)
        context = None if part.context is None else part.context.double()
        columns = phi(part.times.double(), part.states.double(), context)
        gram.addmm_(columns.mT, columns)
        cross.addmm_(columns.mT, part.velocities.double())
    return _Moments(gram=gram, cross=cross, energy=sample.velocities.double().square().sum())


def _fits(moments: _Moments, strengths: Sequence[float]) -> tuple[list[Tensor], int]:
    """Weights for each strength from the sums of the training pairs alone, and the rank."""
    N = moments.gram[0, 0]
    mean, level = moments.gram[0, 1:] / N, moments.cross[0] / N
    covariance = moments.gram[1:, 1:] / N - torch.outer(mean, mean)
    spread = covariance.diagonal().clamp_min(0).sqrt()
    # A column may vary over all pairs and be constant without a fold: it gets no weight there.
    unit = torch.where(spread > 1e-8, 1 / spread.clamp_min(1e-300), 0.0)
    values, Q = torch.linalg.eigh(unit[:, None] * covariance * unit)
    target = Q.mT @ (unit[:, None] * (moments.cross[1:] / N - torch.outer(mean, level)))
    rank = int((values > len(values) * torch.finfo(torch.float64).eps * values[-1]).sum())
    fitted = []
    for strength in strengths:
        slopes = unit[:, None] * (Q @ (target / (values.clamp_min(0) + strength)[:, None]))
        fitted.append(torch.cat([(level - mean @ slopes)[None], slopes]))
    return fitted, rank


def _squared_error(moments: _Moments, weights: Float64[Tensor, "P r"]) -> Float64[Tensor, ""]:
    """Sum of ‖v − Wᵀφ‖² from sums alone."""
    explained = (weights * (2 * moments.cross - moments.gram @ weights)).sum()
    return (moments.energy - explained).clamp_min(0)  # below zero by rounding only
