r"""The weak error of a sampler from itself: K steps against 2K on the same noise.

.. math:: D_K(\varphi) = E\,\varphi(X_K) - E\,\varphi(X_{2K}), \qquad
          \Delta W^{K}_k = \Delta W^{2K}_{2k} + \Delta W^{2K}_{2k+1}

The error c/K + O(K⁻²) leaves D_K = c/2K + O(K⁻²), without the truth. Runs share their start and
their Brownian path, so that D_K is a mean of small differences: its spread falls with K as it does.
`step_doubling` runs the sampler itself; `doubling_slope` reads differences that were run elsewhere,
one row an image.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from scipy.stats import t as student
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.fields import as_start, check_count
from flowscope.flows.sampling.weak_error import Slope, log_slope
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["Doubling", "DoublingSlope", "doubling_slope", "step_doubling"]

_FEWEST_IMAGES = 8

Sampler: TypeAlias = Callable[[Tensor, Tensor], Tensor]
TestFunction: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Doubling:
    """D_K of one test function with standard errors, and the slope of log size on log K.

    ``status`` is "unresolved" when some D_K is within two standard errors of zero: its logarithm
    is then noise, and the slope is NaN.
    """

    steps: tuple[int, ...]
    differences: tuple[float, ...]
    standard_errors: tuple[float, ...]
    slope: Slope
    status: str
    samples: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class DoublingSlope:
    """D_K of one test function over images, and the slope of log size on log K.

    Attributes
    ----------
    steps, differences, standard_errors
        K, the mean D_K over images, and its standard error.
    lows, highs
        Student's interval of each D_K.
    slope, low, high
        Slope and its interval; NaN unless the status is "ok".
    method
        How the interval of the slope was made.
    status, because
        "ok", or "unresolved" and at which K: the logarithm of a mean within noise is noise.
    samples
        Images.
    """

    steps: tuple[int, ...]
    differences: tuple[float, ...]
    standard_errors: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    slope: float
    low: float
    high: float
    method: str
    status: str
    because: str
    samples: int


def step_doubling(
    sampler: Sampler,
    test_functions: Mapping[str, TestFunction],
    steps: Sequence[int],
    *,
    start: Callable[[int, torch.Generator], Tensor],
    horizon: float,
    generator: torch.Generator,
    samples: int = 100_000,
    blocks: int = 50,
    level: float = 0.95,
) -> dict[str, Doubling]:
    r"""Differences between K and 2K steps on common noise, and their slope with an interval.

    .. math:: D_K = \frac1N \sum_n \varphi(X^{(n)}_K) - \varphi(X^{(n)}_{2K})

    Parameters
    ----------
    sampler : (x₀, ΔW) ↦ states at the end; ΔW of shape [K, N, d] holds one increment of variance
        T/K per step, so that its length says how many steps to take. A deterministic sampler reads
        nothing else of it.
    test_functions : φ by name, each from [N, d] to [N].
    steps : K, each a power of two times the first; they run with K and 2K.
    start : (n, generator) ↦ x₀ of shape [n, d].
    horizon : T, the time the sampler runs for.
    generator : source of starts and noise.
    samples, blocks : N, and into how many equal blocks it is divided (≥ 10).
    level : of the interval.

    Raises
    ------
    InvalidInputError
        If the steps do not double, the blocks do not divide the samples, the horizon is not
        positive, or the sampler or a test function returns another shape or something not finite.

    Notes
    -----
    The interval of the slope is a jackknife over blocks: with θ the slope of all samples and θ₍ᵢ₎
    the slope without block i, s² = (B−1)/B Σ(θ₍ᵢ₎ − θ̄)² and θ ± t_{B−1} s. Blocks are independent
    and each D_K a mean, so this needs only that log|D_K| is nearly linear in the means, which
    "unresolved" guards. Cost: Σ 2K distinct runs; one block's noise is held at a time, 2K_max·N/B·d
    numbers. Source 000 §8.4 and M.6 (there without interval).

    Examples
    --------
    >>> def euler(x, dw):
    ...     for _ in dw:
    ...         x = x - x / len(dw)
    ...     return x
    >>> found = step_doubling(euler, {"square": lambda x: x[:, 0] ** 2}, [50, 100],
    ...     start=lambda n, g: torch.randn(n, 1, generator=g), horizon=1.0, samples=1000,
    ...     generator=torch.Generator().manual_seed(0))
    >>> round(found["square"].slope.slope, 2)
    -1.0
    """
    K = _checked_steps(steps)
    _check_design(samples, blocks, horizon, level)
    runs = sorted({*K, *(2 * k for k in K)})
    means = np.empty((blocks, len(test_functions), len(runs)))
    for block in range(blocks):
        x0 = as_start(start(samples // blocks, generator), "start", axes=2)
        finest = _brownian((runs[-1], *x0.shape), horizon / runs[-1], generator, x0)
        means[block] = _block(sampler, test_functions, runs, x0, finest)
    below = [runs.index(k) for k in K]
    above = [runs.index(2 * k) for k in K]
    D = means[:, :, below] - means[:, :, above]
    return {name: _doubling(D[:, i], K, samples, level) for i, name in enumerate(test_functions)}


def doubling_slope(
    differences: Float[Tensor, "n k"] | ArrayLike, steps: Sequence[int], *, level: float = 0.95
) -> DoublingSlope:
    r"""Slope of step-doubling differences over images, with its jackknife-t interval.

    .. math:: D_K = \frac1n \sum_i d_{iK}, \qquad d_{iK} = \varphi(X^{(i)}_K) -
              \varphi(X^{(i)}_{2K}), \qquad \log|D_K| \approx \text{const} +
              \text{slope}\cdot\log K

    Parameters
    ----------
    differences : d, one row an image, one column for each K; both runs of an image start from the
        same noise.
    steps : K, increasing.
    level : of all intervals.

    Raises
    ------
    InvalidInputError
        If there are fewer than two K or 8 images, the columns are not those of the steps, a value
        is not finite, or the level makes no sense.

    Notes
    -----
    Each image is left out as a row, so that what the K have in common stays in common: with θ₍ᵢ₎
    the slope without image i, s² = (n−1)/n Σ(θ₍ᵢ₎ − θ̄)² and θ ± t_{n−1} s. "unresolved" where
    Student's interval of some D_K contains 0: the slope would be that of a mean whose sign is not
    known. The error of the interval is 2 to 6 % at a nominal 5 %, for normal, exponential and
    lognormal rows of 16 to 256 images. The intervals of D_K always exist. O(n·k).

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> rows = (1 + 0.3 * torch.randn(100, 3, generator=g)) / torch.tensor([50, 100, 200])
    >>> found = doubling_slope(rows, [50, 100, 200])
    >>> found.status, found.low < -1 < found.high
    ('ok', True)
    """
    rows, K = _checked_rows(differences, steps)
    if not 0 < level < 1:
        raise InvalidInputError(f"level must lie between 0 and 1; found {level}. Pass 0.95.")
    d = rows.numpy()
    n, mean = len(d), d.mean(0)
    error = d.std(0, ddof=1) / math.sqrt(n)
    reach = float(student.ppf(0.5 + level / 2, n - 1))
    because = _unresolved(K, mean, error, reach)
    slope = spread = math.nan
    if not because:
        slope, spread = _jackknife(d, np.log(np.array(K, float)))
    return DoublingSlope(
        steps=K,
        differences=tuple(mean.tolist()),
        standard_errors=tuple(error.tolist()),
        lows=tuple((mean - reach * error).tolist()),
        highs=tuple((mean + reach * error).tolist()),
        slope=slope,
        low=slope - reach * spread,
        high=slope + reach * spread,
        method="none: unresolved" if because else f"jackknife t over {n} images",
        status="unresolved" if because else "ok",
        because=because,
        samples=n,
    )


def _unresolved(
    K: tuple[int, ...], mean: NDArray[np.float64], error: NDArray[np.float64], reach: float
) -> str:
    """Which differences are not told from zero; empty if all are."""
    found = [
        f"at K = {k} {m:.3g} is within {reach:.2g} standard errors, {e:.2g} each"
        for k, m, e in zip(K, mean.tolist(), error.tolist(), strict=True)
        if abs(m) <= reach * e
    ]
    return f"the difference is not told from zero: {'; '.join(found)}." if found else ""


def _checked_rows(
    differences: Tensor | ArrayLike, steps: Sequence[int]
) -> tuple[Float64[Tensor, "n k"], tuple[int, ...]]:
    d = as_reals(differences, "differences").detach().double().cpu()
    K = tuple(int(k) for k in steps)
    if len(K) < 2 or K[0] < 1 or any(b <= a for a, b in pairwise(K)):
        raise InvalidInputError(
            f"steps must be at least two numbers ≥ 1 that increase; found {list(steps)}. Take for "
            "instance 50, 100, 200, 400."
        )
    if d.ndim != 2 or d.shape[1] != len(K) or len(d) < _FEWEST_IMAGES:
        raise InvalidInputError(
            f"differences must have one column for each of the {len(K)} steps and a row for each "
            f"of at least {_FEWEST_IMAGES} images; found shape {tuple(d.shape)}."
        )
    refuse(~d.isfinite(), d, "differences must be finite", "Look for samples that diverged.")
    return d, K


def _doubling(D: NDArray[np.float64], K: list[int], samples: int, level: float) -> Doubling:
    blocks = len(D)
    mean, spread = D.mean(0), D.std(0, ddof=1) / np.sqrt(blocks)
    resolved = bool(np.all(np.abs(mean) > 2 * spread))
    value, error = _jackknife(D, np.log(np.array(K, float))) if resolved else (np.nan, np.nan)
    half = float(student.ppf(0.5 + level / 2, blocks - 1)) * error
    return Doubling(
        steps=tuple(K),
        differences=tuple(mean.tolist()),
        standard_errors=tuple(spread.tolist()),
        slope=Slope(
            slope=value,
            standard_error=error,
            interval=(value - half, value + half),
            level=level,
            steps=tuple(K),
        ),
        status="ok" if resolved else "unresolved",
        samples=samples,
        blocks=blocks,
    )


def _jackknife(D: NDArray[np.float64], log_steps: NDArray[np.float64]) -> tuple[float, float]:
    blocks = len(D)
    total = D.sum(0)
    left_out = [log_slope(log_steps, np.log(np.abs(total - own) / (blocks - 1))) for own in D]
    error = np.sqrt((blocks - 1) * np.var(left_out))
    return log_slope(log_steps, np.log(np.abs(total) / blocks)), float(error)


def _brownian(
    shape: tuple[int, ...], variance: float, generator: torch.Generator, x: Tensor
) -> Float[Tensor, "K n d"]:
    drawn = torch.randn(shape, generator=generator, dtype=x.dtype, device=generator.device)
    return drawn.to(x).mul_(variance**0.5)


def _block(
    sampler: Sampler,
    test_functions: Mapping[str, TestFunction],
    runs: list[int],
    x0: Float[Tensor, "n d"],
    dw: Float[Tensor, "K n d"],
) -> NDArray[np.float64]:
    """Means of the test functions [function, run] over one block, from the finest run down."""
    found = np.empty((len(test_functions), len(runs)))
    for place in reversed(range(len(runs))):
        dw = dw.reshape(runs[place], -1, *x0.shape).sum(1)
        end = sampler(x0, dw)
        for i, (name, function) in enumerate(test_functions.items()):
            values = _values(function, end, len(x0), name)
            found[i, place] = float(values.mean(dtype=torch.float64))
    return found


def _values(function: TestFunction, end: Tensor, n: int, name: str) -> Float[Tensor, " n"]:
    value = function(end)
    if value.shape != (n,) or not bool(value.isfinite().all()):
        raise InvalidInputError(
            f"Test function {name!r} must give one finite number per sample, shape ({n},); found "
            f"shape {tuple(value.shape)}, {int((~value.isfinite()).sum())} not finite. Sum over "
            "coordinates there, and use steps at which the sampler is stable."
        )
    return value


def _checked_steps(steps: Sequence[int]) -> list[int]:
    K = sorted({int(k) for k in steps})
    if len(K) < 2 or K[0] < 1 or any(b % a or (b // a) & (b // a - 1) for a, b in pairwise(K)):
        raise InvalidInputError(
            f"steps must be at least two numbers, each a power of two times the one before; found "
            f"{list(steps)}. Take for instance 50, 100, 200, 400."
        )
    return K


def _check_design(samples: int, blocks: int, horizon: float, level: float) -> None:
    check_count(blocks, "blocks", 10)
    check_count(samples, "samples", 10)
    if samples % blocks:
        raise InvalidInputError(
            f"blocks must divide samples; found {samples} samples in {blocks} blocks. Choose "
            f"{samples - samples % blocks} samples."
        )
    if not (horizon > 0 and 0 < level < 1):
        raise InvalidInputError(
            f"horizon must be > 0 and level in (0, 1); found {horizon:.6g} and {level:.6g}."
        )
