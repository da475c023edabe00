r"""Dials on scores: attention logits with one sector turned up, down or off.

With the sectors of $d^\rightarrow$ (`bidivergence`) and dials $s_m, s_e, s_f$

$$
z_{ij} = \beta\bigl(w_i - s_m \tfrac12 D_{ij} - s_e \tfrac12 (w_i - w_j) + s_f A_{ij}\bigr) ,
$$

which is $\beta W_{ij}$ itself at $(1,1,1)$; the row term $\beta w_i$, of no matter to a softmax, is
there for that. In terms of queries and keys, with $m = (q+k)/\sqrt2$, $n = (q-k)/\sqrt2$ and
$g_i = \frac12\Vert m_i\Vert^2 - \frac b2\Vert n_i\Vert^2$, the *operator square* is

$$
z_{ij} = \beta\Bigl(\tfrac12\langle m_i, m_j\rangle - \tfrac b2 \langle n_i, n_j\rangle + a A_{ij}
    + (1-a)\tfrac12 (g_i - g_j)\Bigr) .
$$

**Causality.** An entry $(i,j)$ depends on tokens $i$ and $j$ alone, so a causal model whose logits
are dialled and *then* masked stays causal. Degrees are sums over tokens; `degree_tilt` can take
them up to each row.

**Gauge.** A row constant of $W$ tilts the columns by $\frac12(s_e - s_f)c_j$: dials that treat the
exact part and the flux alike are free of it, others refer to the $W$ they were given. For $W = q
\cdot k$ that is a choice of the model (a bias of the keys adds a row constant).

Masked pairs stay masked. All is differentiable and batched over leading axes. Source 002.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.markov.bidivergence import Bidivergence
from flowscope.markov.scores import as_scores, as_share, as_strength
from flowscope.simplex.probability import ArrayLike, as_reals, refuse, within_range

__all__ = ["degree_tilt", "dialled_logits", "operator_square"]


def dialled_logits(
    scores: Tensor | ArrayLike,
    beta: Tensor | float = 1.0,
    *,
    metric: Tensor | float = 1.0,
    exact: Tensor | float = 1.0,
    flux: Tensor | float = 1.0,
) -> Float[Tensor, "*batch N N"]:
    """Attention logits with each sector of the scores times a dial.

    Parameters
    ----------
    scores
        W, square, before a causal mask; −∞ on both sides of a pair or on none.
    beta
        β > 0, one number or one for each matrix.
    metric, exact, flux
        Dials, finite, one number or one for each matrix. (1, 1, 1) gives βW to rounding,
        (1, 0, 0) softmax(−½βD), (2, 0, 0) the diffusion map.

    Raises
    ------
    InvalidInputError
        As for `Bidivergence`; for β not positive, dials that are not finite.

    Examples
    --------
    >>> W = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    >>> dialled_logits(W)
    tensor([[1., 3.],
            [0., 2.]])
    >>> torch.softmax(dialled_logits(W, exact=0.0, flux=0.0), -1)  # D is zero here
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    W = as_scores(scores)
    b = as_strength(beta, W)
    s_m, s_e, s_f = (
        _dial(value, W, name)
        for value, name in ((metric, "metric"), (exact, "exact"), (flux, "flux"))
    )
    parts = Bidivergence(scores=W)
    masked = W.isneginf()
    half = parts.metric.masked_fill(masked, 0.0)  # 0 · ∞ is not a number
    w = W.diagonal(dim1=-2, dim2=-1)[..., :, None]
    z = b * (w - s_m * half - s_e * parts.exact + s_f * parts.flux)
    within_range(z, "Logits of these scores", infinite=True)
    return z.masked_fill(masked, -torch.inf)


def operator_square(
    q: Tensor | ArrayLike,
    k: Tensor | ArrayLike,
    beta: Tensor | float = 1.0,
    *,
    a: Tensor | float = 1.0,
    b: Tensor | float = 1.0,
) -> Float[Tensor, "*batch N N"]:
    r"""Logits between attention and two diffusion maps, from queries and keys.

    Parameters
    ----------
    q, k
        Queries and keys of the same tokens, shape (…, N, d).
    beta
        β > 0, one number or one for each matrix.
    a, b
        Any finite numbers. (1, 1) is attention, (0, 1) softmax(−½βD), which is reversible,
        (0, 0) softmax(−¼β‖m_i − m_j‖²), a diffusion map of points.

    Raises
    ------
    InvalidInputError
        For shapes that differ, one token, numbers that are not finite, β not positive.

    Examples
    --------
    >>> q, k = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [-1.0]])
    >>> torch.softmax(operator_square(q, k), -1) - torch.softmax(q @ k.mT, -1)
    tensor([[0., 0.],
            [0., 0.]])
    """
    queries, keys = (as_reals(x, name) for x, name in ((q, "q"), (k, "k")))
    if queries.ndim < 2 or queries.shape != keys.shape:
        raise InvalidInputError(
            "q and k must have the same shape, (…, tokens by width); found "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}. Repeat key heads that serve several "
            "query heads; cross-attention has no square."
        )
    for x, name in ((queries, "q"), (keys, "k")):
        refuse(~x.isfinite(), x, f"{name} must be finite", "Look for the overflow upstream.")
    W = as_scores(queries @ keys.mT, "q · k")
    s_a, s_b = _dial(a, W, "a"), _dial(b, W, "b")
    m, n = queries + keys, queries - keys
    S = (m @ m.mT - s_b * (n @ n.mT)) / 4
    g = S.diagonal(dim1=-2, dim2=-1)
    tilt = (g[..., :, None] - g[..., None, :]) / 2
    z = as_strength(beta, W) * (S + s_a * (W - W.mT) / 2 + (1 - s_a) * tilt)
    return within_range(z, "Logits of these queries and keys", infinite=True)


def degree_tilt(
    scores: Tensor | ArrayLike,
    beta: Tensor | float = 1.0,
    *,
    alpha: float,
    metric: Tensor | float = 1.0,
    causal: bool = False,
) -> Float[Tensor, "*batch N N"]:
    r"""What to add to logits so that crowded tokens draw less: the α-normalisation as a dial.

    .. math:: -\alpha \log g_{ij}, \qquad
              g_{ij} = \sum_{j'} e^{-\frac12 s_m \beta D_{jj'}}
              \quad\text{or, causal,}\quad \sum_{j' \le i}

    Parameters
    ----------
    scores, beta, metric
        As for `dialled_logits`.
    alpha
        α in [0, 1].
    causal
        Whether row i may count tokens up to i only, itself included. Entries with j > i are zero:
        they are for the mask.

    Returns
    -------
    Tensor
        (…, N, N) numbers to add to logits. Added to those of metric 2, exact 0, flux 0, with the
        same metric here, it gives `diffusion_kernel(scores, beta, alpha)`.

    Raises
    ------
    InvalidInputError
        As for `dialled_logits`; for α outside [0, 1].

    Examples
    --------
    >>> degree_tilt(torch.zeros(3, 3), alpha=1.0, causal=True)
    tensor([[-0.0000,  0.0000,  0.0000],
            [-0.6931, -0.6931,  0.0000],
            [-1.0986, -1.0986, -1.0986]])
    """
    W = as_scores(scores)
    share, s_m, b = as_share(alpha, "alpha"), _dial(metric, W, "metric"), as_strength(beta, W)
    masked = W.isneginf()
    half = Bidivergence(scores=W).metric.masked_fill(masked, 0.0)
    log_K = -b * s_m * half
    within_range(log_K, "The tilt of these scores", infinite=True)
    log_K = log_K.masked_fill(masked, -torch.inf)
    if not causal:
        return (-share * torch.logsumexp(log_K, -1))[..., None, :].expand_as(W)
    ahead = torch.ones(W.shape[-2:], dtype=torch.bool, device=W.device).triu(1)
    # K is symmetric: entry (i, j) sums column j up to row i, and (j, j) is in it when j ≤ i
    log_g = torch.logcumsumexp(log_K, -2)
    return (-share * log_g.masked_fill(ahead, 0.0)).masked_fill(ahead, 0.0)


def _dial(
    value: Tensor | float, like: Float[Tensor, "*batch N N"], name: str
) -> Float[Tensor, "*batch 1 1"]:
    """Read one finite number, or one for each matrix of the batch."""
    s = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    refuse(~s.isfinite(), s, f"{name} must be finite", "Turn a sector off with 0.")
    if s.ndim and s.shape != like.shape[:-2]:
        raise InvalidInputError(
            f"{name} must be one number or one for each matrix of the batch "
            f"{tuple(like.shape[:-2])}; found shape {tuple(s.shape)}."
        )
    return s[..., None, None]
