r"""Modes of the difference between replicas, from one small Gram matrix (004 eqs 42–43, 74–76).

For $M$ pairs, $V_s\in\mathbb R^{M\times D}$ holds the differences $(H^A-H^B)/\sqrt2$ at step $s$, a
row per pair. The modes $r_k$ are fixed at $s=0$ and followed in time:

$$
C_0 = \tfrac1M V_0^\top V_0, \qquad C_0 r_k = \lambda^{(0)}_k r_k, \qquad
\lambda_k(s) = \frac{\Vert V_s r_k\Vert^2}{\Vert V_0 r_k\Vert^2} .
$$

$D$ runs into the hundred thousands, $M$ does not. With $u_k$ the eigenvectors of $V_0V_0^\top$, to
the eigenvalues $M\lambda^{(0)}_k$, the modes are $r_k = V_0^\top u_k/\sqrt{M\lambda^{(0)}_k}$, and
every product of a difference with a mode is a row of the stacked Gram matrix times $u_k$:

$$
\Gamma = \begin{pmatrix} V_0V_0^\top & V_0V_s^\top \\ V_sV_0^\top & V_sV_s^\top \end{pmatrix},
\qquad V_s r_k = \frac{V_sV_0^\top u_k}{\sqrt{M\lambda^{(0)}_k}} .
$$

So $\Gamma$, of size $2M\times2M$, is all that is kept of step $s$. A basis fitted to some pairs and
energies of other pairs are sub-blocks of it; so is an exchange of $V_0$ and $V_s$ within a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["ModeEnergies", "mode_energies", "stacked_gram"]

# So many numbers of a difference matrix are widened to float64 at a time.
_WIDENED = 2**22
_PIECE = 1024  # columns of a product that runs by itself
# Eigenvalues below this share of the largest are rounding: the Gram matrix is exact to 1e-13 or so.
_FLOOR = 1e-12

Array = NDArray[np.float64]


def stacked_gram(
    V0: Float[Tensor, "M D"], Vs: Float[Tensor, "M D"]
) -> Float64[Tensor, "two_M two_M"]:
    r"""Gram matrix of the rows of $V_0$ and $V_s$, one above the other.

    $$ \Gamma = \binom{V_0}{V_s}\binom{V_0}{V_s}^\top $$

    Parameters
    ----------
    V0, Vs
        Differences of the replicas at the first step and at step $s$, a row per pair; any floating
        type, any device.

    Raises
    ------
    InvalidInputError
        If the shapes differ or are no matrices, or a difference is not finite.

    Notes
    -----
    $O(M^2D)$. Columns are widened to float64 in panels, where products of single precision numbers
    are exact; half precision is multiplied in float32 and summed in float64. The result lies on the
    device of the input (on the CPU where a device has no float64).

    Examples
    --------
    >>> stacked_gram(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0]]))
    tensor([[5., 3.],
            [3., 9.]], dtype=torch.float64)
    """
    _check_pair(V0, Vs)
    return assembled_gram(wide_product(V0, V0), wide_product(Vs, V0), wide_product(Vs, Vs))


def wide_product(
    first: Float[Tensor, "M D"], second: Float[Tensor, "M D"]
) -> Float64[Tensor, "M M"]:
    """Products of the rows of two matrices, summed in float64.

    Nothing here waits for a device, so that a model can run on while it is made. A product of a few
    long rows is one short sum after another; it is cut into pieces of columns that run at once.
    Single and double precision is widened to float64 in panels. Half precision is multiplied in
    float32, where its products are exact, and a piece rounds by 1e-7 of its size: its numbers
    themselves are known to 4e-3 (bfloat16) or 5e-4 of theirs.
    """
    home = torch.device("cpu") if first.device.type == "mps" else first.device
    half = max(first.element_size(), second.element_size()) < 4
    wide = torch.float32 if half else torch.float64
    found = torch.zeros(len(first), len(second), dtype=torch.float64, device=home)
    width = first.shape[1] if half else max(1, _WIDENED // (2 * len(first)))
    parts = (torch.split(x, width, 1) for x in (first, second))
    with torch.no_grad():
        for left, right in zip(*parts, strict=True):
            one = left.to(home, wide)
            other = one if first is second else right.to(home, wide)
            whole = one.shape[1] // _PIECE * _PIECE
            rows, columns = (
                x[:, :whole].unflatten(1, (-1, _PIECE)).transpose(0, 1) for x in (one, other)
            )
            found += (rows @ columns.mT).sum(0, dtype=torch.float64)
            if whole < one.shape[1]:
                found += one[:, whole:] @ other[:, whole:].mT
    return found


def assembled_gram(
    then: Float64[Tensor, "M M"], crossed: Float64[Tensor, "M M"], now: Float64[Tensor, "M M"]
) -> Float64[Tensor, "two_M two_M"]:
    r"""$\Gamma$ from $V_0V_0^\top$, $V_sV_0^\top$ and $V_sV_s^\top$.

    Raises
    ------
    InvalidInputError
        If a difference was not finite.
    """
    gram = torch.cat([torch.cat([then, crossed.mT], 1), torch.cat([crossed, now], 1)])
    broken = (~gram.diagonal().isfinite()).nonzero()
    if len(broken):
        raise InvalidInputError(
            f"V0 and Vs must be finite; found NaN or infinity in pair {int(broken[0]) % len(then)}."
            " Look for overflow in the hidden states."
        )
    return (gram + gram.mT) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class ModeEnergies:
    r"""Energies of the modes of $V_0$, the largest eigenvalue first.

    Attributes
    ----------
    eigenvalues
        $\lambda^{(0)}_k$, of the pairs that the basis was fitted to.
    initial, current
        $\Vert V_0r_k\Vert^2/n$ and $\Vert V_sr_k\Vert^2/n$ over the $n$ pairs evaluated; NaN for a
        mode that is absent.
    present
        False for a mode that is only rounding: it has no direction.
    """

    eigenvalues: Float[NDArray[np.float64], "K"]
    initial: Float[NDArray[np.float64], "K"]
    current: Float[NDArray[np.float64], "K"]
    present: Bool[NDArray[np.bool_], "K"]

    @property
    def energies(self) -> Float[NDArray[np.float64], "K"]:
        r"""$\lambda_k(s)$, current over initial; NaN for a mode that is absent."""
        return self.current / self.initial

    @property
    def count(self) -> int:
        """How many modes are present."""
        return int(self.present.sum())


def mode_energies(
    gram: Float[Tensor, "two_M two_M"] | Float[NDArray[np.floating], "two_M two_M"],
    *,
    basis: Sequence[int] | NDArray[np.integer] | None = None,
    evaluated: Sequence[int] | NDArray[np.integer] | None = None,
    floor: float = _FLOOR,
) -> ModeEnergies:
    r"""Normalised energies of the fixed modes at step $s$ (eqs 75–76).

    $$
    \lambda_k(s) = \frac{\sum_{i\in J}(V_sr_k)_i^2}{\sum_{i\in J}(V_0r_k)_i^2}, \qquad
    r_k \text{ the modes of the pairs } I
    $$

    Parameters
    ----------
    gram
        $\Gamma$, from `stacked_gram`.
    basis
        $I$, the pairs whose $V_0$ makes the modes; all unless given.
    evaluated
        $J$, the pairs whose energies are measured; all unless given. $I = J$ is 004's choice and
        biased (E86): what is fitted to $V_0$ holds more of $V_0$ than of anything else.
    floor
        Modes whose eigenvalue, or whose initial energy, is below this share of the largest
        eigenvalue are absent.

    Raises
    ------
    InvalidInputError
        If gram is not a Gram matrix of pairs, or pairs are named that are not there.

    Notes
    -----
    One eigendecomposition of $|I|\times|I|$, float64.

    Examples
    --------
    >>> V0 = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> found = mode_energies(stacked_gram(V0, V0 @ torch.diag(torch.tensor([0.5, 3.0]))))
    >>> found.energies
    array([0.25, 9.  ])
    """
    G = checked_gram(gram)
    pairs = len(G) // 2
    fitted, measured = _named(basis, pairs, "basis"), _named(evaluated, pairs, "evaluated")
    values, now, then, present = projected(G, fitted, measured, measured + pairs, floor=floor)
    hidden = np.where(present, 1.0, np.nan)
    return ModeEnergies(
        eigenvalues=values / len(fitted),
        initial=then.mean(0) * hidden,
        current=now.mean(0) * hidden,
        present=present,
    )


def projected(
    G: Float[NDArray[np.float64], "rows rows"],
    basis: Int[NDArray[np.integer], "*draws m"],
    then: Int[NDArray[np.integer], "*draws n"],
    now: Int[NDArray[np.integer], "*draws n"],
    *,
    floor: float = _FLOOR,
) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Squared projections of rows on the modes of other rows, for many choices of rows at once.

    Rows of ``G`` are named by index: ``basis`` makes the modes, ``now`` and ``then`` are projected.
    Returns the eigenvalues ``[*draws, m]``, falling, the squares of ``now`` and of ``then``,
    ``[*draws, n, m]``, and which modes are present.
    """
    inner = G[basis[..., :, None], basis[..., None, :]]
    values, vectors = np.linalg.eigh(inner)
    values, vectors = values[..., ::-1], vectors[..., ::-1]
    largest = values[..., :1]
    present = values > np.maximum(floor * largest, 0.0)
    unit = vectors / np.sqrt(np.where(present, values, 1.0))[..., None, :]
    current = (G[now[..., :, None], basis[..., None, :]] @ unit) ** 2
    initial = (G[then[..., :, None], basis[..., None, :]] @ unit) ** 2
    present &= initial.sum(-2) > floor * largest
    return np.maximum(values, 0.0), current, initial, present


def checked_gram(gram: Tensor | NDArray[np.floating]) -> Float[NDArray[np.float64], "rows rows"]:
    """A Gram matrix as a float64 array, or a sentence on why it is none."""
    held = gram.detach().cpu().numpy() if isinstance(gram, Tensor) else gram
    G = np.asarray(held, dtype=np.float64)
    if G.ndim != 2 or G.shape[0] != G.shape[1] or len(G) % 2 or not len(G):
        raise InvalidInputError(
            f"gram must be [2M, 2M], M rows of V0 above M rows of Vs; found {G.shape}. "
            "Use stacked_gram(V0, Vs)."
        )
    if not np.isfinite(G).all():
        raise InvalidInputError("gram must be finite; found NaN or infinity. Use stacked_gram.")
    scale = np.abs(G).max()
    if np.abs(G - G.T).max() > 1e-9 * scale or G.diagonal().min() < 0:
        raise InvalidInputError(
            "gram must be symmetric with a diagonal of squares; found asymmetry "
            f"{np.abs(G - G.T).max():.3g} and a smallest diagonal entry {G.diagonal().min():.3g}. "
            "Use stacked_gram."
        )
    if not G.diagonal()[: len(G) // 2].any():
        raise InvalidInputError(
            "V0 is zero for every pair: the replicas start as one and have no modes. Take the "
            "first step at which they differ."
        )
    return G


def _named(
    rows: Sequence[int] | NDArray[np.integer] | None, pairs: int, name: str
) -> Int[NDArray[np.int64], "m"]:
    chosen = np.arange(pairs) if rows is None else np.asarray(rows, dtype=np.int64)
    if not chosen.size or chosen.ndim != 1 or chosen.min() < 0 or chosen.max() >= pairs:
        raise InvalidInputError(
            f"{name} must name pairs from 0 to {pairs - 1}, at least one; found {chosen.tolist()}."
        )
    return chosen


def _check_pair(V0: Tensor, Vs: Tensor) -> None:
    if V0.ndim != 2 or V0.shape != Vs.shape or not V0.numel():
        raise InvalidInputError(
            f"V0 and Vs must be of one shape [pairs, D]; found {tuple(V0.shape)} and "
            f"{tuple(Vs.shape)}. Flatten the hidden differences, a row per pair."
        )
    if not (V0.is_floating_point() and Vs.is_floating_point()):
        raise InvalidInputError(
            f"V0 and Vs must be floating point; found {V0.dtype} and {Vs.dtype}."
        )
    if V0.device != Vs.device:
        raise InvalidInputError(f"V0 lies on {V0.device} and Vs on {Vs.device}; move one of them.")
