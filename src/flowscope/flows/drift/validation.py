r"""Which drift to use, and how well it will do on a prompt nobody has seen.

.. math:: \mathrm{err} = \frac1N \sum_{k} \sum_{i \in k}
          \big\|v_i - \hat b^{(-k)}(t_i, y_i)\big\|^2, \qquad
          R^2 = 1 - \frac{\sum_i \|v_i - \hat b^{(-k_i)}\|^2}{\sum_i \|v_i\|^2} ,

k running over folds of whole prompts. A fit chooses its own numbers inside the folds it is given
(cross-validation within cross-validation), so the error of each candidate is honest. The smallest
of several honest errors is not: the error of *choosing* is found by letting the other folds choose
for each fold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.baselines import Drift
from flowscope.flows.drift.folds import group_folds, ratio_of_groups
from flowscope.flows.drift.samples import DriftSample, check_moving

__all__ = ["CandidateError", "Selection", "select_drift"]


@dataclass(frozen=True, kw_only=True)
class CandidateError:
    """One-step error of a family on prompts it was not fitted to.

    Attributes
    ----------
    error, error_se : mean of ‖v − b‖² per pair and its standard error over prompts.
    r2, r2_se : share of Σ‖v‖² explained, against zero drift, and its standard error.
    """

    name: str
    error: float
    error_se: float
    r2: float
    r2_se: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Selection:
    """The drift chosen among candidates; see :func:`select_drift`.

    Attributes
    ----------
    table : one line per candidate, in the order given.
    chosen : name of the candidate with the smallest error.
    drift : that candidate, fitted to all pairs.
    honest : error of the choosing itself: each fold predicted by what the other folds prefer.
    preferred : what those were, one per fold.
    """

    table: tuple[CandidateError, ...]
    chosen: str
    drift: Drift
    honest: CandidateError
    preferred: tuple[str, ...]


def select_drift(
    sample: DriftSample,
    candidates: Mapping[str, Callable[[DriftSample], Drift]],
    *,
    folds: int = 5,
    generator: torch.Generator | None = None,
) -> Selection:
    r"""Best of several drifts by nested cross-validation over prompts.

    .. math:: \hat m = \arg\min_m \sum_{k=1}^K \sum_{i \in k}
              \big\|v_i - \hat b_m^{(-k)}(t_i, y_i)\big\|^2

    Parameters
    ----------
    sample : pairs (y, v) with times t and prompts.
    candidates : m → a function that fits a drift to a sample, its own choices included.
    folds : K, the outer folds.
    generator : shuffles prompts into folds.

    Raises
    ------
    InvalidInputError
        If there is no candidate, there are fewer prompts than folds, or nothing moves. Each fit
        sees (K − 1)/K of the prompts and raises if its own folds do not fit into them.

    Notes
    -----
    K + 1 fits per candidate that is chosen, K for the others. Source 000 O.1 (nested CV); grouping
    by prompt and the error of the choosing are ours. The latter is Varma and Simon's, with the
    outer errors of the other folds in place of a third level of folds.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample, persistence, ridge_drift
    >>> start = torch.linspace(1, 2, 40).double()[:, None, None]
    >>> sample = drift_sample(
    ...     torch.cat([start, 0.5 * start], 1), torch.tensor([0.0, 1.0]), torch.arange(40)
    ... )
    >>> found = select_drift(sample, {"still": lambda s: persistence(), "ridge": ridge_drift})
    >>> found.chosen, round(found.honest.r2, 3)
    ('ridge', 1.0)
    """
    if not candidates:
        raise InvalidInputError("select_drift needs at least one candidate; found none.")
    check_moving(sample)
    fold_of = group_folds(sample.groups, folds, generator)
    missed = {name: _outer_errors(sample, fold_of, fit) for name, fit in candidates.items()}
    table = tuple(_line(name, missed[name], sample) for name in candidates)
    chosen = min(table, key=lambda line: line.error).name
    preferred = tuple(_preferred(missed, fold_of != k) for k in range(folds))
    of_choice = torch.zeros_like(missed[chosen])
    for k, name in enumerate(preferred):
        of_choice[fold_of == k] = missed[name][fold_of == k]
    return Selection(
        table=table,
        chosen=chosen,
        drift=candidates[chosen](sample),
        honest=_line("chosen by the other folds", of_choice, sample),
        preferred=preferred,
    )


def _outer_errors(
    sample: DriftSample, fold_of: Int64[Tensor, "N"], fit: Callable[[DriftSample], Drift]
) -> Float64[Tensor, "N"]:
    """‖v − b‖² of every pair under the drift fitted without its fold."""
    missed = torch.zeros(len(sample), dtype=torch.float64, device=sample.states.device)
    for k in range(int(fold_of.max()) + 1):
        held = sample.at(fold_of == k)
        drift = fit(sample.at(fold_of != k))
        guess = drift(held.times, held.states, held.context)
        missed[fold_of == k] = (guess - held.velocities).double().square().sum(1)
        if not bool(missed.isfinite().all()):
            raise InvalidInputError(
                f"The drift {drift.name!r} must be finite on held-out prompts; in fold {k} it is "
                "not. Bound it, or leave it out of the candidates."
            )
    return missed


def _preferred(missed: Mapping[str, Float64[Tensor, "N"]], rows: Tensor) -> str:
    return min(missed, key=lambda name: missed[name][rows].sum().item())


def _line(name: str, missed: Float64[Tensor, "N"], sample: DriftSample) -> CandidateError:
    error, error_se = ratio_of_groups(missed, torch.ones_like(missed), sample.groups)
    energy = sample.velocities.double().square().sum(1)
    unexplained, r2_se = ratio_of_groups(missed, energy, sample.groups)
    return CandidateError(
        name=name, error=error, error_se=error_se, r2=1 - unexplained, r2_se=r2_se
    )
