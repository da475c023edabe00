"""Arrays that try to break arithmetic: extreme, tied, constant, subnormal or not finite.

Every number is one that float32 holds, so that a function can be given the same numbers in float32
and in float64. Probabilities are multiples of a power of two, so that they sum to one in both.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draw"]

Array = NDArray[np.float64]
_CONTENTS = (
    "normal", "ties", "constant", "zeros", "large", "small", "wide", "subnormal", "spike", "broken",
)  # fmt: skip
_PROBABILITIES = ("dyadic", "uniform", "vertex", "sparse", "tiny", "broken")
_TINY = (1e-30, 1e-38, 1e-42)


class Draw:
    """Arguments of one call, decided by a seed.

    One draw of hypothesis an example instead of one for each choice: ten times as many examples in
    the same time. A failure names its arguments whole, so that there is nothing to shrink.

    Attributes
    ----------
    broken
        Whether an entry is not finite, or a row no probability.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.broken = False

    def one_of(self, *options: Any) -> Any:
        """One of a few values."""
        return options[self._random.integers(len(options))]

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self._random.integers(low, high + 1))

    def positive(self, low: float = 1e-30, high: float = 1e30) -> float:
        """A positive number that float32 holds, logarithmically uniform; sometimes an end."""
        ends = np.log10([low, high])
        exponent = self.one_of(None, *ends)
        value = 10 ** (self._random.uniform(*ends) if exponent is None else exponent)
        return float(np.clip(np.float32(value), np.float32(low), np.float32(high)))

    def array(self, *shape: int, mild: bool = False, unbroken: bool = False) -> Array:
        """Real numbers of one content.

        ``mild`` leaves out magnitudes beyond 1e±6 and NaN, ``unbroken`` NaN and infinity.
        """
        content = self.one_of(*(_CONTENTS[:4] if mild else _CONTENTS[: -1 if unbroken else None]))
        return _rounded(self._content(content, shape))

    def _content(self, content: str, shape: tuple[int, ...]) -> Array:
        normal = self._random.normal(size=shape)
        if content == "ties":
            return self._random.integers(-2, 3, size=shape).astype(float)
        if content == "constant":
            return np.full(shape, self.one_of(1.0, -3.0, 0.1))
        if content == "zeros":
            return np.zeros(shape)
        if content in ("large", "small"):
            scale = {"large": (1e3, 1e10, 1e30, 1e38), "small": (1e-3, 1e-10, 1e-30, 1e-38)}
            return np.clip(normal, -3, 3) * self.one_of(*scale[content])
        if content == "wide":
            return np.sign(normal) * 10 ** self._random.uniform(-30, 30, size=shape)
        if content == "subnormal":
            return normal * 1e-42
        if content == "broken":
            self.broken = True
            spoiled = normal.copy().reshape(-1)
            spoiled[self._random.integers(0, max(spoiled.size, 1), size=1)] = self.one_of(
                np.nan, np.inf, -np.inf
            )
            return spoiled.reshape(shape)
        if content == "spike":
            spiked = normal.copy().reshape(-1)
            spiked[self._random.integers(0, max(spiked.size, 1), size=1)] = self.one_of(
                1e5, 1e20, -1e37
            )
            return spiked.reshape(shape)
        return normal

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        """Normal numbers of one size, which differ from each other."""
        return _rounded(self._random.normal(size=shape) * scale)

    def nonnegative(self, *shape: int, mild: bool = False) -> Array:
        """Numbers of one content without their signs."""
        return np.abs(self.array(*shape, mild=mild))

    def probabilities(self, *shape: int, unbroken: bool = False) -> Array:
        """Rows that sum to one in float32 and float64 alike."""
        content = self.one_of(*_PROBABILITIES[: -1 if unbroken else None])
        rows = np.zeros((int(np.prod(shape[:-1], dtype=int)), shape[-1]))
        for row in rows:
            row[:] = self._row(content, shape[-1])
        return _rounded(rows.reshape(shape))

    def _row(self, content: str, n: int) -> Array:
        if content == "vertex" or n == 1:
            return np.eye(n)[self._random.integers(n)]
        if content == "uniform":
            counts = np.full(n, 2**12 // n)
            counts[0] += 2**12 - counts.sum()
            return counts / 2**12
        alpha = 0.1 if content == "sparse" else 1.0
        counts = self._random.multinomial(2**12, self._random.dirichlet(np.full(n, alpha)))
        row = counts / 2**12
        if content == "tiny":
            row = np.eye(n)[self._random.integers(n)]
            row[row == 0] = self.one_of(*_TINY)
        if content == "broken":
            self.broken = True
            row[self._random.integers(n)] += self.one_of(np.nan, np.inf, -1.0, 0.1)
        return row

    def positive_rows(self, *shape: int) -> Array:
        """Rows that sum to one, without a zero."""
        rows = self.probabilities(*shape, unbroken=True)
        n = shape[-1]
        power = 2.0 ** np.ceil(np.log2(4 * n))
        filled = rows * 0.5 + 1 / power
        filled[..., 0] += 1 - filled.sum(-1)
        return _rounded(filled)

    def covariance(self, d: int, *, batch: tuple[int, ...] = ()) -> Array:
        """Symmetric, positive semidefinite; sometimes singular, scaled or broken."""
        content = self.one_of("full", "diagonal", "identity", "singular", "scaled", "broken")
        half = self._random.integers(-3, 4, size=(*batch, d, d)).astype(float)
        if content == "singular":
            half[..., 0] = 0
        matrix = half @ np.swapaxes(half, -1, -2) + (content == "full") * np.eye(d)
        if content == "diagonal":
            matrix = np.eye(d) * 2.0 ** self._random.integers(-8, 9, size=(*batch, 1, d))
        if content == "identity":
            matrix = np.broadcast_to(np.eye(d), (*batch, d, d)).copy()
        if content == "scaled":
            matrix = (matrix + np.eye(d)) * 2.0 ** self.one_of(-100, 60, 100)
        if content == "broken":
            self.broken = True
            matrix[..., 0, 0] = self.one_of(np.nan, np.inf, -1.0)
        return _rounded(matrix)

    def groups(self, n: int, count: int) -> NDArray[np.int64]:
        """Group of each row, all of them present."""
        return np.arange(n, dtype=np.int64) % count


def _rounded(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(np.float64)
