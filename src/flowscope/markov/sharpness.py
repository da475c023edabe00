r"""How sharp attention is, the scale of logits that makes it as sharp as wanted, permuted keys.

A row $P_i = \operatorname{softmax}_j(\beta z_{ij})$ spreads over $e^{H(P_i)}$ keys, and the
*effective keys* of a head are their mean over the rows. They fall with $\beta$, strictly unless all
logits of every row are equal: with $\operatorname{Var}_i$ the variance of $z_{i\cdot}$ under $P_i$,

$$ \frac{d H(P_i)}{d \beta} = -\beta \operatorname{Var}_i \le 0 . $$

So there is one scale $\beta$ for each number of keys between one and what the mask leaves. Two
chains of equal effective keys are equally sharp; what else differs between them does not come from
the size of their logits.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import refuse, within_range

__all__ = ["effective_keys", "keys_permuted", "matching_scale"]

_TOLERANCE = 1e-3  # of log keys, or of what they lack to uniform; log σ moves by about as much
_ROUNDING = 4e-6  # of log keys in float32
_STEPS = 60
_LARGEST = 1e6  # scales beyond are refused: the logits of a head differ by rounding only


def effective_keys(logits: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """Mean over rows of the exponential of the entropy of attention.

    Examples
    --------
    >>> effective_keys(torch.zeros(4, 4))
    tensor(4.)
    """
    return within_range(_keys_and_slope(logits)[0], "The effective keys of these logits")


def _keys_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Effective keys, and the derivative of their logarithm by the logarithm of a scale."""
    P = torch.softmax(logits, -1)
    # From the peak, so that no large number is taken from another; where P is 0, nothing is seen.
    seen = (logits - logits.amax(-1, keepdim=True)).masked_fill(P == 0, 0.0)
    # log Σ e^z = max z − log max P: the sum was taken by the softmax already
    total = -P.amax(-1, keepdim=True).log()
    mean = (P * seen).sum(-1, keepdim=True)
    keys = (total - mean)[..., 0].exp()
    variance = (P * (seen - mean).square()).sum(-1)
    return keys.mean(-1), -(keys * variance).mean(-1) / keys.mean(-1)


def matching_scale(
    logits: Float[Tensor, "*batch n n"], keys: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Factor on the logits of each head with which its rows spread over that many keys.

    Parameters
    ----------
    logits
        Attention logits, −∞ where there is no such pair.
    keys
        Effective keys that are wanted, one number per head.

    Returns
    -------
    The factors; NaN where no factor up to 1e6 gives that many keys: more than the mask leaves, less
    than one, or logits that are the same for every key.

    Notes
    -----
    Newton's method in the logarithm of the factor, inside a bracket that is halved where a step
    leaves it. Ends within 0.1 % of the wanted keys, for flat rows of what they lack to uniform.

    Examples
    --------
    >>> z = torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [0.5, 1.5, 0.0]])
    >>> scale = matching_scale(2 * z, effective_keys(z))
    >>> round(float(scale), 2)
    0.5
    """
    n = logits.shape[-1]
    z = logits.reshape(-1, n, n)
    wanted = keys.reshape(-1).to(z).clamp_min(0.0).log()
    size = (~z.isneginf()).sum(-1).to(z)
    room = size.log().mean(-1) - wanted
    bound = (_TOLERANCE * room.clamp_max(1.0)).clamp_min(_ROUNDING)
    log_scale = _first_guess(z, room, size)
    low, high = (torch.full_like(wanted, sign * math.log(_LARGEST)) for sign in (-1, 1))
    result = torch.full_like(wanted, torch.nan)
    left = torch.arange(len(z), device=z.device)[wanted.isfinite() & log_scale.isfinite()]
    for _ in range(_STEPS):
        if not len(left):
            break
        at = log_scale[left]
        found, slope = _keys_and_slope(z[left] * at.exp()[:, None, None])
        gap = found.log() - wanted[left]
        settled = gap.abs() <= bound[left]
        result[left[settled]] = at[settled].exp()
        low[left] = torch.where(gap > 0, at, low[left])
        high[left] = torch.where(gap < 0, at, high[left])
        step = at - gap / slope
        inside = (step > low[left]) & (step < high[left])
        log_scale[left] = torch.where(inside, step, (low[left] + high[left]) / 2)
        left = left[~settled]
    return result.reshape(logits.shape[:-2])


def _first_guess(z: Tensor, room: Tensor, size: Tensor) -> Tensor:
    """Logarithm of the scale if every row were Gaussian: H = log n − β² Var / 2."""
    known = ~z.isneginf()
    seen = z.masked_fill(~known, 0.0)
    mean = seen.sum(-1, keepdim=True) / size[..., None]
    variance = ((seen - mean).masked_fill(~known, 0.0).square().sum(-1) / size).mean(-1)
    guess = (2 * room.clamp_min(1e-6) / variance.clamp_min(torch.finfo(z.dtype).tiny)).log() / 2
    limit = math.log(_LARGEST)
    return torch.where(variance > 0, guess.clamp(-limit, limit), torch.nan)


def keys_permuted(
    logits: Float[Tensor, "*batch n n"], order: Int[Tensor, " n"]
) -> Float[Tensor, "*batch n n"]:
    r"""Logits with the keys in another order, each token's weight on itself kept.

    Row $i$ reads $z_{i,o(j)}$ in place of $z_{ij}$, except that it keeps $z_{ii}$: the entry that
    would have taken its place goes to where $z_{ii}$ would have gone. Every row keeps its weights,
    so its effective keys, and nearly every column stays a column; where $i$ looks has nothing to do
    any more with where $j$ looks.

    Parameters
    ----------
    logits
        Logits of every pair.
    order
        $o$, a permutation of the tokens.

    Raises
    ------
    InvalidInputError
        The order is no permutation.

    Examples
    --------
    >>> z = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
    >>> keys_permuted(z, torch.tensor([1, 2, 0]))
    tensor([[0., 2., 1.],
            [5., 4., 3.],
            [7., 6., 8.]])
    """
    n = logits.shape[-1]
    if order.shape != (n,) or not bool((order.sort().values.cpu() == torch.arange(n)).all()):
        raise InvalidInputError(
            f"order must be a permutation of {n} tokens; got {order.tolist()!r}. "
            "Give each token's number once."
        )
    refuse(logits.isnan(), logits, "logits must not be NaN", "Look for the overflow upstream.")
    place = torch.arange(n, device=order.device)
    source = order.expand(n, n).clone()
    inverse = order.argsort()
    source[place, inverse] = order
    source[place, place] = place
    return logits.gather(-1, source.to(logits.device).expand(logits.shape))
