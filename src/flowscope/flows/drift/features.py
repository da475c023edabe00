r"""Features of a drift: the light map of source 000 §7 and the richer one of its O.1.

.. math:: \phi(t, y) = \big[1,\; y,\; y^{\odot 2},\; \mathrm{LayerNorm}(y),\; t,\; t^2\big], \qquad
          \phi_{\mathrm{rich}} = \big[\phi,\; (y_i y_j)_{i<j\le q},\; c\big],

each column but the first brought to mean zero and variance one on the training pairs. A column that
is constant there carries no information and is dropped, by name. The columns of LayerNorm(y) sum to
zero, so φ is never of full column rank: fits need a ridge or early stopping, and have one.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.samples import DriftSample
from flowscope.simplex.probability import as_reals

__all__ = ["FeatureMap", "feature_map"]

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
    if y.ndim == 0 or y.shape[-1] != found.width:
        raise InvalidInputError(
            f"y must have {found.width} coordinates on its last axis, as in training; found shape "
            f"{tuple(y.shape)}."
        )
    when = torch.as_tensor(t, dtype=y.dtype, device=y.device).expand(y.shape[:-1])[..., None]
    centred = y - y.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + found.floor).sqrt()
    i, j = torch.triu_indices(found.bilinear, found.bilinear, 1, device=y.device)
    parts = [y, y.square(), centred / spread, when, when.square(), y[..., i] * y[..., j]]
    if found.context_width:
        if context is None or context.shape != (*y.shape[:-1], found.context_width):
            raise InvalidInputError(
                f"This drift was fitted with {found.context_width} context columns; found "
                f"{None if context is None else tuple(context.shape)} beside y of shape "
                f"{tuple(y.shape)}. Pass one row per state, or use carried along an ODE."
            )
        parts.append(context.to(y))
    return torch.cat(parts, -1)


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
