r"""Potentials rich enough for clustered points, and the fields that a rotation is written in.

.. math:: \Psi = \{z^\alpha : 1 \le |\alpha| \le 3\} \cup \{\pi_k,\; \pi_k z_j : k \le 12\}
          \cup \{\cos\omega_j z, \sin\omega_j z\}, \qquad
          \Phi = \{z^\alpha : |\alpha| \le 2\} .

A gradient ∇θ outside Ψ is read as rotation as far as ⟨∇θ, f − P_Ψ f⟩ ≠ 0 for a field f of Φ: what
counts is whether Ψ holds the gradient part of f under the law of the points
(:mod:`flowscope.flows.hodge.dictionary`). Under a clustered law that part is, in each cluster, a
polynomial of its own; hence soft memberships times affine functions. With three coordinates or
fewer, waves are among the fields as well, so that rough rotation is seen; in more, waves do not
fill the space and only invent rotation.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.clusters import Clusters, clusters
from flowscope.flows.hodge.dictionary import Dictionary, Waves, assembled, exponents, lowered

__all__ = ["Functions", "functions"]

_CENTRES, _WAVES = 12, 48
# Most potentials and most coefficients of a field, and numbers (points × coordinates) for each.
_MOST, _NUMBERS = 512, 16
# With so many coordinates or fewer, waves are among the fields.
_FEW = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Functions:
    """Potentials ψ and regressors φ of a sample.

    Attributes
    ----------
    smooth
        Monomials and waves, with the gradients of those among the potentials.
    lumps
        Centres whose soft memberships, times affine functions, are potentials too.
    columns
        Which functions of ``smooth`` are regressors; the constant and the linear come first.
    """

    smooth: Dictionary
    lumps: Clusters
    columns: tuple[int, ...]

    @property
    def potential_size(self) -> int:
        """p, the number of potentials."""
        k, d = self.lumps.centres.shape
        return self.smooth.potential_size + k * (1 + d)

    @property
    def linear_size(self) -> int:
        """How many of the first regressors are constant or linear."""
        return self.smooth.linear_size

    @property
    def quadratic_size(self) -> int:
        """How many of the first potentials are quadratic or linear."""
        return _powers(self.lumps.centres.shape[1], 2)

    def regressors(self, z: Float64[Tensor, "N d"]) -> Float64[Tensor, "N s"]:
        """φ at whitened points."""
        return self.evaluated(z)[0]

    def gradients(self, z: Float64[Tensor, "N d"]) -> Float64[Tensor, "N p d"]:
        """∇ψ at whitened points."""
        return self.evaluated(z)[1].mT

    def evaluated(
        self, z: Float64[Tensor, "N d"], chart: Float64[Tensor, "d d"] | None = None
    ) -> tuple[Float64[Tensor, "N s"], Float64[Tensor, "N d p"]]:
        """φ and J∇ψ at whitened points; J is the chart, by default the identity."""
        d = z.shape[1]
        J = torch.eye(d, dtype=z.dtype, device=z.device) if chart is None else chart
        values = self.smooth.fields(z, torch.zeros_like(z[:, 0]))
        T = torch.einsum("ej,pjm->mep", J, self.smooth.gradient)
        plain = torch.unflatten(values @ T.flatten(1), 1, (d, -1))
        c = self.lumps.centres
        pi = self.lumps.memberships(z)
        apart = ((c - (pi @ c)[:, None]) @ J.mT).mT / self.lumps.width**2
        slope = pi[:, None] * apart  # [N, d, k]
        # ∇(π_k z_j) = z_j ∇π_k + π_k e_j
        tilted = slope[..., None] * z[:, None, None]
        tilted += pi[:, None, :, None] * J[:, None]
        columns = torch.tensor(self.columns, device=z.device)
        return values[:, columns], torch.cat([plain, slope, tilted.flatten(2)], 2)


def functions(
    points: Float64[Tensor, "N d"], *, generator: torch.Generator, degree: int | None = None
) -> Functions:
    r"""Potentials and fields that a sample carries.

    .. math:: \omega_j = \frac{s_j\,(z_a - z_b)}{\sqrt2\,\ell}, \qquad
              \ell = \mathrm{median}\,|z - z'|, \quad s_j \in \{1, 2\}

    Parameters
    ----------
    points : z, whitened.
    generator : draws centres and frequencies.
    degree : highest degree of the fields; by default 2, and 3 with three coordinates or fewer.
        A lower one is taken when the points do not carry it.

    Raises
    ------
    InvalidInputError
        If not even linear fields with quadratic potentials fit.

    Notes
    -----
    Carries means: 16 numbers for each potential, 16 points for each regressor, and not more than
    512 potentials or coefficients of a field. Powers come first, then memberships, then waves.
    Frequencies are differences of points, so that they turn with the axes.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> found = functions(torch.randn(1024, 8, generator=g).double(), generator=g)
    >>> found.smooth.degree, len(found.columns), found.potential_size
    (2, 45, 368)
    """
    N, d = points.shape
    room = min(_MOST, N * d // _NUMBERS)
    highest = (3 if d <= _FEW else 2) if degree is None else degree
    if highest < 1:
        raise InvalidInputError(f"degree must be at least 1; found {degree}. Pass 2, say.")
    fits = [k for k in range(1, highest + 1) if _carried(N, d, k, room)]
    if not fits:
        raise InvalidInputError(
            f"{N} points in {d} coordinates carry at most {N // _NUMBERS} functions of a field and "
            f"{room} potentials; linear fields need {d + 1} and {_powers(d, 2)}. Pass more points "
            "or fewer coordinates (the leading ones)."
        )
    k = max(fits)
    top = max([k + 1] + [t for t in (3,) if _powers(d, t) <= room])
    left = room - _powers(d, top)
    lumps = clusters(points, max(1, min(_CENTRES, left // (d + 1))), generator=generator)
    left -= len(lumps.centres) * (d + 1)
    drawn = _waves(points, max(0, min(_WAVES, left // 2)), generator)
    smooth = _smooth(d, k, top, drawn)
    columns = list(range(smooth.regressors))
    if d <= _FEW:
        first = len(smooth.field_powers)
        fair = (N // _NUMBERS - len(columns)) // 2
        # cos and sin of the same wave together
        for j in range(max(0, min(len(drawn), fair))):
            columns += [first + j, first + len(drawn) + j]
    return Functions(smooth=smooth, lumps=lumps, columns=tuple(columns))


def _powers(d: int, degree: int) -> int:
    return math.comb(d + degree, d) - 1


def _carried(N: int, d: int, k: int, room: int) -> bool:
    regressors = math.comb(d + k, d)
    fields = regressors <= N // _NUMBERS and (k == 1 or regressors * d <= _MOST)
    return fields and _powers(d, k + 1) <= room


def _waves(z: Tensor, count: int, generator: torch.Generator) -> Waves:
    pairs = torch.randint(len(z), (2, 2000 + count), generator=generator, device=generator.device)
    apart = z[pairs[0].to(z.device)] - z[pairs[1].to(z.device)]
    length = apart[:2000].norm(dim=1).median().clamp_min(1e-3)
    scale = 1.0 + (torch.arange(count, device=z.device) % 2)[:, None]
    space = apart[2000:] * scale / (math.sqrt(2) * length)
    return Waves(space=space, time=torch.zeros_like(space[:, 0]))


def _smooth(d: int, degree: int, top: int, waves: Waves) -> Dictionary:
    """Regressors up to a degree, potentials up to another, and waves."""
    fields = [(0, *row) for row in exponents(d, range(degree + 1), most=d)]
    potentials = [(0, *row) for row in exponents(d, range(1, top + 1), most=d)]
    below = {lowered(row, j) for row in potentials for j in range(1, d + 1) if row[j]}
    holders = sorted(below.difference(fields), key=lambda row: (sum(row), row))
    powers = torch.tensor([*fields, *holders], dtype=torch.int64)
    return assembled(powers, torch.tensor(potentials), len(fields), waves, degree)
