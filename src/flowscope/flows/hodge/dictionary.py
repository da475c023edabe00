r"""Functions that fields and potentials are written in, so that no gradient is read as rotation.

.. math:: \Phi = \{z^\alpha : |\alpha| \le k\}, \qquad
          \Psi = \{z^\alpha : 1 \le |\alpha| \le k+1\}
          \cup \{z_i^p z_j^q : p + q = k + 2\} \cup \{\cos\omega_j z, \sin\omega_j z\} .

Each component of a rotation is written in the *regressors* Φ, the potential in Ψ, which is richer.
A field of Φ that is a gradient is the gradient of something in Ψ (degree k + 1), so polynomial
gradients have no rotation. For other gradients ∇θ what counts is the leak ⟨∇θ, f − P_Ψ f⟩ into a
field f of Φ: it vanishes when Ψ holds the gradient part of f, be θ what it may. Under a Gaussian
law that part is a polynomial of degree k + 1, and nothing leaks; under other laws it is not, hence
the further powers and the waves in Ψ. Waves among the regressors would do harm: the gradient part
of c·cos(ωz) is not in the span of waves, and a quartic potential in eight dimensions was read as
12 % rotation with them, as 0.02 % without.

So R is that of the rotation's projection on Φ: it may miss rough rotation, and does not invent any.

With time, z = (t, x): powers of t multiply low degrees of x, waves run through (t, x), and the
gradient is in x alone; functions of t alone are no potentials.
"""

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["Dictionary", "Waves", "assembled", "exponents", "lowered", "matched_dictionary"]

# Most regressors of a field, and most potentials: wished for, and where linear fields need more.
_FIELD_SIZE, _POTENTIAL_SIZE, _POTENTIAL_LIMIT = 256, 256, 1024
# Points per function of a field, and numbers per function of a potential, of the whole sample.
_POINTS, _NUMBERS, _FEWEST_NUMBERS = 32, 128, 32
# Degree in x that goes with each further power of t.
_TIME_DEGREE = (2, 1, 1, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Waves:
    """Frequencies ω of cos and sin, for x and (with time) for t."""

    space: Float64[Tensor, "J d"]
    time: Float64[Tensor, "J"]

    def __len__(self) -> int:
        return len(self.space)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dictionary:
    r"""Regressors and potentials, with the gradients of these written in an extension of those.

    .. math:: \partial_{z_j}\psi_i = \sum_k T_{ijk}\, \phi_k

    Attributes
    ----------
    field_powers, potential_powers
        Exponents (time first) of the monomials φ and ψ; among φ the constant and the linear come
        first, then the other regressors, then those that only gradients need.
    waves
        Frequencies of the waves among ψ; among φ they hold the gradients of these.
    gradient
        T.
    degree
        k.
    regressors
        How many of the first φ are regressors: a rotation is written in them.
    linear_size
        How many of the first φ are constant or linear in (t, z).
    highest
        Highest power of a single variable.
    """

    field_powers: Int64[Tensor, "mp dt"]
    potential_powers: Int64[Tensor, "pp dt"]
    waves: Waves
    gradient: Float64[Tensor, "p d m"]
    degree: int
    regressors: int
    linear_size: int
    highest: int

    @property
    def field_size(self) -> int:
        """m, the number of functions φ."""
        return self.gradient.shape[2]

    @property
    def potential_size(self) -> int:
        """p, the number of potentials ψ."""
        return self.gradient.shape[0]

    def fields(self, z: Tensor, t: Tensor) -> Tensor:
        """φ at whitened points z and centred times t: [N, m]; differentiable."""
        return self._values(self.field_powers, z, t)

    def potentials(self, z: Tensor, t: Tensor) -> Tensor:
        """ψ at whitened points z and centred times t: [N, p]; differentiable."""
        return self._values(self.potential_powers, z, t)

    def _values(self, powers: Tensor, z: Tensor, t: Tensor) -> Tensor:
        parts = [_monomials(powers, torch.cat([t[:, None], z], 1), self.highest)]
        if len(self.waves):
            angle = z @ self.waves.space.mT + t[:, None] * self.waves.time
            parts += [angle.cos(), angle.sin()]
        return torch.cat(parts, 1)


def matched_dictionary(
    points: Float64[Tensor, "N d"],
    *,
    generator: torch.Generator,
    timed: bool = False,
    degree: int | None = None,
    waves: int | None = None,
) -> Dictionary:
    r"""Dictionary that fits the number of points, of degree and frequencies chosen for it.

    .. math:: \omega_j \sim \mathcal N(0, s_j^2 \ell^{-2} I), \qquad
              \ell = \mathrm{median}\,|z - z'|, \quad s_j \in \{1, 2\}

    Parameters
    ----------
    points : z, whitened.
    generator : draws the frequencies.
    timed : whether powers and waves of time are included.
    degree : k; by default the largest up to 3 that fits (2 for eight coordinates, 1 from ten on).
    waves : J, pairs of cos and sin; by default what fits beside the powers, 48 at most, and none
        with time.

    Raises
    ------
    InvalidInputError
        If even linear fields with quadratic potentials do not fit the sample, or a degree or a
        number of waves that was asked for does not.

    Notes
    -----
    Fits means: at least 32 points for each regressor and 128 numbers for each potential (a
    potential takes up a share p/Nd of a true rotation by chance), and not more than 256 of each;
    where linear fields alone need more, or more are asked for, 32 numbers and 1,024. The
    powers of degree k + 2 are left out where they would not fit. Random features after Rahimi and
    Recht (2007).

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> found = matched_dictionary(torch.randn(2000, 2, generator=g).double(), generator=g)
    >>> found.degree, found.field_size, found.potential_size
    (3, 25, 30)
    """
    N, d = points.shape
    most = min(_FIELD_SIZE, N // _POINTS), min(_POTENTIAL_LIMIT, N * d // _FEWEST_NUMBERS)
    fair = most[0], min(_POTENTIAL_SIZE, N * d // _NUMBERS)
    if degree is None:
        degree = max((k for k in range(1, 4) if _fits(_sizes(d, k, timed), fair)), default=1)
    if degree < 1 or not _fits(_sizes(d, degree, timed, pairs=False), most):
        asked = _sizes(d, max(degree, 1), timed, pairs=False)
        raise InvalidInputError(
            f"{N} points in {d} coordinates carry at most {most[0]} functions of a field and "
            f"{most[1]} of a potential; fields of degree {degree} need {asked[0]} and {asked[1]}. "
            "Pass more points, fewer coordinates (the leading ones), or a lower degree."
        )
    pairs = _fits(_sizes(d, degree, timed), fair)
    used = _sizes(d, degree, timed, pairs=pairs)[1]
    room = max(0, most[1] - used) // 2
    if waves is not None and not 0 <= waves <= room:
        raise InvalidInputError(
            f"waves must be between 0 and {room}, what {N} points carry beside degree {degree}; "
            f"found {waves}. Pass fewer, or more points."
        )
    # Waves in time have steep and arbitrary rates; powers of t have not.
    most_waves = 0 if timed else min(room, 48, max(0, fair[1] - used) // 2)
    count = most_waves if waves is None else waves
    drawn = _drawn_waves(points, count, timed, generator)
    return assembled(*_monomial_powers(d, degree, timed, pairs), drawn, degree)


def _fits(sizes: tuple[int, int], most: tuple[int, int]) -> bool:
    return sizes[0] <= most[0] and sizes[1] <= most[1]


def _sizes(d: int, degree: int, timed: bool, pairs: bool = True) -> tuple[int, int]:
    """Numbers of regressors and of monomial potentials, without listing them."""
    degrees = _degrees(degree, timed)
    fields = sum(math.comb(d + k, d) for k in degrees)
    potentials = sum(math.comb(d + k + 1, d) - 1 for k in degrees)
    # Monomials of total degree k + 2 in one variable, and in two.
    extra = sum(d + math.comb(d, 2) * (k + 1) for k in degrees) if pairs else 0
    return fields, potentials + extra


def _degrees(degree: int, timed: bool) -> list[int]:
    return [degree] + [min(degree, k) for k in (_TIME_DEGREE if timed else ())]


def _monomial_powers(d: int, degree: int, timed: bool, pairs: bool) -> tuple[Tensor, Tensor, int]:
    """Exponents of Φ and Ψ, and how many of the first of Φ are regressors."""
    regressors: list[tuple[int, ...]] = []
    potentials: list[tuple[int, ...]] = []
    for power, k in enumerate(_degrees(degree, timed)):
        regressors += [(power, *row) for row in exponents(d, range(k + 1), most=d)]
        potentials += [(power, *row) for row in exponents(d, range(1, k + 2), most=d)]
        if pairs:
            potentials += [(power, *row) for row in exponents(d, range(k + 2, k + 3), most=2)]
    regressors.sort(key=sum)
    lower = {lowered(row, j) for row in potentials for j in range(1, d + 1) if row[j]}
    holders = sorted(lower.difference(regressors), key=lambda row: (sum(row), row))
    fields = torch.tensor([*regressors, *holders], dtype=torch.int64)
    return fields, torch.tensor(potentials, dtype=torch.int64), len(regressors)


def exponents(d: int, totals: range, most: int) -> list[tuple[int, ...]]:
    """Exponents of given total degrees with at most so many variables."""
    return [
        tuple(chosen.count(j) for j in range(d))
        for total in totals
        for chosen in combinations_with_replacement(range(d), total)
        if len(set(chosen)) <= most
    ]


def lowered(row: tuple[int, ...], j: int) -> tuple[int, ...]:
    """Exponents of a monomial after one derivative along variable j."""
    return (*row[:j], row[j] - 1, *row[j + 1 :])


def _drawn_waves(z: Tensor, count: int, timed: bool, generator: torch.Generator) -> Waves:
    N, d = z.shape
    pairs = torch.randint(N, (2, 2000), generator=generator, device=generator.device).to(z.device)
    length = (z[pairs[0]] - z[pairs[1]]).norm(dim=1).median().clamp_min(1e-3)
    drawn = torch.randn(
        count, d + 1, generator=generator, device=generator.device, dtype=torch.float64
    ).to(z.device)
    time = drawn[:, 0] if timed else torch.zeros_like(drawn[:, 0])
    scale = 1.0 + (torch.arange(count, device=z.device) % 2)[:, None]
    return Waves(space=drawn[:, 1:] * scale / length, time=time)


def assembled(
    fields: Tensor, potentials: Tensor, regressors: int, waves: Waves, degree: int
) -> Dictionary:
    """Dictionary of these powers and waves, with the gradients of the potentials written out."""
    J, d = waves.space.shape
    mp, pp = len(fields), len(potentials)
    place = {tuple(row): k for k, row in enumerate(fields.tolist())}
    at = [
        (i, j, place[lowered(tuple(row), j + 1)], row[j + 1])
        for i, row in enumerate(potentials.tolist())
        for j in range(d)
        if row[j + 1]
    ]
    i, j, k, power = torch.tensor(at).T
    T = torch.zeros(pp + 2 * J, d, mp + 2 * J, dtype=torch.float64)
    T[i, j, k] = power.double()
    T = T.to(waves.space.device)
    wave = torch.arange(J, device=T.device)
    T[pp + wave, :, mp + J + wave] = -waves.space  # ∇cos = −ω sin
    T[pp + J + wave, :, mp + wave] = waves.space  # ∇sin = ω cos
    return Dictionary(
        field_powers=fields.to(T.device),
        potential_powers=potentials.to(T.device),
        waves=waves,
        gradient=T,
        degree=degree,
        regressors=regressors,
        linear_size=int((fields.sum(1) <= 1).sum()),
        highest=int(torch.cat([fields, potentials]).max()),
    )


def _monomials(powers: Tensor, y: Tensor, highest: int) -> Tensor:
    # A table of powers instead of pow: its derivative at zero exists, and it is faster.
    table = [torch.ones_like(y)]
    for _ in range(highest):
        table.append(table[-1] * y)
    stacked = torch.stack(table)  # [power, N, d]
    value = torch.ones(len(y), len(powers), dtype=y.dtype, device=y.device)
    for j in range(y.shape[1]):
        value = value * stacked[powers[:, j], :, j].mT
    return value
