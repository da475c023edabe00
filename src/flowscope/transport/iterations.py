r"""Attention as a coupling: a fixed number of Sinkhorn iterations on attention logits.

Softmax attention is the entropic transport problem whose rows are fixed and whose columns are free.
This module gives the columns a say. With logits $z_{ij}$ ($-\infty$ where query $i$ may not see key
$j$) the rows of $\Pi$ sum to one and

$$
\Pi = \operatorname*{argmin}_{\Pi 1 = 1}\; \langle -z, \Pi\rangle
      + \sum_{ij}\Pi_{ij}(\log\Pi_{ij}-1) + \rho\,\mathrm{KL}(\Pi^\top 1 \,\Vert\, c), \qquad
\Pi_{ij} = e^{z_{ij} + f_i + g_j},
$$

with column masses $c$ and strength $\rho$ in units of the logits ($\varepsilon = 1$): $\rho = 0$ is
softmax, $\rho = \infty$ asks for $\Pi^\top 1 = c$. One iteration is one column step, then one row
step,

$$
g_j \leftarrow \tfrac{\rho}{1+\rho}\bigl(\log c_j - \operatorname{LSE}_i(z_{ij} + f_i)\bigr), \qquad
f_i \leftarrow -\operatorname{LSE}_j(z_{ij} + g_j),
$$

from the row softmax ($g = 0$). The last step is always a row step: every row is a probability
vector, and what is missing is in the columns; `column_error` states it. $k$ iterations are the
$2k+1$ alternating normalisations of Sinkformers (Sander et al. 2022), which count each one.

**Masks.** A mask is $-\infty$ in the logits. A large finite number is *not* one: iterations undo
any constant added to a column, so a key "masked" by $-10^4$ comes back to life.

**Padding.** A row that may see nothing is all zeros, as in torch's own attention. A key that no
query sees carries nothing. Column masses are spread over what is left. ``queries`` names the rows
that count: the others (padding that still looks at live keys) keep their softmax and count in no
column.

**Causality.** A lower-triangular matrix with unit row and column sums is the identity, so balanced
columns under a causal mask are refused. Masses $c$ are reachable exactly when
$\sum_{j\le i} c_j \ge i$ for every $i$; equality forces a block of zeros and convergence like
$1/k$, so strict inequality is asked for. And a mask is not all: a column sum over *all* queries
tells earlier rows of later ones, so a language model would see the future through it.
`online_attention` takes it over the queries up to each row.

Everything is differentiable by unrolled autograd, batched over leading axes, and runs in float32 or
better, whatever the input. Cost: two passes over the logits an iteration.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "causal_columns",
    "column_error",
    "even_columns",
    "online_attention",
    "prescribed_attention",
    "sinkhorn_attention",
    "spread_columns",
    "unbalanced_attention",
]

Logits = Float[Tensor, "*batch n m"]
Columns = Float[Tensor, "*batch m"]
Queries = Bool[Tensor, "*batch n"] | None


def sinkhorn_attention(logits: Logits, iterations: int, *, queries: Queries = None) -> Logits:
    r"""Attention whose keys are attended to equally: $\Pi 1 = 1$, $\Pi^\top 1 = (n/m)\,1$.

    Parameters
    ----------
    logits
        Attention logits $z$, $-∞$ where masked.
    iterations
        Column and row steps $k$; 0 is exactly the row softmax.
    queries
        The rows that count in the columns; all by default.

    Raises
    ------
    InvalidInputError
        When equal columns cannot be reached under the mask, as under every causal mask.

    Examples
    --------
    >>> z = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    >>> sinkhorn_attention(z, 0).sum(0)
    tensor([1.6119, 0.3881])
    >>> sinkhorn_attention(z, 5).sum(0)
    tensor([1.0000, 1.0000])
    """
    z, _ = _checked(logits, iterations, queries)
    columns = even_columns(z, queries=queries)
    if iterations:
        _refuse_unreachable(
            z,
            columns,
            queries,
            "Equal columns cannot be reached under this mask (a lower-triangular doubly stochastic "
            "matrix is the identity)",
            "Use unbalanced or prescribed attention.",
        )
    return unbalanced_attention(z, iterations, math.inf, columns=columns, queries=queries)


def unbalanced_attention(
    logits: Logits,
    iterations: int,
    relaxation: float,
    *,
    columns: Columns | None = None,
    queries: Queries = None,
) -> Logits:
    r"""Attention whose columns are drawn towards $c$ with strength $ρ$; any mask, causal too.

    The limit $k \to \infty$ minimises $\langle -z,\Pi\rangle + \mathrm{KL}(\Pi\Vert 1\otimes u) +
    \rho\,\mathrm{KL}(\Pi^\top 1\Vert c)$ over $\Pi 1 = 1$, for every uniform $u$.

    Parameters
    ----------
    logits, iterations, queries
        As for `sinkhorn_attention`.
    relaxation
        Strength $ρ ≥ 0$: 0 is softmax, ``math.inf`` asks for the columns themselves (reachable or
        not: see `prescribed_attention`).
    columns
        Masses $c$, positive on every key that is seen; their total is of no matter. Equal by
        default.

    Examples
    --------
    >>> z = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -torch.inf)
    >>> unbalanced_attention(z, 50, relaxation=1.0).sum(0)
    tensor([1.5509, 0.9244, 0.5247])
    """
    z, counted = _checked(logits, iterations, queries)
    if not iterations or relaxation == 0:
        return _softmax(z)
    seen = _seen(z, counted)
    c = even_columns(z, queries=queries) if columns is None else columns.to(z)
    return _iterated(z, counted, seen, c, iterations, relaxation)


def online_attention(
    logits: Logits,
    iterations: int,
    relaxation: float,
    *,
    columns: Float[Tensor, "*batch n m"] | None = None,
    queries: Queries = None,
) -> Logits:
    r"""Unbalanced attention that no later query has a say in: safe for a causal model.

    Each row $i$ has potentials of its own, from the queries up to it,

    $$
    g^i_j \leftarrow \tfrac{\rho}{1+\rho}\Bigl(\log c^i_j -
        \operatorname{LSE}_{i' \le i}(z_{i'j} + f_{i'})\Bigr), \qquad
    f_i \leftarrow -\operatorname{LSE}_j(z_{ij} + g^i_j) ,
    $$

    where earlier queries keep the normaliser of their own time. With one iteration row $i$ is the
    last row of `unbalanced_attention` of the first $i$ tokens; with more it is near it, at the
    price of one pass instead of $i$. The columns are therefore not met exactly, even for $\rho =
    \infty$.

    Parameters
    ----------
    logits, iterations, relaxation, queries
        As for `unbalanced_attention`.
    columns
        Masses $c^i_j$ at each row; equal over the keys seen up to there by default (causal: 1).

    Examples
    --------
    >>> z = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -torch.inf)
    >>> z[2, 0] = 2.0
    >>> online_attention(z, 1, 1.0)[:2]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.3660, 0.6340, 0.0000]])
    """
    z, counted = _checked(logits, iterations, queries)
    if not iterations or relaxation == 0:
        return _softmax(z)
    seen = ((z > -torch.inf) & counted[..., None]).to(torch.uint8).cummax(-2).values > 0
    arrived = counted.cumsum(-1)[..., None].to(z)
    even = arrived / seen.sum(-1, keepdim=True).clamp_min(1)
    return _iterated(
        z, counted, seen, even if columns is None else columns.to(z), iterations, relaxation
    )


def prescribed_attention(
    logits: Logits, columns: Columns, iterations: int, *, queries: Queries = None
) -> Logits:
    r"""Attention with given column masses: $\Pi 1 = 1$, $\Pi^\top 1 = c$.

    Parameters
    ----------
    logits, iterations, queries
        As for `sinkhorn_attention`.
    columns
        Masses $c$: positive on keys that are seen, zero on the others, with the number of counted
        rows as total. `causal_columns` and `spread_columns` make reachable ones.

    Raises
    ------
    InvalidInputError
        Naming the first prefix whose mass lies outside what the mask allows. The check is exact for
        causal masks, windows of them and packed sequences of them; for other masks it is necessary
        only, and `column_error` tells the rest.

    Examples
    --------
    >>> z = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -torch.inf)
    >>> prescribed_attention(z, torch.tensor([1.4, 0.9, 0.7]), 50).sum(0)
    tensor([1.4000, 0.9000, 0.7000])
    """
    z, _ = _checked(logits, iterations, queries)
    if iterations:
        _refuse_unreachable(
            z,
            columns,
            queries,
            "The column masses cannot be reached under this mask",
            "causal_columns and spread_columns give masses that can.",
        )
    return unbalanced_attention(z, iterations, math.inf, columns=columns, queries=queries)


def column_error(
    attention: Logits, columns: Columns, *, queries: Queries = None
) -> Float[Tensor, "*batch"]:
    r"""What the columns miss: $\sum_j |\sum_i \Pi_{ij} - c_j| \,/\, \sum_j c_j$, from 0 to 2.

    Parameters
    ----------
    attention
        Row-stochastic $\Pi$.
    columns
        Masses $c$ that were asked for.
    queries
        The rows that count; all by default.
    """
    reached = attention if queries is None else attention * queries[..., None]
    total = columns.sum(-1).clamp_min(torch.finfo(columns.dtype).tiny)
    return (reached.sum(-2) - columns).abs().sum(-1) / total


def even_columns(logits: Logits, *, queries: Queries = None) -> Columns:
    """The same mass for every key that a counted row sees; as many in all as counted rows."""
    z, counted = _checked(logits, 0, queries)
    seen = _seen(z, counted)
    share = counted.sum(-1, keepdim=True).to(z) / seen.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(seen, share, 0.0)


def spread_columns(logits: Logits, *, queries: Queries = None) -> Columns:
    r"""Column masses when every counted row spreads evenly over the keys it may see.

    They are what the mask alone gives each key, before any preference; reachable under every mask,
    because that coupling reaches them. Causal: $c_j = \sum_{i \ge j} 1/i$.
    """
    z, counted = _checked(logits, 0, queries)
    allowed = ((z > -torch.inf) & counted[..., None]).to(z.dtype)
    return (allowed / allowed.sum(-1, keepdim=True).clamp_min(1)).sum(-2)


def causal_columns(
    length: int, evenness: float = 0.0, *, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "m"]:
    r"""Column masses that a causal mask can reach, between a plain spread and equal columns.

    $$
    c_j = (1-s) \sum_{i=j}^{n} \tfrac1i + s .
    $$

    Reachable masses are a convex set. At $s = 0$ stand the columns of uniform causal attention,
    strictly inside ($\sum_{j\le i}c_j - i = i(H_n - H_i)$ with harmonic numbers $H$); at $s = 1$
    equal columns, on its border, where only the identity is left. The mixture is strictly inside
    for every $s < 1$, with the slack $(1-s)\,i(H_n - H_i)$. (The columns of a model's own softmax
    are reachable too, but of its own making: prescribing them changes nothing.)

    Parameters
    ----------
    length
        Sequence length $n$.
    evenness
        $s$, from 0 up to but without 1.

    Examples
    --------
    >>> causal_columns(3)
    tensor([1.8333, 0.8333, 0.3333], dtype=torch.float64)
    >>> causal_columns(3, 0.5)
    tensor([1.4167, 0.9167, 0.6667], dtype=torch.float64)
    """
    if length < 1 or not 0 <= evenness < 1:
        raise InvalidInputError(
            f"causal_columns expects length >= 1 and 0 <= evenness < 1; got {length}, {evenness}. "
            "At evenness 1 the identity is the only causal attention left."
        )
    spread = (1.0 / torch.arange(1, length + 1, dtype=torch.float64)).flip(0).cumsum(0).flip(0)
    return ((1.0 - evenness) * spread + evenness).to(dtype)


def _checked(logits: Logits, iterations: int, queries: Queries) -> tuple[Logits, Tensor]:
    """The logits in float32 or better, and the rows that count: asked for and not empty."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
        raise InvalidInputError(f"iterations must be a whole number >= 0; got {iterations!r}.")
    if logits.ndim < 2 or not logits.is_floating_point():
        raise InvalidInputError(
            "Attention logits must be floating-point numbers of shape (..., queries, keys); got "
            f"{logits.dtype} of shape {tuple(logits.shape)}."
        )
    if not bool((logits < torch.inf).all()):
        raise InvalidInputError(
            "Attention logits must be finite, or -inf where masked; found NaN or +inf."
        )
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    counted = (z > -torch.inf).any(-1)
    return z, counted if queries is None else counted & queries


def _seen(z: Logits, counted: Tensor) -> Bool[Tensor, "*batch m"]:
    return ((z > -torch.inf) & counted[..., None]).any(-2)


def _softmax(z: Logits) -> Logits:
    empty = ~(z > -torch.inf).any(-1, keepdim=True)
    return torch.softmax(z.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def _iterated(
    z: Logits, counted: Tensor, seen: Tensor, c: Tensor, iterations: int, relaxation: float
) -> Logits:
    """The iterations; ``seen`` and ``c`` are per column, or per row and column: then online."""
    if not relaxation >= 0:
        raise InvalidInputError(f"relaxation must be zero or positive; got {relaxation}.")
    online = seen.ndim == z.ndim
    if not online:
        seen, c = seen[..., None, :], c[..., None, :]
    if not bool(((c > 0) & (c < torch.inf) | ~seen).all()):
        raise InvalidInputError(
            "Every key that is seen needs a positive, finite column mass; mask a key by -inf in "
            "the logits to give it none."
        )
    log_c = torch.where(seen, c, 1.0).log()
    empty = ~(z > -torch.inf).any(-1, keepdim=True)
    over_keys = z.masked_fill(empty, 0.0)
    # A logarithm of a sum has no gradient where all is -inf: a number whose exponential vanishes
    # stands in for it, and what is made of nothing else is set aside.
    present = (z > -torch.inf) & counted[..., None]
    over_queries = z.masked_fill(~present, torch.finfo(z.dtype).min / 4)
    damping = 1.0 if relaxation == math.inf else relaxation / (1.0 + relaxation)
    g = torch.zeros_like(log_c)
    for _ in range(iterations):
        scaled = over_queries - torch.logsumexp(over_keys + g, -1, keepdim=True)
        received = (
            torch.logcumsumexp(scaled, -2) if online else torch.logsumexp(scaled, -2, keepdim=True)
        )
        g = (damping * (log_c - received)).masked_fill(~seen, 0.0)
    tilt = torch.where(counted[..., None], g, 0.0)
    return torch.softmax(over_keys + tilt, -1).masked_fill(empty, 0.0)


def _refuse_unreachable(
    z: Logits, columns: Columns, queries: Queries, problem: str, remedy: str
) -> None:
    """Raise unless every prefix of the columns gets a mass that the mask allows.

    Rows confined to the prefix put all their mass there, rows that touch it may put some: the mass
    lies strictly between their numbers, or equals both.
    """
    m = z.shape[-1]
    if columns.shape[-1] != m:
        raise InvalidInputError(f"columns needs {m} masses, one a key; got {columns.shape[-1]}.")
    _, counted = _checked(z, 0, queries)
    allowed = ((z > -torch.inf) & counted[..., None]).to(torch.uint8)
    first, last = allowed.argmax(-1), m - 1 - allowed.flip(-1).argmax(-1)
    zeros = torch.zeros((*z.shape[:-2], m), dtype=torch.long, device=z.device)
    confined = zeros.scatter_add(-1, last, counted.long()).cumsum(-1).cpu()
    touching = zeros.scatter_add(-1, first, counted.long()).cumsum(-1).cpu()
    mass = columns.detach().cpu().double().cumsum(-1).expand(confined.shape)
    slack = 4 * torch.finfo(columns.dtype).eps * mass.abs()
    inside = (mass > confined + slack) & (mass < touching - slack)
    wrong = ~torch.where(confined == touching, (mass - confined).abs() <= slack, inside)
    if not bool(wrong.any()):
        return
    where = tuple(wrong.nonzero()[0].tolist())
    prefix, low, high = where[-1] + 1, int(confined[where]), int(touching[where])
    bounds = f"must be {low}" if low == high else f"must lie strictly between {low} and {high}"
    raise InvalidInputError(
        f"{problem}: the mass of the first {prefix} of {m} columns {bounds} ({low} "
        f"queries see nothing else); got {float(mass[where]):.6g}. {remedy}"
    )
