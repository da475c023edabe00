r"""What the name and the place of a token tell about its path, without any dynamics.

A network can move each token by a vector that depends only on which token it is and where it
stands: an untrained GPT-2 does, because its first state is the sum of a row for the token and a row
for the position, and the context hardly enters. A drift by nearest neighbours finds the same token
again and seems to know a flow. The lookup is the reference for that. With labels $a$ (say, token)
and $b$ (position), the path of a token is

.. math:: \hat y^k = \bar y^k + A^k_a + B^k_b + e^k, \qquad e^{k+1} = \rho_k\, e^k ,

where the effects $A$, $B$ are ridge means of the fitting paths (a sum over c tokens is divided by
c + κ, so that a label seen once is not believed), 0 for a label that was never seen, and the rest
$e$ grows or fades at one rate per layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse

__all__ = ["Lookup", "chosen_lookup", "label_means", "lookup_paths"]

_SWEEPS = 200
_CLOSE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Lookup:
    """Mean path, effects of labels and rates of the rest; see :func:`label_means`.

    Attributes
    ----------
    centre : mean path.
    labels, effects : of each column of labels, those that were seen (ascending) and their paths.
    rates : ρ of each layer.
    shrinkage : κ of each column of labels.
    """

    centre: Float[Tensor, "states r"]
    labels: tuple[Int64[Tensor, "seen"], ...]
    effects: tuple[Float[Tensor, "seen states r"], ...]
    rates: Float[Tensor, "steps"]
    shrinkage: tuple[float, ...]

    def means(self, labels: Int64[Tensor, "n columns"]) -> Float[Tensor, "n states r"]:
        """Mean path and effects of the labels of each token."""
        path = self.centre.expand(len(labels), -1, -1)
        for column, (seen, effect) in enumerate(zip(self.labels, self.effects, strict=True)):
            wanted = labels[:, column].contiguous()
            place = torch.searchsorted(seen, wanted).clamp(max=len(seen) - 1)
            path = path + torch.where((seen[place] == wanted)[:, None, None], effect[place], 0.0)
        return path


def label_means(
    y: Float[Tensor, "n states r"],
    labels: Int64[Tensor, "n columns"],
    shrinkage: Sequence[float],
    spare: Bool[Tensor, "n"] | None = None,
) -> Lookup:
    r"""Effects of labels on paths, with the rates of what they leave.

    .. math:: A_a = \frac{1}{c_a + \kappa} \sum_{i : a_i = a} (y_i - \bar y - B_{b_i}) , \qquad
              \rho_k = \frac{\sum_i e_i^{k+1} \cdot e_i^k}{\sum_i |e_i^k|^2}

    Parameters
    ----------
    y : coordinates of each token at every state.
    labels : one or more names per token.
    shrinkage : κ of each column of labels; infinity leaves the column out.
    spare : tokens that only give the rates, so that these are those of unseen tokens. Without it
        all tokens give both.

    Raises
    ------
    InvalidInputError
        If the shapes do not fit, or no token is left to fit.

    Notes
    -----
    The effects solve a ridge regression: directly for two columns, O(n·states·r) and the cube of
    the smaller number of labels; for more, or without shrinkage, the columns are swept in turn
    until they stand still.

    Examples
    --------
    >>> y = torch.tensor([[[0.0], [1.0]], [[2.0], [5.0]]])
    >>> lookup = label_means(y, torch.tensor([[7], [9]]), (0.0,))
    >>> lookup.means(torch.tensor([[9], [8]]))[:, :, 0]
    tensor([[2., 5.],
            [1., 3.]], dtype=torch.float64)
    """
    if y.ndim != 3 or labels.shape != (len(y), len(shrinkage)):
        raise InvalidInputError(
            f"labels must have one row per path of y, shape [n, states, r], and one column per "
            f"shrinkage; found {tuple(labels.shape)} beside {tuple(y.shape)} and {len(shrinkage)}."
        )
    refuse(~y.isfinite(), y, "y must be finite", "Leave out paths that are not.")
    fitting = torch.ones(len(y), dtype=torch.bool) if spare is None else ~spare
    if not fitting.any():
        raise InvalidInputError("a lookup needs at least one path to fit; all are spare.")
    rest = y[fitting].double()
    centre = rest.mean(0)
    rest = rest - centre
    seen, effects = _effects(rest, labels[fitting], shrinkage)
    still = Lookup(
        centre=centre,
        labels=seen,
        effects=effects,
        rates=torch.ones(y.shape[1] - 1, dtype=torch.float64),
        shrinkage=tuple(float(value) for value in shrinkage),
    )
    judged = fitting if spare is None or not spare.any() else spare
    return Lookup(
        centre=centre,
        labels=seen,
        effects=effects,
        rates=_rates(y[judged].double() - still.means(labels[judged])),
        shrinkage=still.shrinkage,
    )


def chosen_lookup(
    y: Float[Tensor, "n states r"],
    labels: Int64[Tensor, "n columns"],
    spare: Bool[Tensor, "n"],
    candidates: Sequence[float] = (0.5, 2.0, 8.0, float("inf")),
) -> Lookup:
    """The lookup whose shrinkages forecast spare paths best, from their first state onward.

    Parameters
    ----------
    y, labels : as :func:`label_means` takes them.
    spare : tokens that choose, and that give the rates; the others give the effects.
    candidates : shrinkages; every combination over the columns of labels is tried.

    Examples
    --------
    >>> y = torch.tensor([[[0.0], [1.0]], [[0.0], [3.0]], [[0.0], [1.0]], [[0.0], [3.0]]])
    >>> labels = torch.tensor([[0], [1], [0], [1]])
    >>> spare = torch.tensor([False, False, True, True])
    >>> chosen_lookup(y, labels, spare).shrinkage
    (0.5,)
    """
    best: tuple[float, Lookup] | None = None
    for shrinkage in product(candidates, repeat=labels.shape[1]):
        lookup = label_means(y, labels, shrinkage, spare)
        onward = lookup_paths(lookup, y[spare], labels[spare])[1]
        error = float((onward - y[spare, 1:].double()).square().sum())
        if best is None or error < best[0]:
            best = error, lookup
    if best is None:
        raise InvalidInputError("candidates must hold at least one shrinkage; there is none.")
    return best[1]


def lookup_paths(
    lookup: Lookup, y: Float[Tensor, "n states r"], labels: Int64[Tensor, "n columns"]
) -> tuple[Float[Tensor, "n steps r"], Float[Tensor, "n steps r"]]:
    """Forecasts of a lookup, one layer ahead and from the first state onward.

    Parameters
    ----------
    lookup : fitted on other prompts.
    y : true coordinates; onward only the first state of each path is used.
    labels : of each token.

    Examples
    --------
    >>> y = torch.tensor([[[0.0], [1.0]], [[2.0], [5.0]]])
    >>> lookup = label_means(y, torch.tensor([[7], [9]]), (0.0,))
    >>> lookup_paths(lookup, torch.zeros(1, 2, 1), torch.tensor([[9]]))[1]
    tensor([[[5.]]], dtype=torch.float64)
    """
    means = lookup.means(labels)
    rest = y.double() - means
    near = means[:, 1:] + lookup.rates[:, None] * rest[:, :-1]
    onward = means[:, 1:] + lookup.rates.cumprod(0)[:, None] * rest[:, :1]
    return near, onward


def _effects(
    rest: Tensor, labels: Tensor, shrinkage: Sequence[float]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Ridge means of every column, swept in turn."""
    seen, rows, sizes, effects = [], [], [], []
    for column, kappa in enumerate(shrinkage):
        names, place = torch.unique(labels[:, column], return_inverse=True)
        seen.append(names)
        rows.append(place)
        sizes.append((place.bincount().double() + kappa)[:, None, None])
        effects.append(rest.new_zeros(len(names), *rest.shape[1:]))
    finite = [column for column, kappa in enumerate(shrinkage) if math.isfinite(kappa)]
    if len(finite) <= 2 and all(kappa > 0 for kappa in shrinkage):
        solved = _solved(rest, [rows[column] for column in finite], [sizes[c] for c in finite])
        for column, found in zip(finite, solved, strict=True):
            effects[column] = found
        return tuple(seen), tuple(effects)
    left = rest.clone()
    for _ in range(_SWEEPS):
        change = 0.0
        for column, place in enumerate(rows):
            left = left + effects[column][place]
            sums = torch.zeros_like(effects[column]).index_add_(0, place, left)
            fresh = sums / sizes[column]
            change = max(change, float((fresh - effects[column]).abs().max()))
            effects[column] = fresh
            left = left - fresh[place]
        if change <= _CLOSE * float(rest.abs().max()):
            break
    return tuple(seen), tuple(effects)


def _solved(rest: Tensor, rows: Sequence[Tensor], sizes: Sequence[Tensor]) -> list[Tensor]:
    """Ridge means of at most two columns, by the normal equations without the larger column."""
    flat = rest.flatten(1)
    sums = [flat.new_zeros(len(n), flat.shape[1]) for n in sizes]
    for into, place in zip(sums, rows, strict=True):
        into.index_add_(0, place, flat)
    weights = [n[:, 0] for n in sizes]
    if len(rows) == 2:
        large, small = sorted((0, 1), key=lambda column: -len(sizes[column]))
        both = flat.new_zeros(len(sizes[large]), len(sizes[small]))
        both.index_put_((rows[large], rows[small]), flat.new_ones(len(flat)), accumulate=True)
        share = both / weights[large]
        left = torch.diag(weights[small][:, 0]) - both.mT @ share
        found = torch.linalg.solve(left, sums[small] - share.mT @ sums[large])
        sums[large] = (sums[large] - both @ found) / weights[large]
        sums[small] = found
    else:
        sums = [total / weight for total, weight in zip(sums, weights, strict=True)]
    return [total.reshape(-1, *rest.shape[1:]) for total in sums]


def _rates(rest: Float[Tensor, "n states r"]) -> Float[Tensor, "steps"]:
    """Rate of each layer at which the rest grows or fades; 0 where nothing is left."""
    size = rest[:, :-1].square().sum((0, 2))
    along = (rest[:, :-1] * rest[:, 1:]).sum((0, 2))
    return torch.where(size > 0, along / size, 0.0)
