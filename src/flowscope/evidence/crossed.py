r"""Mean over prompts and over random references that were all read on the same prompts.

A random twin is one draw of many: another seed gives another number. With values $x_{kp}$ of
reference $k$ on prompt $p$, the mean has an interval over prompts, $[l, u]$ (of the means over
references, `mean_over_prompts`), and one over references, $\bar x \pm t_{K-1} s_K / \sqrt K$ (of
the means over prompts). Both distances add up in squares,

$$ L = \bar x - \sqrt{(\bar x - l)^2 + t_{K-1}^2 s_K^2 / K} $$

and likewise above (Zou and Donner 2008, *Construction of confidence limits about effect measures*,
eq. 3, for a sum of two independent parts). What prompts and references do together is counted in
both, so that the interval is a little too wide.
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

__all__ = ["crossed_mean"]


def crossed_mean(
    values: Float[NDArray[np.floating], "references prompts"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, Interval | Unavailable]:
    """Mean of all values, with the spread over prompts and over references in its interval.

    Parameters
    ----------
    values
        One row per reference, one column per prompt. Rows and columns that hold no number are left
        out, and so is a prompt that lacks one of the other references.
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
    >>> mean, interval = crossed_mean(np.array([[1.0, 2.0, 3.0, 2.0], [2.0, 3.0, 4.0, 3.0]]))
    >>> mean
    2.5
    """
    if values.ndim != 2:
        raise InvalidInputError(
            f"values must be [references, prompts], found shape {values.shape}: give one row per "
            "reference."
        )
    x = values[np.isfinite(values).any(1)].astype(np.float64)
    x = x[:, np.isfinite(x).all(0)]
    references, prompts = x.shape
    if not references or not prompts:
        return float("nan"), Unavailable("no prompt has a value for every reference")
    mean = float(x.mean())
    if references < 2:
        return mean, Unavailable("one reference says nothing of the spread over references")
    if prompts < 2:
        return mean, Unavailable("one prompt has no interval")
    counts = resampled_counts(prompts, resamples=RESAMPLES, seed=seed)
    column = x.mean(0)[:, None]
    over_prompts = single(mean_over_prompts(column, np.ones_like(column), counts, level=level)[1])
    if isinstance(over_prompts, Unavailable):
        return mean, over_prompts
    student = float(stdtrit(references - 1, (1 + level) / 2))
    reach = student * float(x.mean(1).std(ddof=1)) / np.sqrt(references)
    below, above = mean - float(over_prompts.low), float(over_prompts.high) - mean
    return mean, Interval(
        low=mean - float(np.hypot(below, reach)),
        high=mean + float(np.hypot(above, reach)),
        level=level,
        method=f"prompts ({over_prompts.method}) and {references} references (Student t), "
        "distances added in squares",
    )
