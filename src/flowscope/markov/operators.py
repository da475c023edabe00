r"""Kernels of scores applied to blocks of vectors, tile by tile.

With raw scores $W$, their diagonal $w$ and the symmetric divergence $D_{ij} = w_i + w_j - W_{ij} -
W_{ji}$,

$$
K_{ij} = e^{-\beta D_{ij}}, \qquad
H_{ij} = K_{ij}\,e^{i\theta_{ij}}, \quad \theta_{ij} = 2\pi q\,(W_{ij} - W_{ji}), \qquad
g_i = \sum_j K_{ij} .
$$

$K$ is symmetric and $H$ Hermitian: one tile serves its rows and its columns. $D$ can be negative
and $K$ can then leave the range of any float, so degrees are kept as logarithms and products are
taken with potentials $c$ inside the exponential,

$$
y_i = \sum_j e^{-\beta D_{ij} - c_i - c_j}\,e^{i\theta_{ij}}\,x_j ,
$$

where $c = \tfrac12\log g$ gives weights $\sqrt{P_{ij}P_{ji}} \le 1$ of the row-normalised kernel
$P$. Scores come as a matrix (`DenseScores`) or as queries and keys (`FactoredScores`, $W$ is never
held); memory beyond them and the block is a few tiles of $512^2$ numbers. A product with $m$
vectors costs $N^2(d + m)$ multiplications and $N^2/2$ exponentials.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.panels import Scratch, Tiles, rectangles
from flowscope.markov.scores import as_scores, as_strength
from flowscope.simplex.probability import as_reals, refuse

__all__ = [
    "DenseScores",
    "FactoredScores",
    "ScoreTiles",
    "apply_kernel",
    "as_charge",
    "log_degrees",
    "pair_phases",
    "refuse_loners",
]

_SIDE = 512

Block: TypeAlias = Float[Tensor, "N m"] | Complex[Tensor, "N m"]


class ScoreTiles(Protocol):
    """Scores of N tokens, known by rectangles of W and of its transpose."""

    @property
    def N(self) -> int:  # noqa: N802 (a symbol of the theory)
        """Number of tokens."""

    @property
    def dtype(self) -> torch.dtype:
        """Float32 or float64."""

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""

    @property
    def diagonal(self) -> Float[Tensor, "N"]:
        """$w_i = W_{ii}$."""

    def tile(self, rows: slice, columns: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """A rectangle of W and the same rectangle of its transpose."""

    def exponents(self, beta: float, offset: Float[Tensor, "N"]) -> Tiles:
        """Rectangles of β(W + Wᵀ) − o_i − o_j, each to be used up before the next is asked for."""

    def turns(self, charge: float) -> Tiles:
        """Rectangles of the phases 2πq(W − Wᵀ), likewise."""

    def to(self, dtype: torch.dtype) -> "ScoreTiles":
        """The same scores in another precision."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FactoredScores:
    r"""Scores $W_{ij} = q_i\cdot k_j$ of one head, given by queries and keys.

    Attributes
    ----------
    q, k
        Queries and keys of the same tokens.

    Raises
    ------
    InvalidInputError
        Unless both are finite matrices of one shape with at least two tokens.

    Examples
    --------
    >>> scores = FactoredScores(q=torch.eye(3), k=torch.ones(3, 3))
    >>> scores.N, scores.diagonal
    (3, tensor([1., 1., 1.]))
    """

    q: Float[Tensor, "N d"]
    k: Float[Tensor, "N d"]

    def __post_init__(self) -> None:
        q, k = as_reals(self.q, "queries"), as_reals(self.k, "keys")
        if q.ndim != 2 or q.shape != k.shape or q.shape[0] < 2:
            raise InvalidInputError(
                "queries and keys must be matrices of one shape, tokens by dimensions, with at "
                f"least two tokens; found {tuple(q.shape)} and {tuple(k.shape)}. Pass one head at "
                "a time, and repeat shared key heads."
            )
        for x, name in ((q, "queries"), (k, "keys")):
            refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
        dtype = torch.promote_types(q.dtype, k.dtype)
        object.__setattr__(self, "q", q.to(dtype))
        object.__setattr__(self, "k", k.to(dtype))

    @property
    def N(self) -> int:  # noqa: N802
        """Number of tokens."""
        return self.q.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Float32 or float64."""
        return self.q.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.q.device

    @property
    def diagonal(self) -> Float[Tensor, "N"]:
        r"""$q_i \cdot k_i$."""
        return (self.q * self.k).sum(-1)

    def tile(self, rows: slice, columns: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """A rectangle of W and the same rectangle of its transpose."""
        return self.q[rows] @ self.k[columns].mT, self.k[rows] @ self.q[columns].mT

    def exponents(self, beta: float, offset: Float[Tensor, "N"]) -> Tiles:
        """Rectangles of β(W + Wᵀ) − o_i − o_j: one product of longer vectors."""
        o, one = offset[:, None], torch.ones_like(offset)[:, None]
        left = torch.cat([beta * self.q, beta * self.k, -o, -one], -1)
        return rectangles(left, torch.cat([self.k, self.q, one, o], -1))

    def turns(self, charge: float) -> Tiles:
        """Rectangles of the phases 2πq(W − Wᵀ), likewise."""
        left = 2 * math.pi * charge * torch.cat([self.q, self.k], -1)
        return rectangles(left, torch.cat([self.k, -self.q], -1))

    def to(self, dtype: torch.dtype) -> "FactoredScores":
        """The same scores in another precision."""
        return (
            self if dtype == self.dtype else FactoredScores(q=self.q.to(dtype), k=self.k.to(dtype))
        )

    def matrix(self) -> Float[Tensor, "N N"]:
        """W itself: N × N numbers, made when asked for."""
        return self.q @ self.k.mT


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseScores:
    r"""Scores of one head that are held as a matrix; $-\infty$ where there is no such pair.

    Attributes
    ----------
    W
        Raw scores, as `flowscope.markov.scores.as_scores` accepts them.

    Examples
    --------
    >>> scores = DenseScores(W=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> scores.tile(slice(0, 1))
    (tensor([[1., 2.]]), tensor([[1., 3.]]))
    """

    W: Float[Tensor, "N N"]

    def __post_init__(self) -> None:
        W = as_scores(self.W)
        if W.ndim != 2:
            raise InvalidInputError(
                f"DenseScores holds one head, tokens by tokens; found shape {tuple(W.shape)}. "
                "Take the heads one by one."
            )
        object.__setattr__(self, "W", W)

    @property
    def N(self) -> int:  # noqa: N802
        """Number of tokens."""
        return self.W.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Float32 or float64."""
        return self.W.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.W.device

    @property
    def diagonal(self) -> Float[Tensor, "N"]:
        """$W_{ii}$."""
        return self.W.diagonal()

    def tile(self, rows: slice, columns: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """A rectangle of W and the same rectangle of its transpose."""
        return self.W[rows, columns], self.W.mT[rows, columns]

    def exponents(self, beta: float, offset: Float[Tensor, "N"]) -> Tiles:
        """Rectangles of β(W + Wᵀ) − o_i − o_j."""

        def tile(rows: slice, columns: slice) -> Tensor:
            sums = torch.add(*self.tile(rows, columns))
            return sums.mul_(beta).sub_(offset[rows, None]).sub_(offset[columns])

        return tile

    def turns(self, charge: float) -> Tiles:
        """Rectangles of the phases 2πq(W − Wᵀ); zero where there is no pair."""
        return lambda rows, columns: pair_phases(*self.tile(rows, columns), charge)

    def to(self, dtype: torch.dtype) -> "DenseScores":
        """The same scores in another precision; this is a copy."""
        return self if dtype == self.dtype else DenseScores(W=self.W.to(dtype))


def as_charge(charge: float) -> float:
    """Read a finite charge."""
    found = float(charge)
    if not math.isfinite(found):
        raise InvalidInputError(
            f"charge must be a finite number; got {charge!r}. Zero is the diffusion map; one over "
            "the largest |W_ij − W_ji| turns no pair by more than one full circle."
        )
    return found


def pair_phases(W: Tensor, transpose: Tensor, charge: float) -> Tensor:
    r"""Phases $\theta = 2\pi q(W - W^\top)$ of a rectangle of both; zero where there is no pair."""
    theta = (W - transpose).mul_(2 * math.pi * charge)
    # A pair that is missing has −∞ on both sides, and a weight of zero.
    return theta.nan_to_num_(nan=0.0)


def refuse_loners(log_degree: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch N"]:
    """The same degrees, unless a token has none."""
    alone = log_degree.isneginf()
    if bool(alone.any()):
        raise InvalidInputError(
            "without loops every token needs a pair with another one; there is none at "
            f"{tuple(alone.nonzero()[0].tolist())}. Leave that token out, or keep the loops."
        )
    return log_degree


def log_degrees(
    scores: ScoreTiles, beta: float = 1.0, *, loops: bool = True, potentials: Tensor | None = None
) -> Float[Tensor, "N"]:
    r"""Logarithms of the degrees, $\log\sum_j e^{-\beta D_{ij} - c_i - c_j}$, tile by tile.

    Parameters
    ----------
    scores
        Scores of one head.
    beta
        β > 0.
    loops
        Whether $K_{ii}$ counts.
    potentials
        $c$; zero by default, which gives $\log g$.

    Raises
    ------
    InvalidInputError
        When β is not positive and finite, or a token has no pair (without loops).

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> log_degrees(FactoredScores(q=x, k=x)).exp()
    tensor([1.3679, 1.3679])
    """
    exponents = scores.exponents(_rate(beta), _offset(scores, beta, potentials))
    found = torch.full_like(scores.diagonal, -torch.inf)
    for rows in _spans(scores.N, _SIDE):
        for columns in _spans(scores.N, _SIDE):
            E = exponents(rows, columns)
            if rows == columns and not loops:
                E.fill_diagonal_(-torch.inf)
            found[rows] = torch.logaddexp(found[rows], E.logsumexp(-1))
    return refuse_loners(found)


def apply_kernel(
    scores: ScoreTiles,
    block: Block,
    beta: float = 1.0,
    *,
    potentials: Float[Tensor, "N"] | None = None,
    charge: float = 0.0,
    loops: bool = True,
) -> Block:
    r"""Product with a block of vectors, $\sum_j e^{-\beta D_{ij}-c_i-c_j+i\theta_{ij}} x_j$.

    Parameters
    ----------
    scores
        Scores of one head; the product is taken in the precision of the block.
    block
        Vectors $x$ as columns, real or complex; a charge makes the result complex.
    beta
        β > 0.
    potentials
        $c$; zero by default, which is $K$ or $H$ itself and overflows where $-\beta D$ is large.
    charge
        $q$ of the phases; 0 is $K$.
    loops
        Whether the diagonal counts.

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> apply_kernel(FactoredScores(q=x, k=x), torch.eye(2))
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]])
    """
    q, m = as_charge(charge), block.shape[-1]
    if block.ndim != 2 or block.shape[0] != scores.N:
        raise InvalidInputError(
            f"block must have a row for each of {scores.N} tokens; found shape "
            f"{tuple(block.shape)}. Put the vectors in columns."
        )
    real = block.real.dtype
    offset = _offset(scores, beta, potentials).to(real)
    x = torch.cat([block.real, block.imag], -1) if block.is_complex() else block
    if q and not block.is_complex():
        x = torch.cat([block, torch.zeros_like(block)], -1)
    turned = torch.cat([-x[:, m:], x[:, :m]], -1) if q else x
    y = torch.zeros(x.shape, dtype=real, device=x.device)
    tiles = scores.to(real)
    exponents, turns = tiles.exponents(_rate(beta), offset), tiles.turns(q) if q else None
    _accumulate((exponents, turns), loops, (x, turned), y)
    return torch.complex(y[:, :m], y[:, m:]) if q or block.is_complex() else y


def _accumulate(
    tiles: tuple[Tiles, Tiles | None], loops: bool, vectors: tuple[Tensor, Tensor], y: Tensor
) -> None:
    """Add the product to y; ``vectors`` are x and ix, with real and imaginary parts side by side.

    A tile above the diagonal acts on its columns, and its adjoint on its rows.
    """
    (exponents, turns), (x, ix), N = tiles, vectors, len(y)
    spare = Scratch()
    for rows in _spans(N, _SIDE):
        for columns in _spans(N, _SIDE, rows.start):
            K = exponents(rows, columns).exp_()
            on_diagonal = rows == columns
            if on_diagonal and not loops:
                K.fill_diagonal_(0.0)
            if turns is None:
                y[rows].addmm_(K, x[columns])
                if not on_diagonal:
                    y[columns].addmm_(K.mT, x[rows])
                continue
            theta = turns(rows, columns)
            C = torch.cos(theta, out=spare.like(theta)).mul_(K)
            S = theta.sin_().mul_(K)
            y[rows].addmm_(C, x[columns]).addmm_(S, ix[columns])
            if not on_diagonal:
                y[columns].addmm_(C.mT, x[rows]).addmm_(S.mT, ix[rows], alpha=-1)


def _offset(scores: ScoreTiles, beta: float, potentials: Tensor | None) -> Tensor:
    w = scores.diagonal * _rate(beta)
    return w if potentials is None else w + potentials.to(w)


def _rate(beta: float) -> float:
    return float(as_strength(beta, torch.zeros(2, 2, dtype=torch.float64)))


def _spans(N: int, height: int, start: int = 0) -> Iterator[slice]:
    for first in range(start, N, height):
        yield slice(first, min(first + height, N))
