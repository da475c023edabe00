r"""What the measuring pass of an audit takes: time and memory, from timings on this machine.

A pass over T tokens runs the model once and makes the output of L + 1 states of every token, with
its statistics. Both parts are timed on a small batch and grow with the number of tokens,

.. math:: t = T (t_{forward} + (L + 1) t_{output}), \qquad
          t_{control} = t \, n_{control} / n_{prompts}.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from flowscope.flows import DepthMeter
from flowscope.lab.config import ReadingConfig
from flowscope.probes import positions_readout, rows_at_once
from flowscope.records import Unavailable
from flowscope.tap import Anatomy, Chain, Tail

__all__ = ["Estimate", "audit_estimate", "measuring_cost"]

_ROUNDS = 3
_ROWS = 256
_DEFAULT = {name: ReadingConfig.model_fields[name].default for name in
            ("prompts", "tokens", "batch", "control_prompts")}  # fmt: skip
_HELD = 2**26  # logits of one batch, as long as they are few enough


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and memory of the measuring pass of an audit with default settings.

    Attributes
    ----------
    prompts, tokens
        Prompts, and tokens of each; the time grows with their product.
    seconds
        The whole pass with its control, a network with random weights on a few prompts.
    forward, outputs
        Its two parts without the control: the model itself; the output and its statistics at
        every layer.
    bytes
        Weights of the model and of the control, and the logits of one batch.
    device
        Where the model is.
    """

    prompts: int
    tokens: int
    seconds: float
    forward: float
    outputs: float
    bytes: int
    device: str

    @property
    def words(self) -> str:
        """The estimate in one sentence."""
        return (
            f"an audit of {self.prompts} prompts of {self.tokens} tokens measures for about "
            f"{_duration(self.seconds)} on {self.device} (model {_duration(self.forward)}, outputs "
            f"of all layers {_duration(self.outputs)}, the rest is the control) and needs about "
            f"{self.bytes / 1e9:.2g} GB; fitting and judging come on top, mostly on the CPU"
        )

    def to_json(self) -> dict[str, Any]:
        """A document of plain values."""
        return asdict(self)


def audit_estimate(
    model: nn.Module, batch: dict[str, Any], anatomy: Anatomy, state: Tensor | None
) -> Estimate | Unavailable:
    """Estimate of the measuring pass of an audit, or why an audit reads no outputs along depth.

    Parameters
    ----------
    model, batch
        The model, and a batch that it accepts.
    anatomy
        What a pass of it has shown.
    state
        Hidden states ``[batch, length, d]`` behind its last block.
    """
    tail, depth, ids = anatomy.tail, anatomy.depth, batch.get("input_ids")
    if not isinstance(tail, Tail) or not tail.positionwise or tail.target != "logits":
        return Unavailable("the model has no output over outcomes at every position")
    if not isinstance(depth, Chain) or not isinstance(ids, Tensor) or state is None:
        return Unavailable("the model reads no token ids along a depth")
    rows = min(_ROWS, rows_at_once(tail.width, state.device))
    states = state.detach().flatten(0, 1)
    states = states.to(torch.promote_types(states.dtype, torch.float32))
    hidden = states.repeat(-(-rows // len(states)), 1)[:rows]
    readout = positions_readout(tail)
    logits = readout(hidden)
    meter = DepthMeter(rows, tail.width, dtype=logits.dtype, device=logits.device)
    meter.start(slice(0, rows), logits)
    forward = _seconds(lambda: model(**batch), state.device)
    output = _seconds(lambda: meter.advance(slice(0, rows), readout(hidden)), logits.device)
    return measuring_cost(
        forward=forward / ids.numel(),
        output=output / rows,
        states=len(depth) + 1,
        width=tail.width,
        weights=sum(w.numel() * w.dtype.itemsize for w in model.parameters()),
        device=str(state.device),
    )


def measuring_cost(
    *, forward: float, output: float, states: int, width: int, weights: int, device: str
) -> Estimate:
    """Estimate of a default audit from seconds per token.

    Parameters
    ----------
    forward, output
        Seconds per token of the model, and of one output with its statistics.
    states, width
        States of a token (one more than layers), and outcomes of an output.
    weights
        Bytes of the weights.
    device
        Where the model is.

    Examples
    --------
    >>> cost = measuring_cost(
    ...     forward=1e-3, output=1e-4, states=11, width=50_000, weights=10**9, device="cpu"
    ... )
    >>> cost.forward, round(cost.outputs, 3), round(cost.seconds, 3)
    (8.192, 9.011, 19.354)
    """
    prompts, tokens = _DEFAULT["prompts"], _DEFAULT["tokens"]
    whole = prompts * tokens
    held = min(max(_HELD, tokens * width), _DEFAULT["batch"] * tokens * width)
    measured = whole * (forward + states * output)
    return Estimate(
        prompts=prompts,
        tokens=tokens,
        seconds=measured * (1 + _DEFAULT["control_prompts"] / prompts),
        forward=whole * forward,
        outputs=whole * states * output,
        bytes=2 * weights + held * torch.float32.itemsize,
        device=device,
    )


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """Shortest of a few calls, after one that is not counted."""
    call()
    times = []
    for _ in range(_ROUNDS):
        _finished(device)
        began = time.perf_counter()
        call()
        _finished(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
