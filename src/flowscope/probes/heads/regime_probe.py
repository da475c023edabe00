r"""Source 002 on a running model: every identity on every head, and how far the regimes are apart.

Scores are read without the mask. With the mask, $\operatorname{softmax}(-\beta d^\rightarrow)$ must
be the model's own attention; both are made of float32 products of queries and keys, of width $d$,
so they may differ by the rounding of such a product,

$$
2(d+4)\,\varepsilon\,\bigl(1 + \beta\max|q|\max|k| + \max|z|\bigr) ,
$$

$\varepsilon$ that of float32 (or of the model, if it is wider). The output $AV$ of the model's own
kernel may differ by $2(d+n+4)\,\varepsilon\max|v|$ times the same bracket, $\varepsilon$ that of
the model.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import FlowscopeError
from flowscope.markov.irreversibility import displacement, entropy_production, net_flow
from flowscope.markov.kernels import diffusion_kernel, sinkhorn_kernel
from flowscope.probes.heads.chain_probe import self_attention
from flowscope.probes.heads.chains import HeadLogits, head_logits
from flowscope.probes.heads.identities import (
    IDENTITIES,
    HeadScores,
    identity_errors,
    magnetic_spectrum,
)
from flowscope.simplex.divergence import total_variation
from flowscope.tap import AttentionCall

__all__ = ["STATISTICS", "IdentityRow", "RegimeProbe", "regime_statistics"]

STATISTICS = {
    "negative_D": "whether some pair has D < 0 beyond rounding",
    "negative_pairs": "share of pairs with D < 0",
    "euclidean_D": "whether D is a squared Euclidean distance",
    "negative_directions": "negative eigenvalues of −½CDC",
    "positive_directions": "positive eigenvalues of −½CDC",
    "attention_to_diffusion": "mean TV of the rows of attention and of softmax(−βD)",
    "attention_to_metric": "mean TV of the rows of attention and of softmax(−½βD)",
    "alpha_shift": "mean TV of the rows of the diffusion map at α = 0 and α = 1",
    "phase_shift": "largest change of a magnetic eigenvalue from charge 0 (same D, no flux) to q",
    "charge_shift": "largest change of a magnetic eigenvalue from charge q to 2q",
    "sinkhorn_asymmetry": "mean TV of the rows of Sinkhorn(−βd→) and of Sinkhorn(−βd←)",
    "sinkhorn_columns": "largest |column sum − 1| that the steps left",
    "sinkhorn_gap": "largest |Sinkhorn(−βd←) − Sinkhorn(−βd→)ᵀ|, both with rows first",
    "net_flow_at_law": "Σ_i|Σ_j J_ij| at the stationary law",
    "displacement": "TV(ρP, ρ) at the uniform law ρ",
    "entropy_production": "nats per step at the stationary law",
    "first_token": "share of walks of the model's own causal attention that end at token 0",
}
"""What is told of each head and prompt beside the identities."""

_ATTENTION, _OUTPUT = "the model's attention", "the model's output"
_TEXTS = {
    _ATTENTION: (
        "softmax(−βd→) under the mask = attention of the model",
        "(d + 4)(1 + β max|q| max|k| + max|z|)",
    ),
    _OUTPUT: (
        "softmax(−βd→) V under the mask = what its kernel returns",
        "max|v| (d + n + 4)(1 + β max|q| max|k| + max|z|)",
    ),
    **{one.name: (one.formula, one.scale) for one in IDENTITIES},
}
_SQUARINGS = 20  # a walk of 2^20 steps


@dataclass(frozen=True, kw_only=True, eq=False)
class IdentityRow:
    """An identity over all heads and prompts.

    Attributes
    ----------
    identity, formula, scale
        As for `Identity`.
    error
        The largest; NaN when no head could be checked.
    bound
        Largest error that is still rounding.
    heads, refused
        Heads that were checked on some prompt, and readings that were not.
    """

    identity: str
    formula: str
    scale: str
    error: float
    bound: float
    heads: int
    refused: int

    @property
    def holds(self) -> bool:
        """Whether every error is rounding, and there is one."""
        return self.heads > 0 and self.error <= self.bound


class RegimeProbe:
    """Errors of the identities and statistics of the regimes, one head after the other.

    Parameters
    ----------
    tokens
        Most tokens of a sequence, from its start; scores of so many are held at a time.
    sweeps, charge
        As for `HeadScores`.
    """

    def __init__(self, *, tokens: int, sweeps: int, charge: float) -> None:
        self._tokens, self._sweeps, self._charge = tokens, sweeps, charge
        self._mask = torch.zeros(0)
        self._seen: set[int] = set()
        self._bounds = {one.name: one.bound for one in IDENTITIES}
        self._errors: dict[str, float] = {}
        self._heads: dict[str, set[tuple[int, int]]] = {}
        self._refused: dict[str, int] = {}
        self._values: dict[str, list[NDArray[np.float64]]] = {name: [] for name in STATISTICS}
        self.because: dict[int, str] = {}

    def begin(self, mask: Tensor) -> None:
        """A batch starts: which positions count."""
        self._mask, self._seen = mask.bool().cpu(), set()

    def update(self, call: AttentionCall) -> None:
        """One attention call of the chain of blocks; the first of a block counts."""
        layer = call.site.index
        if layer in self._seen:
            return
        self._seen.add(layer)
        refused = self_attention(call)
        if refused:
            self.because.setdefault(layer, refused)
            return
        for row, mask in enumerate(self._mask):
            tokens = call.q.shape[-2]
            at = mask.nonzero()[:, 0] if len(mask) == tokens else torch.arange(tokens)
            for part in head_logits(call, row, at):
                self._own(call, row, at, part)
                if part.biased and part.visible is not None:
                    self.because[layer] = "the bias of pairs that the mask hides is not known"
                    continue
                self._scores(call, row, at[: self._tokens], part)

    def _own(self, call: AttentionCall, row: int, at: Int[Tensor, " n"], part: HeadLogits) -> None:
        first = min(self._tokens, len(at))
        z, diagonal = part.own.double(), part.free.double().diagonal(dim1=-2, dim2=-1)
        A = torch.softmax(-(diagonal[:, :first, None] - z[:, :first]), -1)
        theirs = call.probabilities(at[:first])[row, part.heads][..., at].double()
        q, k = call.q[row, part.heads][:, at], _own_keys(call.k[row], part.heads, call)[:, at]
        sizes = [x.double().norm(dim=-1).amax(-1) for x in (q, k)]
        finite = z[:, :first].masked_fill(z[:, :first].isneginf(), 0.0).abs().amax((-2, -1))
        size = 1 + call.scale * sizes[0] * sizes[1] + finite
        width = call.q.shape[-1]
        error = (A - theirs).abs().amax((-2, -1)) / ((width + 4) * size)
        self._take(_ATTENTION, call, part, error, _rounding(part.free.dtype))
        if call.dropout:
            return
        v = _own_keys(call.v[row], part.heads, call)[:, at].double()
        output = call.output()[row, part.heads][:, at[:first]].double()
        scale = v.abs().amax((-2, -1)).clamp_min(1e-30) * (width + len(at) + 4) * size
        error = (A @ v - output).abs().amax((-2, -1)) / scale
        self._take(_OUTPUT, call, part, error, _rounding(call.v.dtype))

    def _take(
        self, name: str, call: AttentionCall, part: HeadLogits, error: Tensor, bound: float
    ) -> None:
        known = ~error.isnan()
        self._bounds[name] = max(self._bounds.get(name, 0.0), bound)
        self._refused[name] = self._refused.get(name, 0) + int((~known).sum())
        if bool(known.any()):
            largest = float(error[known].max())
            self._errors[name] = max(self._errors.get(name, 0.0), largest)
        numbers = (part.heads.start + known.nonzero()[:, 0]).tolist()
        self._heads.setdefault(name, set()).update((call.site.index, h) for h in numbers)

    def _scores(
        self, call: AttentionCall, row: int, at: Int[Tensor, " n"], part: HeadLogits
    ) -> None:
        n, beta = len(at), call.scale
        heads = HeadScores(
            scores=part.free[:, :n, :n].double() / beta,
            beta=beta,
            q=call.q[row, part.heads][:, at].double(),
            k=_own_keys(call.k[row], part.heads, call)[:, at].double(),
            charge=self._charge,
            sweeps=self._sweeps,
            rounding=torch.finfo(part.free.dtype).eps,
        )
        for one in IDENTITIES:
            self._take(one.name, call, part, identity_errors(one, heads), one.bound)
        found = regime_statistics(heads, part.own[:, :n, :n].double())
        blank = torch.full((len(heads),), torch.nan)
        for name, values in self._values.items():
            values.append(found.get(name, blank).double().cpu().numpy())

    def rows(self) -> list[IdentityRow]:
        """Every identity with its largest error."""
        return [
            IdentityRow(
                identity=name,
                formula=formula,
                scale=scale,
                error=self._errors.get(name, float("nan")),
                bound=self._bounds.get(name, float("nan")),
                heads=len(self._heads.get(name, ())),
                refused=self._refused.get(name, 0),
            )
            for name, (formula, scale) in _TEXTS.items()
        ]

    def statistics(self) -> dict[str, NDArray[np.float64]]:
        """Values by name of `STATISTICS`, one for each head and prompt, NaN where there is none."""
        return {
            name: np.concatenate(values) if values else np.zeros(0)
            for name, values in self._values.items()
        }


def _rounding(dtype: torch.dtype) -> float:
    return 2 * torch.finfo(dtype).eps


def _own_keys(x: Tensor, heads: slice, call: AttentionCall) -> Tensor:
    """Keys or values of some query heads, repeated where heads share them."""
    shared = call.q.shape[-3] // x.shape[0]
    return x[torch.arange(heads.start, heads.stop, device=x.device) // shared]


def _mean_variation(P: Tensor, Q: Tensor) -> Float[Tensor, " H"]:
    return total_variation(P, Q).mean(-1)


def regime_statistics(heads: HeadScores, own: Float[Tensor, "H n n"]) -> dict[str, Tensor]:
    """What there is to tell of some heads; ``own`` are their masked logits."""
    signs = heads.parts.signature(rounding=heads.rounding)
    found = {
        "negative_D": signs.negative_share > 0,
        "negative_pairs": signs.negative_share,
        "euclidean_D": signs.negative == 0,
        "negative_directions": signs.negative,
        "positive_directions": signs.positive,
    }
    for read in (_distances, _magnetic, _bistochastic, _flows):
        try:
            found |= read(heads)
        except FlowscopeError:
            continue
    ahead = torch.ones_like(own[0], dtype=torch.bool).triu(1)
    if bool(own[:, ahead].isneginf().all()):
        found["first_token"] = _first_token(torch.softmax(own, -1))
    return found


def _distances(heads: HeadScores) -> dict[str, Tensor]:
    P, Q = heads.attention, heads.diffusion
    half = torch.softmax(-heads.beta * heads.parts.metric, -1)
    dense = diffusion_kernel(heads.scores, heads.beta, 1.0)
    return {
        "attention_to_diffusion": _mean_variation(P, Q),
        "attention_to_metric": _mean_variation(P, half),
        "alpha_shift": _mean_variation(Q, dense),
    }


def _magnetic(heads: HeadScores) -> dict[str, Tensor]:
    none, once, twice = (magnetic_spectrum(heads, c * heads.charge) for c in (0, 1, 2))
    return {
        "phase_shift": (once - none).abs().amax(-1),
        "charge_shift": (twice - once).abs().amax(-1),
    }


def _bistochastic(heads: HeadScores) -> dict[str, Tensor]:
    S = heads.bistochastic
    back = sinkhorn_kernel(-heads.parts.backward, heads.beta, iterations=heads.sweeps)
    return {
        "sinkhorn_asymmetry": (S - back).abs().sum((-2, -1)) / (2 * S.shape[-1]),
        "sinkhorn_columns": (S.sum(-2) - 1).abs().amax(-1),
        "sinkhorn_gap": (back - S.mT).abs().amax((-2, -1)),
    }


def _flows(heads: HeadScores) -> dict[str, Tensor]:
    P, law = heads.attention, heads.law
    return {
        "net_flow_at_law": net_flow(P, law).abs().sum(-1),
        "displacement": displacement(P),
        "entropy_production": entropy_production(P, law),
    }


def _first_token(P: Float[Tensor, "H n n"]) -> Float[Tensor, " H"]:
    """Where walks from anywhere are after 2^20 steps."""
    for _ in range(_SQUARINGS):
        P = P @ P
        P = P / P.sum(-1, keepdim=True)
    return P[..., 0].mean(-1)
