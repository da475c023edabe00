r"""Distances of two clouds of points, and their resamples over prompts.

.. math:: D(P, Q) = \mathbb E\,k(x, x') + \mathbb E\,k(y, y') - 2\,\mathbb E\,k(x, y)

is the squared maximum mean discrepancy for a Gaussian kernel and the energy distance for
k = −‖x − y‖. The means are taken over pairs that are independent: of different rows, and where
prompts are given, of different prompts. Predicted and realised states of one token belong to one
prompt, so their pairs drop out as well, and so do copies in a resample. The estimate is then
unbiased and can be negative. Everything is a sum over pairs of prompts, so a resample costs G² and
no kernel.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.kernels import (
    Kernel,
    distance_kernel,
    gaussian_kernel,
    median_distance,
)
from flowscope.simplex.probability import as_reals, refuse

__all__ = [
    "Discrepancy",
    "discrepancy",
    "energy_distance",
    "ks_distance",
    "ks_draws",
    "mmd2",
]

# Entries of a kernel that are held at a time.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False, kw_only=True)
class Discrepancy:
    """An unbiased D with its resamples over prompts; see :func:`discrepancy`."""

    value: float
    draws: Float64[Tensor, "B"]


def mmd2(
    x: Float[Tensor, "n r"],
    y: Float[Tensor, "m r"],
    *,
    bandwidth: float | None = None,
    groups: Int64[Tensor, "n"] | None = None,
) -> float:
    r"""Squared maximum mean discrepancy with a Gaussian kernel, without bias.

    .. math:: \mathrm{MMD}^2 = \mathbb E\,k(x, x') + \mathbb E\,k(y, y') - 2\,\mathbb E\,k(x, y),
              \qquad k = e^{-\|\cdot\|^2/2h^2}

    Parameters
    ----------
    x, y : the two clouds.
    bandwidth : h; the median distance where none is given.
    groups : prompt of row i of x and of row i of y; without, all rows are independent.

    Raises
    ------
    InvalidInputError
        If shapes do not match, a number is not finite, or a mean has no pair.

    Notes
    -----
    O((n + m)²·r), in chunks. Source 000 §7 (held-out MMD). Leaving out pairs of one prompt is ours.

    Examples
    --------
    >>> x = torch.tensor([[0.0], [2.0]])
    >>> round(mmd2(x, x + 100.0, bandwidth=1.0), 4)
    0.2707
    """
    _clouds(x, y, groups)
    h = median_distance(x, y) if bandwidth is None else bandwidth
    return _unbiased(x, y, gaussian_kernel(h), groups)


def energy_distance(
    x: Float[Tensor, "n r"],
    y: Float[Tensor, "m r"],
    *,
    groups: Int64[Tensor, "n"] | None = None,
) -> float:
    r"""Energy distance, without bias.

    .. math:: 2\,\mathbb E\|x - y\| - \mathbb E\|x - x'\| - \mathbb E\|y - y'\|

    Parameters
    ----------
    x, y, groups : as in :func:`mmd2`.

    Raises
    ------
    InvalidInputError
        As :func:`mmd2`.

    Notes
    -----
    O((n + m)²·r), in chunks. In the unit of x, and without a bandwidth.

    Examples
    --------
    >>> energy_distance(torch.tensor([[0.0], [2.0]]), torch.tensor([[10.0], [12.0]]))
    16.0
    """
    _clouds(x, y, groups)
    return _unbiased(x, y, distance_kernel, groups)


def discrepancy(
    x: Float[Tensor, "n r"],
    y: Float[Tensor, "n r"],
    groups: Int64[Tensor, "n"],
    *,
    kernel: Kernel,
    draws: int = 200,
    generator: torch.Generator,
) -> Discrepancy:
    r"""Discrepancy of two paired clouds with resamples over prompts.

    .. math:: D(w) = \frac{\sum_{g \ne g'} w_g w_{g'} (K^{xx} + K^{yy} - 2K^{xy})_{gg'}}
              {\sum_{g \ne g'} w_g w_{g'} n_g n_{g'}}

    Parameters
    ----------
    x, y : the two clouds, row i of both from one token.
    groups : prompt of each row.
    kernel : k, from :func:`gaussian_kernel`, or :func:`distance_kernel`.
    draws : B resamples; w_g counts how often prompt g was drawn, K_{gg'} sums k over two prompts.
    generator : draws the prompts.

    Raises
    ------
    InvalidInputError
        If shapes do not match, a number is not finite, or there are fewer than two prompts.

    Notes
    -----
    O(n²·r) once and O(G²) per resample; G is the number of prompts. A resample that draws one
    prompt only has no pair and is NaN. The bandwidth stays that of the caller.

    Examples
    --------
    >>> x = torch.arange(6.0)[:, None]
    >>> g = torch.arange(6) // 2
    >>> found = discrepancy(x, x, g, kernel=distance_kernel, generator=torch.Generator())
    >>> found.value, len(found.draws)
    (0.0, 200)
    """
    _clouds(x, y, groups)
    sums, sizes = _prompt_sums(x, y, kernel, groups)
    G = len(sizes)
    drawn = torch.randint(G, (draws, G), generator=generator)
    w = torch.zeros(draws, G, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(draws, G, dtype=torch.float64)
    )
    w = torch.cat([torch.ones(1, G, dtype=torch.float64), w]).to(sums)
    pairs = torch.outer(sizes, sizes).fill_diagonal_(0.0)
    found = ((w @ sums) * w).sum(1) / ((w @ pairs) * w).sum(1)
    return Discrepancy(value=found[0].item(), draws=found[1:])


def ks_distance(x: Float[Tensor, "n r"], y: Float[Tensor, "m r"]) -> Float64[Tensor, "r"]:
    r"""Kolmogorov–Smirnov distance of each coordinate.

    .. math:: \sup_s |F_x(s) - F_y(s)|

    Parameters
    ----------
    x, y : the two clouds.

    Returns
    -------
    One distance per coordinate; their maximum is the number of source 000.

    Raises
    ------
    InvalidInputError
        If shapes do not match or a number is not finite.

    Notes
    -----
    O(r·(n + m) log(n + m)); ties are handled. Biased upwards by about √(1/n + 1/m), and the maximum
    over coordinates by more.

    Examples
    --------
    >>> ks_distance(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [1.5]]))
    tensor([0.5000], dtype=torch.float64)
    """
    _clouds(x, y, None)
    a, b = (c.mT.contiguous().sort(-1).values for c in (x, y.to(x)))
    both = torch.cat([a, b], 1)
    F, H = (torch.searchsorted(c, both, right=True).double() / c.shape[1] for c in (a, b))
    return (F - H).abs().amax(1)


def ks_draws(
    x: Float[Tensor, "n r"],
    y: Float[Tensor, "n r"],
    groups: Int64[Tensor, "n"],
    *,
    draws: int = 200,
    generator: torch.Generator,
) -> Float64[Tensor, "B r"]:
    r"""Kolmogorov–Smirnov distances of paired clouds, resampled over prompts.

    .. math:: \sup_s |F_x^{(w)}(s) - F_y^{(w)}(s)|, \qquad
              F^{(w)} \propto \sum_g w_g \sum_{i \in g} 1[x_i \le s]

    Parameters
    ----------
    x, y : the two clouds, row i of both from one token.
    groups : prompt of each row; all rows of a prompt are drawn together.
    draws : B.
    generator : draws the prompts.

    Raises
    ------
    InvalidInputError
        If shapes do not match, or a number is not finite.

    Notes
    -----
    The points are sorted once, and a resample is a cumulated sum of signed counts along them:
    O(r·n·(B + log n)). Bands are quantiles of the draws.

    Examples
    --------
    >>> x = torch.arange(6.0)[:, None]
    >>> ks_draws(x, x + 9, torch.arange(6), draws=2, generator=torch.Generator()).flatten()
    tensor([1., 1.], dtype=torch.float64)
    """
    _clouds(x, y, groups)
    G, place = _places(groups)
    drawn = torch.randint(G, (draws, G), generator=generator)
    often = torch.zeros(draws, G).scatter_add_(1, drawn, torch.ones(draws, G)).to(x.device)
    weights = often[:, place]  # whole numbers, exact in float32
    ordered, order = torch.cat([x, y.to(x)]).mT.sort(-1)
    rows, sign = order % len(x), torch.where(order < len(x), 1.0, -1.0)
    # Between equal points the cumulated sums are no values of the distribution functions.
    last = torch.ones_like(order, dtype=torch.bool)
    last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    found = []
    for part in torch.split(weights, max(1, _CHUNK // order.numel())):
        apart = (part[:, rows] * sign).cumsum(-1).abs()
        largest = torch.where(last, apart, 0.0).amax(-1).double()
        found.append(largest / part.sum(-1, keepdim=True).double())
    return torch.cat(found)


def _clouds(x: Tensor, y: Tensor, groups: Tensor | None) -> None:
    for cloud, name in ((x, "x"), (y, "y")):
        if as_reals(cloud, name).ndim != 2 or not len(cloud):
            raise InvalidInputError(
                f"{name} must have shape [rows, r] with at least one row; found "
                f"{tuple(cloud.shape)}."
            )
        refuse(~cloud.isfinite(), cloud, f"{name} must be finite", "Leave out that token.")
    if x.shape[1] != y.shape[1]:
        raise InvalidInputError(
            f"x and y must have the same coordinates; found {x.shape[1]} and {y.shape[1]}."
        )
    if groups is not None and not len(x) == len(y) == len(groups):
        raise InvalidInputError(
            "With groups, row i of x, y and groups must be one token; found "
            f"{len(x)}, {len(y)} and {len(groups)} rows."
        )


def _places(groups: Int64[Tensor, "n"]) -> tuple[int, Int64[Tensor, "n"]]:
    _, place = torch.unique(groups, return_inverse=True)
    return int(place.max()) + 1, place


def _unbiased(x: Tensor, y: Tensor, kernel: Kernel, groups: Tensor | None) -> float:
    if groups is not None:
        sums, sizes = _prompt_sums(x, y, kernel, groups)
        return (sums.sum() / (sizes.sum() ** 2 - sizes.square().sum())).item()
    n, m = len(x), len(y)
    if n < 2 or m < 2:
        raise InvalidInputError(f"x and y must have two rows each; found {n} and {m}.")
    x, y = x.double(), y.double()
    xx, yy = (_total(c, c, kernel) - _diagonal(c, kernel) for c in (x, y))
    return (xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * _total(x, y, kernel) / (n * m)).item()


def _prompt_sums(
    x: Tensor, y: Tensor, kernel: Kernel, groups: Int64[Tensor, "n"]
) -> tuple[Float64[Tensor, "G G"], Float64[Tensor, "G"]]:
    """Sums of k(x, x') + k(y, y') − 2k(x, y) over pairs of different prompts, and their sizes."""
    G, place = _places(groups)
    if G < 2:
        raise InvalidInputError(
            f"Pairs of different prompts need at least two prompts; found {G}. Leave groups out "
            "only if rows are independent."
        )
    x, y = x.double(), y.double()
    member = torch.nn.functional.one_hot(place, G).double()
    sums = torch.zeros(G, G, dtype=torch.float64, device=x.device)
    for rows in torch.split(torch.arange(len(x), device=x.device), max(1, _CHUNK // len(x))):
        k = kernel(x[rows], x) + kernel(y[rows], y) - kernel(x[rows], y) - kernel(y[rows], x)
        sums.addmm_(member[rows].mT, k @ member)
    return sums.fill_diagonal_(0.0), member.sum(0)


def _total(x: Tensor, y: Tensor, kernel: Kernel) -> Tensor:
    return torch.stack([kernel(p, y).sum() for p in torch.split(x, max(1, _CHUNK // len(y)))]).sum()


def _diagonal(x: Tensor, kernel: Kernel) -> Tensor:
    """Sum of k(x, x) over rows; both kernels here depend on x − y alone."""
    return kernel(x[:1], x[:1])[0, 0] * len(x)
