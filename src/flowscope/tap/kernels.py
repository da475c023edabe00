"""The functions through which attention runs, and what a call of each asks for.

Two seams lead to one `Request`:

1. ``torch.nn.functional.scaled_dot_product_attention``, which nearly every model calls;
2. `interface_attention`, registered with ``transformers.AttentionInterface`` for models that
   transformers refuses to run on the first (soft-capped logits) or that were loaded on another
   backend. It answers to torch function modes, so one mode sees both.

The first is heard by its name where a model looks the name up at each call, and by a torch function
mode elsewhere. ``F.multi_head_attention_forward`` swallows torch function modes; `multi_head` lets
the call inside it be heard. Everything is switched for the thread that asks; other threads run as
before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from flowscope.errors import UnsupportedModelError
from flowscope.tap.dispatch import ATTENTION, is_switched, routed_calls, switched

__all__ = [
    "INTERFACE",
    "REQUESTS",
    "Request",
    "attention_configs",
    "interface_attention",
    "multi_head",
    "switched_backend",
]

INTERFACE: Final = "flowscope"
_BACKEND: Final = "_attn_implementation"


@dataclass(slots=True, eq=False)
class Request:
    """One attention call, whichever function it came through."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    softcap: float | None
    dropout: float
    kernel: Callable[[], Tensor]

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything that decides the call but the numbers in its tensors."""
        tensors = [(x.shape, x.dtype) for x in (self.q, self.k, self.v)]
        mask = None if self.mask is None else (self.mask.shape, self.mask.dtype)
        return (*tensors, mask, self.causal, self.scale, self.softcap, self.dropout)


def _from_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Request:
    return Request(
        query,
        key,
        value,
        attn_mask,
        is_causal,
        query.shape[-1] ** -0.5 if scale is None else scale,
        None,
        dropout_p,
        partial(_sdpa, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa),
    )


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, mask, dropout, causal, scale=scale, enable_gqa=grouped
    )


def interface_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    dropout: float,
) -> Tensor:
    """Attention with an optional soft-cap, as the eager code of transformers computes it.

    Products in the dtype of the model, softmax in float32; a row that may attend to nothing is
    uniform, as there (torch's own kernel gives zeros).
    """
    if has_torch_function((query, key, value)):
        arguments = (query, key, value, mask, scale, softcap, dropout)
        result: Tensor = handle_torch_function(interface_attention, arguments[:3], *arguments)
        return result
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    logits = query @ key.mT * scale
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    elif mask is not None:
        logits = logits + mask
    weights = torch.softmax(logits, -1, dtype=torch.float32).to(query.dtype)
    return F.dropout(weights, dropout) @ value if dropout else weights @ value


def _from_interface(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    dropout: float,
) -> Request:
    kernel = partial(interface_attention, query, key, value, mask, scale, softcap, dropout)
    return Request(query, key, value, mask, False, scale, softcap, dropout, kernel)


REQUESTS: Final[dict[Callable[..., Any], Callable[..., Request]]] = {
    ATTENTION: _from_sdpa,
    interface_attention: _from_interface,
}


def multi_head(attend: Callable[..., Tensor], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Run ``F.multi_head_attention_forward`` with the attention inside it sent to ``attend``."""
    with routed_calls(attend):
        return F.multi_head_attention_forward(*args, **kwargs)


def attention_configs(root: nn.Module) -> list[Any]:
    """Configurations of transformers models that choose an attention backend, outermost first."""
    holders = (getattr(module, "config", None) for module in root.modules())
    configs = {id(c): c for c in holders if isinstance(getattr(type(c), _BACKEND, None), property)}
    for config in list(configs.values()):
        parts = (getattr(config, name, None) for name in getattr(config, "sub_configs", ()))
        configs.update((id(part), part) for part in parts if hasattr(part, _BACKEND))
    return list(configs.values())


@contextmanager
def switched_backend(configs: list[Any]) -> Iterator[None]:
    """Let this thread's passes read `INTERFACE` as the backend of these configurations.

    The configurations themselves stay as they are, so that nothing has to be put back.
    """
    _register_interface()
    for config in configs:
        _read_per_thread(type(config))
    with switched(configs):
        yield


def _read_per_thread(kind: Any) -> None:
    """Make the backend of configurations of a class depend on the thread that reads it."""
    owner: Any = next(base for base in kind.__mro__ if _BACKEND in vars(base))
    beneath: property = vars(owner)[_BACKEND]
    if beneath.fget is None or getattr(beneath.fget, "per_thread", False):
        return
    read = beneath.fget

    def backend(config: Any) -> Any:
        return INTERFACE if is_switched(config) else read(config)

    backend.per_thread = True  # type: ignore[attr-defined]
    setattr(owner, _BACKEND, property(backend, beneath.fset, beneath.fdel, beneath.__doc__))


@cache
def _register_interface() -> None:
    """Make `INTERFACE` known to transformers, as an attention and as its mask twin."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        **rest: Any,
    ) -> tuple[Tensor, None]:
        for name in ("s_aux", "head_mask", "position_bias"):
            if rest.get(name) is not None:
                raise UnsupportedModelError(
                    f"{type(module).__name__} passes {name} to its attention; an attention call "
                    "can hold q, k, v, mask, scale and soft-cap only, so this model is not read."
                )
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = interface_attention(query, key, value, attention_mask, scale, softcap, dropout)
        return out.transpose(1, 2).contiguous(), None

    def mask(*args: Any, **kwargs: Any) -> Tensor | None:
        # A skipped mask would hide causality in a flag that this interface does not carry.
        skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        made: Tensor | None = sdpa_mask(*args, **{**kwargs, **skips})
        return made

    AttentionInterface.register(INTERFACE, attention)
    AttentionMaskInterface.register(INTERFACE, mask)
