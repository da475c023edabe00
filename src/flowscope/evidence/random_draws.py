r"""Distance of a subject from random draws (twins with other seeds), all on the same prompts.

A random twin is one draw of many, and where the null is true the subject is one more. With $x_{kp}$
the subject less draw $k$ on prompt $p$, the mean has an interval over prompts, $[l, u]$ (of the
means over draws, `mean_over_prompts`). The means over prompts, $\bar x_k$, spread by $s$ from draw
to draw, the subject spreads as much around the mean of all draws, and the mean of $K$ draws by
$s/\sqrt K$. Both distances add up in squares,

$$ L = \bar x - \sqrt{(\bar x - l)^2 + t_{K-1}^2 s^2 (1 + 1/K)} $$

and likewise above (Zou and Donner 2008, *Construction of confidence limits about effect measures*,
eq. 3, for a sum of two independent parts). With $s/\sqrt K$ alone, the spread of a mean, a subject
that is a draw like the others would be called different in 16 % of cases at three draws.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import stdtrit

from flowscope.errors import InvalidInputError
from flowscope.evidence.bootstrap import resampled_counts
from flowscope.evidence.intervals import single
from flowscope.evidence.means import RESAMPLES, mean_over_prompts
from flowscope.records import Interval, Unavailable

__all__ = ["distance_from_draws"]


def distance_from_draws(
    differences: Float[NDArray[np.floating], "draws prompts"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, Interval | Unavailable]:
    """Mean difference of a subject from random draws; its interval holds 0 if it is one of them.

    Parameters
    ----------
    differences
        Subject less draw, one row per draw, one column per prompt. Rows and columns that hold no
        number are left out, and so is a prompt that lacks one of the other draws.
    level
        Coverage of the interval.
    seed
        Seed of the resampled prompts.

    Raises
    ------
    InvalidInputError
        The values are not a table.

    Examples
    --------
    >>> mean, interval = distance_from_draws(np.array([[1.0, 2.0, 3.0, 2.0], [2.0, 3.0, 4.0, 3.0]]))
    >>> mean
    2.5
    """
    if differences.ndim != 2:
        raise InvalidInputError(
            f"differences must be [draws, prompts], found shape {differences.shape}: give one row "
            "per draw."
        )
    x = differences[np.isfinite(differences).any(1)].astype(np.float64)
    x = x[:, np.isfinite(x).all(0)]
    draws, prompts = x.shape
    if not draws or not prompts:
        return float("nan"), Unavailable("no prompt has a value for every draw")
    mean = float(x.mean())
    if draws < 2:
        return mean, Unavailable("one draw says nothing of the spread of draws")
    if prompts < 2:
        return mean, Unavailable("one prompt has no interval")
    counts = resampled_counts(prompts, resamples=RESAMPLES, seed=seed)
    column = x.mean(0)[:, None]
    over_prompts = single(mean_over_prompts(column, np.ones_like(column), counts, level=level)[1])
    if isinstance(over_prompts, Unavailable):
        return mean, over_prompts
    student = float(stdtrit(draws - 1, (1 + level) / 2))
    reach = student * float(x.mean(1).std(ddof=1)) * np.sqrt(1 + 1 / draws)
    below, above = mean - float(over_prompts.low), float(over_prompts.high) - mean
    return mean, Interval(
        low=mean - float(np.hypot(below, reach)),
        high=mean + float(np.hypot(above, reach)),
        level=level,
        method=f"prompts ({over_prompts.method}) and {draws} draws (Student t of one more "
        "draw), distances added in squares",
    )
