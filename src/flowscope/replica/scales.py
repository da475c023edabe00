r"""How far two images differ at large and at small scales (source 004, eqs 71–72).

$$
d_{\rm low} = \Vert P(x^A) - P(x^B)\Vert_2^2, \qquad
d_{\rm high} = \bigl\Vert (1 - UP)(x^A) - (1 - UP)(x^B)\bigr\Vert_2^2,
$$

$P$ adaptive average pooling to a low resolution, $U$ bilinear upsampling back (pixel centres, not
corners, in register). Both are linear, so they act on the difference $x^A - x^B$, once. The two are
sums over grids of different size: compare them with their own baseline only,

$$
\text{agreement} = 1 - d/\bar d_{\rm independent},
$$

0 for independent images of the same law, 1 for identical ones, negative for pairs that differ more
than independent ones do.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import within_range

__all__ = ["CoarseFine", "agreement", "coarse_fine", "independent_baseline"]


class CoarseFine(NamedTuple):
    r"""Squared distances at both scales: ``low`` is $d_{\rm low}$, ``high`` $d_{\rm high}$."""

    low: Float[Tensor, "*pairs"]
    high: Float[Tensor, "*pairs"]


def coarse_fine(
    images_a: Float[Tensor, "pairs C H W"], images_b: Float[Tensor, "pairs C H W"], size: int
) -> CoarseFine:
    r"""Distance of the images of each pair, coarse and fine.

    Parameters
    ----------
    images_a, images_b
        $x^A$ and $x^B$, any floating type and device.
    size
        Side of the low resolution; smaller than the images.

    Raises
    ------
    InvalidInputError
        If the images are not of one shape [pairs, C, H, W], not finite, or the size does not fit.

    Notes
    -----
    At least float32 inside. A constant shift of all pixels is coarse only; a pattern that averages
    out in every cell is fine only.

    Examples
    --------
    >>> a = torch.zeros(1, 1, 4, 4)
    >>> coarse_fine(a, a + 0.5, 2)
    CoarseFine(low=tensor([1.]), high=tensor([0.]))
    """
    _check(images_a, images_b, size)
    sizes = (part.square().sum((1, 2, 3)) for part in _parts(images_a, images_b, size))
    return CoarseFine(*(within_range(size, "The distance of images") for size in sizes))


def independent_baseline(
    images_a: Float[Tensor, "pairs C H W"], images_b: Float[Tensor, "pairs C H W"], size: int
) -> CoarseFine:
    r"""Mean distances of images from different pairs: what independence would give.

    $$
    \bar d = \frac1{n(n-1)}\sum_{i\ne j}\Vert y^A_i - y^B_j\Vert^2
    $$

    Parameters
    ----------
    images_a, images_b, size
        As for `coarse_fine`; different pairs must have independent noise and the same condition.

    Raises
    ------
    InvalidInputError
        As `coarse_fine`, and with fewer than two pairs.

    Notes
    -----
    From sums over images, $O(n)$, not $O(n^2)$: with $y$ centred at the mean of all images,
    $\sum_{ij}\Vert y^A_i-y^B_j\Vert^2 = n\sum\Vert y^A\Vert^2 + n\sum\Vert y^B\Vert^2
    - 2\langle\sum y^A, \sum y^B\rangle$.

    Examples
    --------
    >>> a = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).expand(2, 1, 4, 4)
    >>> independent_baseline(a, a, 1).low  # same image in each pair, distance 1 between pairs
    tensor(1.)
    """
    _check(images_a, images_b, size)
    n = len(images_a)
    if n < 2:
        raise InvalidInputError(
            f"a baseline of independent images needs two pairs or more; found {n}."
        )
    # Centring changes no distance and keeps the squares from cancelling.
    wide = torch.promote_types(images_a.dtype, torch.float32)
    mean = (images_a.to(wide).mean(0) + images_b.to(wide).mean(0)) / 2
    sides = [_parts(images.to(wide), mean, size) for images in (images_a, images_b)]
    found = []
    for own, other in zip(*sides, strict=True):
        every = n * (own.square().sum() + other.square().sum())
        every = every - 2 * (own.sum(0) * other.sum(0)).sum()
        found.append((every - (own - other).square().sum()) / (n * (n - 1)))
    names = CoarseFine._fields
    return CoarseFine(
        *(within_range(x, f"The {n} baseline") for n, x in zip(names, found, strict=True))
    )


def agreement(distance: CoarseFine, baseline: CoarseFine) -> CoarseFine:
    r"""Suppression of the distances relative to independent images, $1 - d/\bar d$.

    Parameters
    ----------
    distance
        Of the pairs, from `coarse_fine`.
    baseline
        From `independent_baseline`, or `coarse_fine` of independent pairs, which are averaged.

    Raises
    ------
    InvalidInputError
        If a baseline is zero: independent images that do not differ tell nothing.

    Examples
    --------
    >>> pairs = CoarseFine(torch.tensor([0.0, 1.0]), torch.tensor([4.0, 8.0]))
    >>> agreement(pairs, CoarseFine(torch.tensor(2.0), torch.tensor(4.0)))
    CoarseFine(low=tensor([1.0000, 0.5000]), high=tensor([ 0., -1.]))
    """
    means = [part.mean() for part in baseline]
    for name, mean in zip(CoarseFine._fields, means, strict=True):
        if not bool(mean > 0):
            raise InvalidInputError(
                f"the {name} baseline must be positive; found {float(mean):.3g}. Independent "
                "images must differ at both scales: take other images or another size."
            )
    shares = (1 - d / mean for d, mean in zip(distance, means, strict=True))
    return CoarseFine(*(within_range(share, "The agreement") for share in shares))


def _parts(x: Tensor, y: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """P(x − y) and (1 − UP)(x − y)."""
    wide = torch.promote_types(x.dtype, torch.float32)
    difference = x.to(wide) - y.to(wide)
    low = adaptive_avg_pool2d(difference, size)
    shape = difference.shape[-2:]
    return low, difference - interpolate(low, shape, mode="bilinear", align_corners=False)


def _check(images_a: Tensor, images_b: Tensor, size: int) -> None:
    shape = tuple(images_a.shape)
    if images_a.ndim != 4 or shape != tuple(images_b.shape) or not images_a.numel():
        raise InvalidInputError(
            f"images must be of one shape [pairs, C, H, W]; found {shape} and "
            f"{tuple(images_b.shape)}."
        )
    if not (images_a.is_floating_point() and images_b.is_floating_point()):
        raise InvalidInputError(
            f"images must be floating point; found {images_a.dtype} and {images_b.dtype}. Divide "
            "bytes by 255."
        )
    if not 1 <= size < min(shape[-2:]):
        raise InvalidInputError(
            f"size must be at least 1 and smaller than the images, {shape[-2]}×{shape[-1]}; "
            f"got {size}."
        )
    for name, images in (("images_a", images_a), ("images_b", images_b)):
        if not bool(images.isfinite().all()):
            raise InvalidInputError(f"{name} must be finite; found NaN or infinity.")
