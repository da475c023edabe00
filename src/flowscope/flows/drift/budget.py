r"""The finite-depth budget of source 000: fitted on half of the prompts, tried on the other.

.. math:: \Xi_L = \alpha_1 \max_\ell \|\Delta z^\ell\|_\infty
          + \alpha_2 \sum_\ell \|\Delta z^\ell\|_\infty^2, \qquad \alpha \ge 0 .

The source gives the form and no numbers. Least squares puts Ξ through the middle of the errors, so
about half of them exceed it: as a bound it needs a factor, the empirical quantile of error/Ξ. On
new prompts that factor covers the stated share, if prompts are exchangeable.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import nnls
from scipy.stats import rankdata
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.folds import group_folds
from flowscope.simplex.probability import as_reals, refuse

__all__ = ["Budget", "RankCorrelation", "fit_budget", "rank_correlation"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Budget:
    """A fitted budget and how it fared; see :func:`fit_budget`.

    Attributes
    ----------
    alphas : (α₁, α₂).
    level, factor : factor·Ξ covers the share ``level`` of the calibration half.
    coverage : share of tokens of the other half with error ≤ Ξ.
    level_coverage : the same with error ≤ factor·Ξ.
    values : Ξ of every token, in the order given.
    calibration : which tokens were fitted to; the coverages are over the others.
    """

    alphas: tuple[float, float]
    level: float
    factor: float
    coverage: float
    level_coverage: float
    values: Float64[Tensor, "n"]
    calibration: Bool[Tensor, "n"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RankCorrelation:
    """Spearman's ρ with its resamples over prompts; see :func:`rank_correlation`."""

    value: float
    draws: Float64[Tensor, "B"]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Percentile interval of the resamples."""
        tail = (1 - level) / 2
        ends = torch.quantile(self.draws, self.draws.new_tensor([tail, 1 - tail]))
        return ends[0].item(), ends[1].item()


def fit_budget(
    error: Float64[Tensor, "n"],
    largest: Float64[Tensor, "n"],
    squares: Float64[Tensor, "n"],
    groups: Int64[Tensor, "n"],
    *,
    level: float = 0.9,
    generator: torch.Generator | None = None,
) -> Budget:
    r"""Budget by non-negative least squares on half of the prompts, its coverage on the other.

    .. math:: \alpha = \arg\min_{\alpha \ge 0} \sum_{i \in A}
              \big(e_i - \alpha_1 m_i - \alpha_2 s_i\big)^2, \qquad
              f = \Big(\frac{e_i}{\Xi_i}\Big)_{(\lceil (|A| + 1)\,\mathrm{level} \rceil)}

    Parameters
    ----------
    error : e, held-out error of each token (a total variation, say).
    largest : m = max_ℓ ‖Δz‖_∞ over the layers of the segment.
    squares : s = Σ_ℓ ‖Δz‖²_∞ over them.
    groups : prompt of each token; A holds whole prompts.
    level : share that factor·Ξ is to cover.
    generator : draws the half A.

    Raises
    ------
    InvalidInputError
        If a number is negative or not finite, lengths differ, there are fewer than two prompts or
        too few tokens for the level, or every m and s of a half is zero.

    Notes
    -----
    O(n log n). Source 000 eq 1 and Thm 5.1. Split-conformal coverage holds for exchangeable
    *prompts*: with G of them it fluctuates like 1/√G and not like 1/√n. The factor uses the half
    that α was fitted to, two numbers that hardly move it. A token with Ξ = 0 is covered if its
    error is zero.

    Examples
    --------
    >>> m = torch.linspace(1, 2, 100).double()
    >>> found = fit_budget(3 * m + 2 * m**3, m, m**3, torch.arange(100))
    >>> [round(a, 6) for a in found.alphas]
    [3.0, 2.0]
    """
    e, m, s = (
        _amounts(x, n) for x, n in [(error, "error"), (largest, "largest"), (squares, "squares")]
    )
    if not e.shape == m.shape == s.shape == groups.shape:
        raise InvalidInputError(
            "error, largest, squares and groups must have one entry per token; found "
            f"{tuple(e.shape)}, {tuple(m.shape)}, {tuple(s.shape)} and {tuple(groups.shape)}."
        )
    if not 0 < level < 1:
        raise InvalidInputError(f"level must lie strictly between 0 and 1; found {level}.")
    half = group_folds(groups, 2, generator) == 0
    alphas = _alphas(e[half], m[half], s[half])
    values = alphas[0] * m + alphas[1] * s
    factor = _conformal(e[half], values[half], level)
    return Budget(
        alphas=alphas,
        level=level,
        factor=factor,
        coverage=_covered(e[~half], values[~half]),
        level_coverage=_covered(e[~half], factor * values[~half]),
        values=values,
        calibration=half,
    )


def rank_correlation(
    error: Float64[Tensor, "n"],
    budget: Float64[Tensor, "n"],
    groups: Int64[Tensor, "n"],
    *,
    draws: int = 200,
    generator: torch.Generator,
) -> RankCorrelation:
    r"""Spearman's rank correlation of error and budget, resampled over prompts.

    .. math:: \rho = \operatorname{corr}\big(\operatorname{rank} e, \operatorname{rank} \Xi\big)

    Parameters
    ----------
    error, budget : e and Ξ, one entry per segment and prompt (or token).
    groups : prompt of each entry; all entries of a prompt are drawn together.
    draws : how many resamples of the prompts, B.
    generator : draws the prompts.

    Raises
    ------
    InvalidInputError
        If lengths differ, there are fewer than two prompts, or e or Ξ is constant.

    Notes
    -----
    Ties share their mean rank. O(B·n log n). Source 000's prediction (i) is ρ > 0. A resample in
    which one side is constant has no correlation and is NaN.

    Examples
    --------
    >>> x = torch.arange(20.0).double()
    >>> rank_correlation(x**3, x, torch.arange(20), generator=torch.Generator()).value
    1.0
    """
    e, xi = _amounts(error, "error").cpu().numpy(), _amounts(budget, "budget").cpu().numpy()
    _, place = np.unique(groups.cpu().numpy(), return_inverse=True)
    G = int(place.max(initial=-1)) + 1
    if not e.shape == xi.shape == place.shape or G < 2:
        raise InvalidInputError(
            "error, budget and groups must have one entry per case, from at least two prompts; "
            f"found shapes {e.shape}, {xi.shape}, {place.shape} and {G} prompts."
        )
    value = _spearman(e, xi)
    if math.isnan(value):
        raise InvalidInputError(
            "error and budget must both vary for a rank correlation; one of them is constant."
        )
    rows = [np.flatnonzero(place == g) for g in range(G)]
    drawn = torch.randint(G, (draws, G), generator=generator).tolist()
    resampled = [np.concatenate([rows[g] for g in one]) for one in drawn]
    return RankCorrelation(
        value=value,
        draws=torch.tensor([_spearman(e[i], xi[i]) for i in resampled], dtype=torch.float64),
    )


def _amounts(x: Tensor, name: str) -> Float64[Tensor, "n"]:
    found = as_reals(x, name).double()
    refuse(~(found.isfinite() & (found >= 0)), found, f"{name} must be finite and not negative",
           "Look for the state that made it.")  # fmt: skip
    return found


def _alphas(e: Tensor, m: Tensor, s: Tensor) -> tuple[float, float]:
    columns = torch.stack([m, s], 1).cpu().numpy()
    size = np.linalg.norm(columns, axis=0)
    if not size.any():
        raise InvalidInputError(
            "largest or squares must be positive for some token; all are zero in the calibration "
            "half. Nothing moves there, and there is no budget to fit."
        )
    unit = np.where(size > 0, size, 1.0)  # one is a length and the other a squared one
    alphas = nnls(columns / unit, e.cpu().numpy())[0] / unit
    return float(alphas[0]), float(alphas[1])


def _conformal(e: Tensor, values: Tensor, level: float) -> float:
    n = len(e)
    place = _upwards((n + 1) * level)
    if place > n:
        raise InvalidInputError(
            f"A level of {level} needs at least {_upwards(level / (1 - level))} tokens in the "
            f"calibration half; found {n}. Lower the level or give more prompts."
        )
    ratio = torch.where(e > 0, e / values, 0.0)
    return float(ratio.sort().values[place - 1])


def _upwards(x: float) -> int:
    """Next integer, not past one that only rounding has missed."""
    return math.ceil(round(x, 9))


def _covered(e: Tensor, values: Tensor) -> float:
    return (e <= values).double().mean().item()


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    a, b = rankdata(x) - (len(x) + 1) / 2, rankdata(y) - (len(y) + 1) / 2
    size = math.sqrt((a @ a) * (b @ b))
    return float(a @ b) / size if size > 0 else math.nan
