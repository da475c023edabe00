"""Extreme eigenvalues of a symmetric operator that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

__all__ = ["Extremes", "RitzValue", "extreme_eigenvalues"]

Product = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class RitzValue(NamedTuple):
    """An approximate eigenvalue; an exact one lies within ``residual`` of it."""

    value: float
    residual: float


class Extremes(NamedTuple):
    """Least and largest eigenvalue as far as they are known, and the products taken.

    The least is at most too large and the largest at most too small.
    """

    least: RitzValue
    largest: RitzValue
    products: int


def extreme_eigenvalues(product: Product, size: int, most: int, tolerance: float) -> Extremes:
    """Both ends of a spectrum by Lanczos without restarts, orthogonalised twice.

    Parameters
    ----------
    product
        The operator, symmetric, on vectors of float64.
    size
        Length of the vectors.
    most
        Most products; as many vectors are held.
    tolerance
        Residual, relative to the larger end, at which both ends are taken for settled.
    """
    most = min(most, size)
    basis = np.empty((most, size))
    start = np.random.default_rng(0).standard_normal(size)
    basis[0] = start / np.linalg.norm(start)
    T = np.zeros((most, most))
    for m in range(1, most + 1):
        w = product(basis[m - 1])
        for _ in range(2):
            overlap = basis[:m] @ w
            w = w - overlap @ basis[:m]
            T[m - 1, m - 1] += overlap[m - 1]
        beta = float(np.linalg.norm(w))
        ends = _ends(T[:m, :m], beta)
        scale = max(abs(ends[0].value), abs(ends[1].value))
        settled = max(ends[0].residual, ends[1].residual) <= tolerance * scale
        if m == most or settled or beta <= 1e-14 * scale:
            return Extremes(*ends, m)
        T[m, m - 1] = T[m - 1, m] = beta
        basis[m] = w / beta
    raise AssertionError("unreachable")


def _ends(T: Float[NDArray[np.float64], "m m"], beta: float) -> tuple[RitzValue, RitzValue]:
    values, vectors = np.linalg.eigh(T)
    left = beta * np.abs(vectors[-1])
    return RitzValue(float(values[0]), float(left[0])), RitzValue(
        float(values[-1]), float(left[-1])
    )
