r"""The two divergences of a score matrix, their sectors, and the signature of the symmetric one.

For raw scores $W$ with diagonal $w_i = W_{ii}$

$$
d^\rightarrow_{ij} = W_{ii} - W_{ij}, \qquad d^\leftarrow = (d^\rightarrow)^\top, \qquad
D = d^\rightarrow + d^\leftarrow ,
$$

and with the flux $A = \frac12(W - W^\top)$

$$
d^\rightarrow_{ij} = \underbrace{\tfrac12 D_{ij}}_{\text{metric}}
    + \underbrace{\tfrac12 (w_i - w_j)}_{\text{exact}} - \underbrace{A_{ij}}_{\text{flux}} .
$$

**Gauge.** A row constant, $W_{ij} + c_i$, changes neither attention nor $d^\rightarrow$, hence
neither $D$ nor the antisymmetric part $\frac12(d^\rightarrow - d^\leftarrow)$. It does move the
exact part and the flux, each by $\frac12(c_i - c_j)$: only their difference says something of the
attention. What the flux says on its own is its part without a potential. The nearest gradient to
the antisymmetric part (Hodge projection; over all pairs $\varphi$ is a row mean) gives the same sum
in a form that no gauge moves,

$$
d^\rightarrow_{ij} = \tfrac12 D_{ij} + (\varphi_i - \varphi_j) - F_{ij}, \qquad
\textstyle\sum_j F_{ij} = 0 ,
$$

with $F$ the flux less its own nearest gradient. $\varphi$ is a Doob tilt: without $F$ attention is
$P_{ij} \propto e^{-\beta D_{ij}/2}\, e^{\beta\varphi_j}$, reversible. $F$ alone makes affinities of
cycles. Every ratio here is read from $d^\rightarrow$.

**Sign.** $D$ is a quadratic form of the symmetric part of $W_Q^\top W_K$, which is indefinite in
general: $D$ can be negative, and is a squared Euclidean distance exactly when the signature has no
negative direction (Schoenberg). Source 002; the signs that it takes for granted are errata E54.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.scores import as_scores
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["Bidivergence", "Signature", "weight_ratio"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Signature:
    """Signs of a symmetric divergence, one entry for each matrix of the batch.

    Attributes
    ----------
    positive, negative, zero
        Numbers of eigenvalues of −½CDC (C centres) of each sign, N − 1 in all: the constant vector
        is left out. D is a squared Euclidean distance when ``negative`` is zero.
    least
        Smallest D_ij over pairs.
    negative_share
        Share of pairs i < j whose D_ij is negative beyond rounding.
    """

    positive: Int[Tensor, "*batch"]
    negative: Int[Tensor, "*batch"]
    zero: Int[Tensor, "*batch"]
    least: Float[Tensor, "*batch"]
    negative_share: Float[Tensor, "*batch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bidivergence:
    """Forward and backward divergence of scores, and what they are made of.

    Attributes
    ----------
    scores
        W, checked; −∞ where a pair is masked on both sides.

    Raises
    ------
    InvalidInputError
        For scores that are not square, lack a diagonal, are masked on one side, NaN or +∞.

    Examples
    --------
    >>> b = Bidivergence.of([[1.0, 3.0], [0.0, 2.0]])
    >>> b.forward
    tensor([[ 0., -2.],
            [ 2.,  0.]], dtype=torch.float64)
    >>> b.symmetric[0, 1]
    tensor(0., dtype=torch.float64)
    """

    scores: Float[Tensor, "*batch N N"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", as_scores(self.scores))

    @classmethod
    def of(cls, scores: Tensor | ArrayLike) -> "Bidivergence":
        """Read scores from a tensor, an array or nested lists."""
        return cls(scores=as_scores(scores))

    @property
    def forward(self) -> Float[Tensor, "*batch N N"]:
        """d→_ij = W_ii − W_ij; +∞ where masked."""
        return self._diagonal[..., :, None] - self.scores

    @property
    def backward(self) -> Float[Tensor, "*batch N N"]:
        """d←_ij = W_jj − W_ji, the transpose of the forward one."""
        return self.forward.mT

    @property
    def symmetric(self) -> Float[Tensor, "*batch N N"]:
        """D = d→ + d←: symmetric with a zero diagonal, of any sign, +∞ where masked."""
        return self.forward + self.backward

    @property
    def metric(self) -> Float[Tensor, "*batch N N"]:
        """½D, the part of d→ that is the same both ways."""
        return self.symmetric / 2

    @property
    def exact(self) -> Float[Tensor, "*batch N N"]:
        """½(w_i − w_j); moves with the gauge."""
        return _gradient(self._diagonal) / 2

    @property
    def flux(self) -> Float[Tensor, "*batch N N"]:
        """A = ½(W − Wᵀ), zero on masked pairs; moves with the gauge as `exact` does."""
        W = self.scores.masked_fill(self._masked, 0.0)
        return (W - W.mT) / 2

    @property
    def antisymmetric(self) -> Float[Tensor, "*batch N N"]:
        """½(d→ − d←) = exact − flux, zero on masked pairs; no gauge moves it."""
        d = self.forward.masked_fill(self._masked, 0.0)
        return (d - d.mT) / 2

    @property
    def potential(self) -> Float[Tensor, "*batch N"]:
        """φ whose gradient φ_i − φ_j is nearest to the antisymmetric part, of mean zero.

        Nearest over the pairs that are not masked; of mean zero in each part that they connect.
        Large where attention is drawn to, whoever asks.
        """
        X = self.antisymmetric
        if not bool(self._masked.any()):
            return X.mean(-1)
        edges = (~self._masked).double()
        laplacian = torch.diag_embed(edges.sum(-1)) - edges
        inverse: Tensor = torch.linalg.pinv(laplacian, hermitian=True)
        return (inverse @ X.double().sum(-1, keepdim=True))[..., 0].to(X.dtype)

    @property
    def coexact(self) -> Float[Tensor, "*batch N N"]:
        """F, the flux less its nearest gradient: no potential makes it, no gauge moves it."""
        F = _gradient(self.potential) - self.antisymmetric
        return F.masked_fill(self._masked, 0.0)

    def exact_share(self) -> Float[Tensor, "*batch"]:
        """Share of the antisymmetric part that has a potential, Σ(φ_i − φ_j)² / Σ¼(d→ − d←)².

        One exactly when unmasked attention is reversible. It is 1.0 by convention where there is no
        antisymmetric part beyond rounding: nothing is there that lacks a potential.
        """
        F = self.coexact
        G = self.antisymmetric + F  # φ_i − φ_j on the pairs there are
        with_, without = (x.square().sum((-2, -1)) for x in (G, F))
        total = with_ + without
        share = with_ / total.clamp_min(torch.finfo(total.dtype).tiny)
        return torch.where(total.sqrt() <= self._noise(), 1.0, share)

    def flux_ratio(self) -> Float[Tensor, "*batch"]:
        r"""Size of the flux without potential over that of the metric, both without tilts.

        .. math:: \Vert F\Vert_F \,/\, \Vert \tfrac12 CDC\Vert_F
                  = \Vert \mathrm{antisym}(CWC)\Vert_F \,/\, \Vert \mathrm{sym}(CWC)\Vert_F ,

        C centring. Blind to row constants of W (gauge) and to column constants (Doob tilts): the
        counterpart among tokens of :func:`weight_ratio`. Norms within rounding count as zero;
        0 where there is no flux, ∞ where there is no metric beside it.

        Raises
        ------
        InvalidInputError
            For masked pairs, which leave nothing to centre.
        """
        self._need_every_pair("flux_ratio")
        sizes = [x.norm(dim=(-2, -1)) for x in (self.coexact, _centred(self.metric))]
        flux, metric = (torch.where(x <= self._noise(), 0.0, x) for x in sizes)
        return torch.where(flux == 0, 0.0, flux / metric)

    def signature(self, *, rounding: float | None = None) -> Signature:
        r"""Signs of the eigenvalues of :math:`-\frac12 CDC`, in float64.

        Parameters
        ----------
        rounding
            Relative error of one score; that of the dtype when not given. Say 2**-8 for scores
            that were computed in bfloat16 and widened later.

        Raises
        ------
        InvalidInputError
            For masked pairs, which have no place in an inner product; a rounding outside (0, 1).

        Notes
        -----
        Eigenvalues within N · rounding · max|W| of zero count as zero: scores that are each off by
        that rounding move none further (Weyl). O(N³).

        Examples
        --------
        >>> found = Bidivergence.of([[0.0, 0.0], [0.0, -1.0]]).signature()
        >>> int(found.positive), int(found.negative), float(found.least)
        (0, 1, -1.0)
        """
        self._need_every_pair("signature")
        if rounding is not None and not 0 < rounding < 1:
            raise InvalidInputError(
                f"rounding must lie in (0, 1), as 2**-8 for bfloat16 does; got {rounding!r}."
            )
        D, N = self.symmetric.double(), self.scores.shape[-1]
        bound = self._noise(rounding).double()
        values = torch.linalg.eigvalsh(_centred(-D / 2))
        positive, negative = ((s * values > bound[..., None]).sum(-1) for s in (1, -1))
        i, j = torch.triu_indices(N, N, 1, device=D.device)
        pairs = D[..., i, j]
        below = pairs < -4 * bound[..., None] / N  # four scores make a D
        return Signature(
            positive=positive,
            negative=negative,
            zero=N - 1 - positive - negative,
            least=pairs.amin(-1).to(self.scores.dtype),
            negative_share=below.to(self.scores.dtype).mean(-1),
        )

    @property
    def _diagonal(self) -> Float[Tensor, "*batch N"]:
        return self.scores.diagonal(dim1=-2, dim2=-1)

    @property
    def _masked(self) -> Tensor:
        return self.scores.isneginf()

    def _noise(self, rounding: float | None = None) -> Float[Tensor, "*batch"]:
        """What rounding of the scores can make of a matrix that should be zero."""
        unit = torch.finfo(self.scores.dtype).eps if rounding is None else rounding
        largest = self.scores.detach().masked_fill(self._masked, 0.0).abs().amax((-2, -1))
        return self.scores.shape[-1] * unit * largest

    def _need_every_pair(self, name: str) -> None:
        if bool(self._masked.any()):
            raise InvalidInputError(
                f"{name} needs every pair of tokens; found {int(self._masked.sum())} masked "
                "scores. Read documents that do not see each other one by one."
            )


def weight_ratio(
    query_weight: Tensor | ArrayLike, key_weight: Tensor | ArrayLike
) -> Float[Tensor, "*batch"]:
    r"""How far a head's query and key weights are from a symmetric form.

    .. math:: R_{qk} = \frac{\Vert B - B^\top\Vert_F}{\Vert B + B^\top\Vert_F}, \qquad
              B = W_Q^\top W_K

    Parameters
    ----------
    query_weight, key_weight
        W_Q and W_K, shape (…, d_head, d_model).

    Returns
    -------
    Tensor
        float64: 0 for a symmetric B, ∞ for an antisymmetric one, each up to rounding; NaN where B
        is zero.

    Raises
    ------
    InvalidInputError
        For shapes that differ, or weights that are not finite.

    Notes
    -----
    Never forms B. An orthonormal basis of the rows of both weights (QR) turns it into a matrix of
    size 2·d_head with the same norms; the difference of traces ‖B‖² − tr B² would lose half of the
    digits. O(d_model · d_head²). Position is left out: with rotary embeddings B depends on the
    distance of the tokens, and this is its value at distance zero. Source 002.

    Examples
    --------
    >>> weight_ratio([[1.0, 0.0]], [[0.0, 1.0]])  # B has one entry, off the diagonal
    tensor(1., dtype=torch.float64)
    """
    q, k = (as_reals(x, n) for x, n in ((query_weight, "query_weight"), (key_weight, "key_weight")))
    if q.ndim < 2 or q.shape != k.shape:
        raise InvalidInputError(
            "query_weight and key_weight must have the same shape with axes (…, d_head, d_model); "
            f"found {tuple(q.shape)} and {tuple(k.shape)}. Repeat key heads that serve several "
            "query heads."
        )
    for x, name in ((q, "query_weight"), (k, "key_weight")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look at the weights.")
    q, k = q.double(), k.double()
    width = q.shape[-2]
    _, T = torch.linalg.qr(torch.cat([q, k], -2).mT, mode="r")
    B = T[..., :width] @ T[..., width:].mT
    bound = 16 * width * torch.finfo(B.dtype).eps * q.norm(dim=(-2, -1)) * k.norm(dim=(-2, -1))
    sizes = ((B + s * B.mT).norm(dim=(-2, -1)) for s in (-1, 1))
    antisymmetric, symmetric = (torch.where(x <= bound, 0.0, x) for x in sizes)
    return antisymmetric / symmetric


def _gradient(a: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch N N"]:
    return a[..., :, None] - a[..., None, :]


def _centred(M: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """CMC, with C = I − 11ᵀ/N."""
    rows = M - M.mean(-1, keepdim=True)
    return rows - rows.mean(-2, keepdim=True)
