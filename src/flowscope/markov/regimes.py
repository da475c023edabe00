r"""Equilibrium, steady state, driven: which of them a walk of given length can tell.

No head of a model has currents of exactly zero, so a label needs a threshold, and this one is
statistical. Entropy production $\sigma$ is the divergence per step of the walk from its reversal:
after $n$ steps the mean log-odds of an observer for the true arrow of time, starting even, are
$n\sigma$. Likewise $n$ tokens drawn after a step give the mean log-odds
$n\,\mathrm{KL}(\rho P\Vert\rho)$ that the law is no longer $\rho$. With odds of $1/\text{level}$
asked for:

$$
\begin{aligned}
n\,\mathrm{KL}(\rho P\Vert\rho) \ge \log\tfrac1{\text{level}} &: \text{driven}, &&
\text{else}\\
n\,\sigma_\pi \ge \log\tfrac1{\text{level}} &: \text{steady state}, && \text{else: equilibrium} .
\end{aligned}
$$

$\sigma_\pi$ is taken at the stationary law $\pi$ of the chain, whatever $\rho$ is: away from $\pi$
a reversible chain produces entropy too, because it relaxes, and that is not a current. A chain of
two states is always reversible and therefore never a steady state.

At the stationary law the first never holds (E58): a law that moves by rounding only,
$\mathrm{TV}(\rho P, \rho) \le 10\,N\varepsilon$ with $\varepsilon$ of float64, or of float32 if
either kernel or law came in it, counts as still whatever $n$. "Equilibrium" means *not told apart
within $n$ steps*, so $n$ belongs beside the label; the length of the text that was read is a
natural choice.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.causal import refuse_causal
from flowscope.markov.irreversibility import displacement, entropy_production
from flowscope.markov.stationary import stationary_distribution, wide_kernel, wide_law
from flowscope.simplex.divergence import kl_divergence
from flowscope.simplex.probability import ArrayLike, as_reals

__all__ = ["UNDECIDED", "judged", "regime", "steps_to_tell"]

Labels: TypeAlias = npt.NDArray[np.str_]

DRIVEN, STEADY, STILL, UNDECIDED = "driven", "steady state", "equilibrium", "undecided"
_ROUNDING = 10.0  # units in the last place, for each token


def regime(
    kernel: Tensor | ArrayLike,
    law: Tensor | ArrayLike | None,
    *,
    steps: float,
    level: float = 0.05,
) -> Labels:
    r"""Label of each chain at a law: "equilibrium", "steady state" or "driven".

    Parameters
    ----------
    kernel
        Kernels $P$.
    law
        $\rho$, the law at which the chain is looked at; None is the uniform law. At
        `stationary_distribution` only the first two labels occur.
    steps
        $n$, how long the observer may watch.
    level
        Odds of 1/level are asked for.

    Returns
    -------
    An array of strings, one for each chain; ``.item()`` for a single one.

    Raises
    ------
    InvalidInputError
        For a causal kernel, whose labels are empty.

    Examples
    --------
    >>> ring = [[0.0, 0.75, 0.25], [0.25, 0.0, 0.75], [0.75, 0.25, 0.0]]
    >>> [regime(ring, None, steps=n).item() for n in (5, 6)]
    ['equilibrium', 'steady state']
    >>> regime(ring, [0.5, 0.25, 0.25], steps=50).item()
    'driven'
    """
    needed = _log_odds(level)
    n = _checked_steps(steps)
    P = wide_kernel(kernel)
    refuse_causal(P, "The regime")
    rho = wide_law(law, P)
    step = (rho[..., None, :] @ P)[..., 0, :]
    narrow = any(isinstance(x, Tensor) and x.dtype != torch.float64 for x in (kernel, law))
    unit = torch.finfo(torch.float32 if narrow else torch.float64).eps
    moves = displacement(P, rho) > _ROUNDING * P.shape[-1] * unit
    driven = moves & (n * kl_divergence(step, rho) >= needed)
    sigma = entropy_production(P, stationary_distribution(P))
    directed = n * sigma >= needed
    return np.where(_numpy(driven), DRIVEN, np.where(_numpy(directed), STEADY, STILL))


def steps_to_tell(
    entropy_production: Tensor | ArrayLike | float, level: float = 0.05
) -> Float[Tensor, "*batch"]:
    r"""Steps after which the arrow of time shows: $\log(1/\text{level})/\sigma$.

    Parameters
    ----------
    entropy_production
        $\sigma \ge 0$ per step; zero gives ∞.
    level
        As for `regime`.

    Examples
    --------
    >>> steps_to_tell([0.5, 0.0])
    tensor([5.9915,    inf], dtype=torch.float64)
    """
    sigma = _checked_production(entropy_production, "entropy_production")
    return _log_odds(level) / sigma


def judged(
    low: Tensor | ArrayLike | float,
    high: Tensor | ArrayLike | float,
    *,
    steps: float,
    level: float = 0.05,
) -> Labels:
    r"""Label of an interval of entropy production, at the stationary law.

    "equilibrium" where the whole interval lies below $\log(1/\text{level})/n$, "steady state" where
    it lies above, else "undecided".

    Parameters
    ----------
    low, high
        Ends of the interval for $\sigma$, which broadcast; a negative lower end says zero.
    steps, level
        As for `regime`.

    Examples
    --------
    >>> judged([0.0, 0.0, 0.4], [0.1, 0.9, 0.9], steps=10).tolist()
    ['equilibrium', 'undecided', 'steady state']
    """
    needed, n = _log_odds(level), _checked_steps(steps)
    lower = as_reals(low, "low").double()
    upper = _checked_production(high, "high")
    lower = _checked_production(lower.clamp_min(0.0), "low")
    lower, upper = lower + torch.zeros_like(upper), upper + torch.zeros_like(lower)
    if bool((lower > upper).any()):
        raise InvalidInputError(
            "The lower end of an interval must not exceed the upper; found "
            f"{lower[lower > upper][0].item():.6g} above {upper[lower > upper][0].item():.6g}."
        )
    below, above = _numpy(n * upper < needed), _numpy(n * lower > needed)
    return np.where(below, STILL, np.where(above, STEADY, UNDECIDED))


def _log_odds(level: float) -> float:
    if not 0 < level < 1:
        raise InvalidInputError(
            f"level must lie strictly between 0 and 1; got {level!r}. 0.05 asks for odds of 20."
        )
    return -math.log(level)


def _checked_steps(steps: float) -> float:
    if not (math.isfinite(steps) and steps >= 1):
        raise InvalidInputError(
            f"steps must be a finite number of at least 1; got {steps!r}. In infinitely many, "
            "every asymmetry shows."
        )
    return float(steps)


def _checked_production(sigma: Any, name: str) -> Tensor:
    found = as_reals(sigma, name).double()
    if not bool((found >= 0).all()):
        raise InvalidInputError(
            f"{name} must be zero or positive, entropy production per step; found "
            f"{found[~(found >= 0)].flatten()[0].item():.6g}."
        )
    return found


def _numpy(flags: Tensor) -> npt.NDArray[np.bool_]:
    array: npt.NDArray[np.bool_] = flags.detach().cpu().numpy()
    return array
