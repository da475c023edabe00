r"""Features of a drift: the light map of source 000 §7 and the richer one of its O.1.

.. math:: \phi(t, y) = \big[1,\; y,\; y^{\odot 2},\; \mathrm{LayerNorm}(y),\; t,\; t^2\big], \qquad
          \phi_{\mathrm{rich}} = \big[\phi,\; (y_i y_j)_{i<j\le q},\; c\big],

each column but the first brought to mean zero and variance one on the training pairs. A column that
is constant there carries no information and is dropped, by name. The columns of LayerNorm(y) sum to
zero, so φ is never of full column rank: fits need a ridge or early stopping, and have one.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.samples import DriftSample
from flowscope.simplex.probability import as_reals

__all__ = ["FeatureMap", "FeatureProduct", "feature_map"]

# LayerNorm adds this share of the mean variance to a variance, so that it scales with y.
_FLOOR = 1e-5
# Rows are turned into features this many numbers at a time.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureMap:
    """Standardised features of (t, y, context); see :func:`feature_map`.

    Attributes
    ----------
    names : the columns kept, "1" first.
    dropped : the columns that were constant on the training pairs.
    width, context_width : how many coordinates and context columns are expected.
    bilinear : q; products of the leading q coordinates are taken.
    kept, mean, scale : place, mean and standard deviation of each kept column but the first.
    floor : what LayerNorm adds to the variance over coordinates.
    """

    names: tuple[str, ...]
    dropped: tuple[str, ...]
    width: int
    context_width: int
    bilinear: int
    kept: Int64[Tensor, "F"]
    mean: Float[Tensor, "F"]
    scale: Float[Tensor, "F"]
    floor: float

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float[Tensor, "*N F_plus_1"]:
        """Features at y and t, in the dtype of y; the first column is one."""
        raw = _columns(self, t, as_reals(y, "y"), context)
        kept = raw[..., self.kept.to(raw.device)]
        return torch.cat(
            [torch.ones_like(raw[..., :1]), (kept - self.mean.to(raw)) / self.scale.to(raw)], -1
        )

    def __len__(self) -> int:
        return len(self.names)

    def product(self, weights: Float[Tensor, "F_plus_1 k"]) -> "FeatureProduct":
        """The features times weights as a function of t and y, without forming the features."""
        W = weights.double()
        slopes = W.new_zeros(self._raw_width, W.shape[1])
        slopes[self.kept.to(W.device)] = W[1:] / self.scale.to(W)[:, None]
        r, products = self.width, self.bilinear * (self.bilinear - 1) // 2
        sizes = [r, r, r, 2, products, self.context_width]
        plain, squares, norms, time, pairs, extra = torch.split(slopes, sizes)
        mean = slopes.new_full((r, 1), 1 / r)
        return FeatureProduct(
            of=self,
            constant=W[0] - (self.mean.to(W) / self.scale.to(W)) @ W[1:],
            linear=torch.cat([plain, norms - norms.mean(0), mean], 1),
            squares=torch.cat([squares, mean], 1),
            time=time,
            pairs=pairs,
            extra=extra,
        )

    @property
    def _raw_width(self) -> int:
        return 3 * self.width + 2 + self.bilinear * (self.bilinear - 1) // 2 + self.context_width


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureProduct:
    r"""φ(t, y)ᵀW, arranged by what is known of φ; see :meth:`FeatureMap.product`.

    .. math:: \phi(t, y)^\top W = c + y^\top A + (y^{\odot 2})^\top B
              + \frac{(y - \bar y)^\top C}{s(y)} + t\,a + t^2\,b + \dots

    Two products of the width of y take the place of one of the width of φ, and no column of φ is
    written. The mean ȳ and the mean square, of which s is made, are a column of each.
    """

    of: FeatureMap
    constant: Float64[Tensor, "k"]
    linear: Float64[Tensor, "r two_k_plus_1"]
    squares: Float64[Tensor, "r k_plus_1"]
    time: Float64[Tensor, "2 k"]
    pairs: Float64[Tensor, "p k"]
    extra: Float64[Tensor, "c k"]

    def __call__(
        self,
        t: Float[Tensor, "*N"] | float,
        y: Float[Tensor, "*N r"],
        context: Float[Tensor, "*N c"] | None = None,
    ) -> Float64[Tensor, "*N k"]:
        """The product at y and t, in float64."""
        check_columns(self.of, y, context)
        k, x = len(self.constant), y.double()
        once, twice = x @ self.linear, (x * x) @ self.squares
        mean, size = once[..., -1:], twice[..., -1:]
        spread = ((size - mean * mean).clamp_min(0) + self.of.floor).sqrt()
        found = torch.addcdiv(once[..., :k], once[..., k : 2 * k], spread) + twice[..., :k]
        when = torch.as_tensor(t, dtype=torch.float64)
        if when.ndim:
            when = when.to(x.device)[..., None]
        found = found + (self.constant + when * self.time[0] + when * when * self.time[1])
        if self.of.bilinear > 1:
            i, j = torch.triu_indices(self.of.bilinear, self.of.bilinear, 1, device=x.device)
            found = found + (x[..., i] * x[..., j]) @ self.pairs
        if context is not None and self.of.context_width:
            found = found + context.to(x) @ self.extra
        return found


def feature_map(sample: DriftSample, *, rich: bool = False, bilinear: int = 8) -> FeatureMap:
    r"""Feature map standardised on training pairs.

    .. math:: \phi_j(t, y) = \frac{f_j(t, y) - \operatorname{mean} f_j}{\operatorname{sd} f_j},
              \qquad f = \big[y, y^{\odot2}, \tfrac{y - \bar y}{\sqrt{\operatorname{var} y +
              \epsilon}}, t, t^2\big]

    Parameters
    ----------
    sample : training pairs.
    rich : also take the products y_i y_j, i < j ≤ q, and the context of the sample.
    bilinear : q of those products; the squares are there anyway.

    Raises
    ------
    InvalidInputError
        If every column is constant.

    Notes
    -----
    O(N·F) in float64, in chunks. Source 000 §7 and O.1; ours are the standardisation and ε, which
    is 1e-5 of the mean variance over coordinates, so that the map does not depend on the unit of
    y. Without ``rich`` a context is not looked at.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> paths = torch.tensor([[[0.0, 1.0], [1.0, 1.0]], [[3.0, 1.0], [3.0, 2.0]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))
    >>> found = feature_map(sample)
    >>> found.names, found.dropped
    (('1', 'y0', 'y0²', 'LN0', 'LN1'), ('y1', 'y1²', 't', 't²'))
    """
    q = min(bilinear, sample.width) if rich else 0
    extra = sample.context_names if rich else ()
    names = _names(sample.width, q, extra)
    floor = _FLOOR * sample.states.double().var(1, correction=0).mean().item()
    F = len(names)
    everything = FeatureMap(
        names=("1", *names),
        dropped=(),
        width=sample.width,
        context_width=len(extra),
        bilinear=q,
        kept=torch.arange(F),
        mean=torch.zeros(F, dtype=torch.float64),
        scale=torch.ones(F, dtype=torch.float64),
        floor=floor or 1.0,  # every row is constant over coordinates, and its LayerNorm zero
    )
    mean, scale, live = _moments(everything, sample)
    if not bool(live.any()):
        raise InvalidInputError(
            f"At least one of {F} features must vary over the {len(sample)} training pairs; all "
            "are constant. Use mean_drift."
        )
    where = live.tolist()
    return FeatureMap(
        names=("1", *(n for n, keep in zip(names, where, strict=True) if keep)),
        dropped=tuple(n for n, keep in zip(names, where, strict=True) if not keep),
        width=sample.width,
        context_width=len(extra),
        bilinear=q,
        kept=live.nonzero()[:, 0],
        mean=mean[live],
        scale=scale[live],
        floor=everything.floor,
    )


def _names(r: int, q: int, context: tuple[str, ...]) -> list[str]:
    squares, norms = [f"y{i}²" for i in range(r)], [f"LN{i}" for i in range(r)]
    products = [f"y{i}·y{j}" for i in range(q) for j in range(i + 1, q)]
    return [*(f"y{i}" for i in range(r)), *squares, *norms, "t", "t²", *products, *context]


def _columns(
    found: FeatureMap, t: Tensor | float, y: Float[Tensor, "*N r"], context: Tensor | None
) -> Float[Tensor, "*N F"]:
    """Every raw column, before standardising and dropping."""
    check_columns(found, y, context)
    when = torch.as_tensor(t, dtype=y.dtype, device=y.device).expand(y.shape[:-1])[..., None]
    centred = y - y.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + found.floor).sqrt()
    i, j = torch.triu_indices(found.bilinear, found.bilinear, 1, device=y.device)
    parts = [y, y.square(), centred / spread, when, when.square(), y[..., i] * y[..., j]]
    if context is not None and found.context_width:
        parts.append(context.to(y))
    return torch.cat(parts, -1)


def check_columns(found: FeatureMap, y: Float[Tensor, "*N r"], context: Tensor | None) -> None:
    """Raise unless states and context have the columns of the training pairs."""
    if y.ndim == 0 or y.shape[-1] != found.width:
        raise InvalidInputError(
            f"y must have {found.width} coordinates on its last axis, as in training; found shape "
            f"{tuple(y.shape)}."
        )
    wanted = (*y.shape[:-1], found.context_width)
    if found.context_width and (context is None or context.shape != wanted):
        raise InvalidInputError(
            f"This drift was fitted with {found.context_width} context columns; found "
            f"{None if context is None else tuple(context.shape)} beside y of shape "
            f"{tuple(y.shape)}. Pass one row per state, or use carried along an ODE."
        )


def _moments(found: FeatureMap, sample: DriftSample) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of every column, and which of them vary beyond rounding."""
    F, N = len(found) - 1, len(sample)
    rows = torch.split(torch.arange(N), max(1, _CHUNK // F))
    first = _raw(found, sample, torch.arange(min(N, 1)))[0]
    total, square, size = (first.new_zeros(F) for _ in range(3))
    for part in rows:
        raw = _raw(found, sample, part)
        size = torch.maximum(size, raw.abs().amax(0))
        total += (raw - first).sum(0)  # about the first row: nearly constant columns lose nothing
        square += (raw - first).square().sum(0)
    shift = total / N
    scale = (square / N - shift.square()).clamp_min(0).sqrt()
    return first + shift, scale, scale > 16 * torch.finfo(sample.states.dtype).eps * size


def _raw(found: FeatureMap, sample: DriftSample, rows: Tensor) -> Tensor:
    context = None if sample.context is None else sample.context[rows].double()
    return _columns(found, sample.times[rows].double(), sample.states[rows].double(), context)
