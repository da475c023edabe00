r"""Attention with another temperature, or with other key norms, on the live model.

* *Temperature* $\tau$: all attention logits divided by $\tau$ (soft-cap and additive bias
  included), $P_i = \operatorname{softmax}(z_i / \tau)$.
* *Key norm* $s$: $k_j \to k_j\,(\lVert k_j\rVert / m)^{s-1}$ with $m$ the geometric mean of the key
  norms of a head in a prompt. $s = 1$ is the model, $s = 0$ gives all keys of a head one norm,
  $s = 2$ doubles every deviation of the log-norm. Scaling all keys *alike* is a temperature, so a
  sweep that is to say anything else must change the norms relative to each other; their mean
  logarithm stays.

$m$ is taken over the whole prompt, so for a causal model a row depends on the *size* of later keys
through one number per head.

000 (M.1, M.6) predicts that $1 - \kappa$ falls with the temperature and with smaller key norms. It
has no sign (errata E07): what is measured is reported.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.tap import AttentionCall

__all__ = ["Setting", "altered", "attention_output"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One point of a sweep; 1 leaves the model as it is."""

    kind: Literal["temperature", "key_norm"]
    value: float

    def __post_init__(self) -> None:
        if self.kind == "temperature" and not self.value > 0:
            raise InvalidInputError(f"a temperature must be above 0; found {self.value!r}.")


def altered(
    call: AttentionCall, setting: Setting, counted: Bool[Tensor, "batch length"]
) -> AttentionCall:
    """The same call under another setting: its logits and probabilities are the altered ones.

    Parameters
    ----------
    call, setting
        What, and how.
    counted
        Which positions count (padding does not): the mean key norm is taken over them.

    Notes
    -----
    The kernel of the model knows nothing of it: take the output from `attention_output`.
    """
    if setting.kind == "temperature":
        tau, mask = setting.value, call.mask
        if mask is not None and mask.is_floating_point():
            mask = mask / tau
        cap = None if call.softcap is None else call.softcap / tau
        return replace(call, scale=call.scale / tau, softcap=cap, mask=mask)
    return replace(call, k=_spread_keys(call.k, setting.value, counted))


def _spread_keys(
    k: Float[Tensor, "batch H L d"], power: float, counted: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch H L d"]:
    wide = k.to(torch.promote_types(k.dtype, torch.float32))
    norms = wide.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(wide.dtype).tiny).log()
    own = counted.to(k.device) if counted.shape[1] == k.shape[-2] else counted.new_ones(1, 1)
    weight = own.to(wide)[:, None, :, None].expand_as(norms)
    mean = (norms * weight).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True)
    scaled: Tensor = wide * ((power - 1) * (norms - mean)).exp()
    return scaled.to(k.dtype)


def attention_output(call: AttentionCall, *, chunk: int = 128) -> Float[Tensor, "batch H L dv"]:
    """Output of a call from its own probabilities, ``chunk`` rows at a time."""
    v = call.v
    if v.shape[-3] != call.q.shape[-3]:
        v = v.repeat_interleave(call.q.shape[-3] // v.shape[-3], dim=-3)
    parts = []
    for start in range(0, call.q.shape[-2], chunk):
        p = call.probabilities(slice(start, start + chunk))
        parts.append((p @ v.to(p.dtype)).to(v.dtype))
    return torch.cat(parts, dim=-2)
