r"""What the measuring pass of an audit takes: time and memory, from timings on this machine.

A pass over T tokens in n prompts runs the model once, makes the output of L + 1 states of every
token with its statistics, reads the attention of every layer, and compares the steps of a few
tokens of each prompt. The parts are timed on a small batch, the last two in one layer of a prompt,

.. math:: t = T (t_{forward} + (L + 1) t_{output}) + n L (t_{attention} + t_{compared}).

A control with random weights does the same on fewer prompts, without permuted keys.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowscope.errors import FlowscopeError
from flowscope.flows import DepthMeter
from flowscope.lab.config import ReadingConfig
from flowscope.probes import (
    AttentionEntropyProbe,
    AttentionInputs,
    CurvatureProbe,
    InputBatch,
    PlainBatch,
    TapProbe,
    TransplantProbe,
    positions_readout,
    rows_at_once,
    spaced_rows,
    tap_pass,
)
from flowscope.records import Unavailable
from flowscope.tap import Anatomy, AttentionCall, BlockPass, Chain, Tail

__all__ = ["Estimate", "audit_estimate", "measuring_cost"]

_ROUNDS = 3
_ROWS = 256
_DEFAULT = {name: ReadingConfig.model_fields[name].default for name in
            ("prompts", "tokens", "batch", "control_prompts")}  # fmt: skip
_HELD = 2**26  # logits of one batch, as long as they are few enough
PAIRS, COMPARED = 4, 24
"""Pairs of rows and compared tokens per prompt, as an audit has them by default."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and memory of the measuring pass of an audit with default settings.

    Attributes
    ----------
    prompts, tokens
        Prompts, and tokens of each; the time grows with their product.
    seconds
        The whole pass with its control, a network with random weights on a few prompts.
    forward, outputs, attention, compared
        Its parts without the control: the model itself; the output and its statistics at every
        layer; entropy and curvature of every head; the compared steps of a few tokens.
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
    attention: float
    compared: float
    bytes: int
    device: str

    @property
    def words(self) -> str:
        """The estimate in one sentence."""
        return (
            f"an audit of {self.prompts} prompts of {self.tokens} tokens measures for about "
            f"{_duration(self.seconds)} on {self.device} (model {_duration(self.forward)}, "
            f"outputs of all layers {_duration(self.outputs)}, attention "
            f"{_duration(self.attention)}, steps compared {_duration(self.compared)}, the rest is "
            f"the control) and needs about {self.bytes / 1e9:.2g} GB; fitting and judging come on "
            "top, one to four minutes on two CPU cores for models of 14 to 30 layers"
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
    # Another state at each call: a step that stands still is summed twice, which layers seldom do.
    turns = itertools.cycle([hidden.roll(1, 0), hidden])
    output = _seconds(lambda: meter.advance(slice(0, rows), readout(next(turns))), logits.device)
    layer = _OneLayer(state.device)
    one = _one_prompt(model, batch, ids, state)
    try:
        for _ in range(2):  # the first call imports and fills caches
            tap_pass(model, [one], {"one layer": layer})
    except (FlowscopeError, RuntimeError, IndexError, ValueError) as error:
        said = str(error).strip().partition("\n")[0]
        return Unavailable(f"a prompt of {one.mask.shape[1]} tokens could not be read: {said}")
    return measuring_cost(
        forward=forward / ids.numel(),
        output=output / rows,
        attention=layer.attention_seconds,
        compared=layer.compared_seconds,
        states=len(depth) + 1,
        width=tail.width,
        weights=sum(w.numel() * w.dtype.itemsize for w in model.parameters()),
        device=str(state.device),
    )


class _OneLayer(TapProbe):
    """Times what an audit reads of one layer of a prompt beside the outputs of all tokens."""

    hears = ("inputs", "states")

    def __init__(self, device: torch.device) -> None:
        self.attention_seconds = self.compared_seconds = 0.0
        self._device = device

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        assert isinstance(tail, Tail)
        self._layer = len(chain) // 2  # the first one has equal states where a word is repeated
        self._entropy = AttentionEntropyProbe(len(chain))
        self._curvature = CurvatureProbe(len(chain), pairs=PAIRS, null=True)
        self._steps = TransplantProbe(positions_readout(tail))

    def begin(self, batch: InputBatch) -> None:
        self._entropy.begin(batch.prompts, batch.mask)
        self._curvature.begin(batch.prompts, batch.mask)
        self._steps.begin(spaced_rows(batch.prompts, batch.mask, tokens=COMPARED))

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> None:
        if call.cross or call.site.index != self._layer or call.site.call != 0:
            return

        def read() -> None:
            self._entropy.update(call)
            self._curvature.update(call, inputs.of(call))

        self.attention_seconds = _once(read, self._device)

    def block(self, event: BlockPass) -> None:
        if event.site.index == 0:
            self.compared_seconds = _once(lambda: self._steps.update(event), self._device)


def _one_prompt(model: nn.Module, batch: dict[str, Any], ids: Tensor, state: Tensor) -> PlainBatch:
    """One prompt of the length of an audit, made of repeated tokens; else the batch as it is."""
    if set(batch) - {"input_ids", "attention_mask"}:
        return PlainBatch(
            inputs=batch,
            prompts=np.arange(len(state)),
            mask=torch.ones(state.shape[:2], dtype=torch.bool),
        )
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    length = min(_DEFAULT["tokens"], most or _DEFAULT["tokens"])
    long = ids[:1].repeat(1, -(-length // ids.shape[1]))[:, :length]
    inputs = {"input_ids": long}
    if "attention_mask" in batch:
        inputs["attention_mask"] = torch.ones_like(long)
    return PlainBatch(inputs=inputs, mask=torch.ones(1, length, dtype=torch.bool))


def measuring_cost(
    *,
    forward: float,
    output: float,
    attention: float,
    compared: float,
    states: int,
    width: int,
    weights: int,
    device: str,
) -> Estimate:
    """Estimate of a default audit from seconds per token, and per layer and prompt.

    Parameters
    ----------
    forward, output
        Seconds per token of the model, and of one output with its statistics.
    attention, compared
        Seconds per layer and prompt of reading its heads, and of comparing the steps of tokens.
    states, width
        States of a token (one more than layers), and outcomes of an output.
    weights
        Bytes of the weights.
    device
        Where the model is.

    Examples
    --------
    >>> cost = measuring_cost(
    ...     forward=1e-3, output=1e-4, attention=1e-2, compared=5e-3, states=11, width=50_000,
    ...     weights=10**9, device="cpu",
    ... )
    >>> cost.forward, round(cost.outputs, 3), cost.attention, cost.compared
    (8.192, 9.011, 6.4, 3.2)
    """
    prompts, tokens = _DEFAULT["prompts"], _DEFAULT["tokens"]
    whole = prompts * tokens
    held = min(max(_HELD, tokens * width), _DEFAULT["batch"] * tokens * width)
    measured = whole * (forward + states * output)
    layers = prompts * (states - 1)
    share = _DEFAULT["control_prompts"] / prompts
    # The control has no permuted keys, half of the curvature, and compares no steps.
    control = share * (measured + layers * attention / 2)
    return Estimate(
        prompts=prompts,
        tokens=tokens,
        seconds=measured + layers * (attention + compared) + control,
        forward=whole * forward,
        outputs=whole * states * output,
        attention=layers * attention,
        compared=layers * compared,
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


def _once(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    _finished(device)
    began = time.perf_counter()
    call()
    _finished(device)
    return time.perf_counter() - began


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
