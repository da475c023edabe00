r"""When a DiffusionGemma stops refining a canvas: its own rule replaced for one ``with`` block.

A canvas is refined for at most T passes. The rule of the model stops a row when its leading tokens
did not change for s passes and the mean entropy of its laws is below a level. Both numbers are
published constants. `recorded_stop` lets every pass run and writes down what the rule looks at, so
that any level can be tried on the record; `calibrated_stop` stops at a level of the caller's.

The rule looks at the passes and never changes them: up to its stop a row is refined as if it would
not stop, and a replay from the record is exact for the first canvas of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError

__all__ = ["StopRecord", "calibrated_stop", "recorded_stop"]

_SEAM = "_prepare_diffusion_stopping_criteria"


@dataclass(kw_only=True)
class StopRecord:
    """What a stopping rule has looked at in the first canvas, one entry a pass.

    Attributes
    ----------
    entropy
        Mean entropy of the laws of each row in each pass.
    canvas
        Leading tokens of each row in each pass.
    """

    entropy: list[Float[Tensor, "rows"]] = field(default_factory=list)
    canvas: list[Int[Tensor, "rows positions"]] = field(default_factory=list)

    @property
    def passes(self) -> int:
        """Passes that were recorded."""
        return len(self.entropy)

    def stops(self, threshold: float, stability: int = 1) -> Int[Tensor, "rows"]:
        """Pass, from 1, in which the rule stops each row; the number of passes where it does not.

        Parameters
        ----------
        threshold
            Mean entropy below which it stops.
        stability
            Passes before for which the leading tokens must be the same.
        """
        at = torch.full_like(self.entropy[0], self.passes, dtype=torch.long)
        for number in range(self.passes - 1, -1, -1):
            fires = self.entropy[number] < threshold
            if number < stability:
                fires &= torch.zeros_like(fires)
            for back in range(1, min(stability, number) + 1):
                fires &= (self.canvas[number] == self.canvas[number - back]).all(-1)
            at = torch.where(fires, number + 1, at)
        return at

    def canvases(self, at: Int[Tensor, "rows"]) -> Int[Tensor, "rows positions"]:
        """Leading tokens of each row after its pass, from 1."""
        return torch.stack(self.canvas)[at - 1, torch.arange(len(at), device=at.device)]


@contextmanager
def calibrated_stop(
    model: nn.Module, threshold: float, *, stability: int = 1
) -> Iterator[StopRecord]:
    """Stop a DiffusionGemma at this mean entropy instead of its own, for one ``with`` block.

    Parameters
    ----------
    model
        A ``DiffusionGemmaForBlockDiffusion``; other threads that use it keep its own rule.
    threshold
        Mean entropy, in nats, below which a row stops; from ``calibrate_stop`` of
        `flowscope.instruments.decode.canvas`.
    stability
        Passes before for which the leading tokens must be the same.

    Raises
    ------
    UnsupportedModelError
        The model has no such rule.
    InvalidInputError
        The threshold is no positive number, or the stability is negative.
    """
    if not threshold > 0:
        raise InvalidInputError(
            f"threshold must be a positive mean entropy in nats; got {threshold!r}. "
            "The published one is 0.005."
        )
    if stability < 0:
        raise InvalidInputError(f"stability must be 0 passes or more; got {stability}.")
    with _installed(model, threshold, stability) as record:
        yield record


@contextmanager
def recorded_stop(model: nn.Module) -> Iterator[StopRecord]:
    """Let a DiffusionGemma refine for all of its passes, and record what its rule looks at.

    Raises
    ------
    UnsupportedModelError
        The model has no stopping rule.
    """
    with _installed(model, None, 0) as record:
        yield record


@contextmanager
def _installed(model: nn.Module, threshold: float | None, stability: int) -> Iterator[StopRecord]:
    original = getattr(type(model), _SEAM, None)
    if original is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no stopping rule that could be replaced. Give a "
            "DiffusionGemmaForBlockDiffusion (transformers 5.22 or later); for a model that fills "
            "mask tokens use flowscope.decode."
        )
    kind, record = _rule(), StopRecord()
    current: ContextVar[bool] = ContextVar("stop", default=False)
    before = vars(model).get(_SEAM)

    def prepare(generation_config: Any) -> Any:
        if current.get():
            return kind(threshold, stability, record)
        return original(model, generation_config) if before is None else before(generation_config)

    token = current.set(True)
    vars(model)[_SEAM] = prepare
    try:
        yield record
    finally:
        current.reset(token)
        if before is None:
            vars(model).pop(_SEAM, None)
        else:
            vars(model)[_SEAM] = before


@cache
def _rule() -> Any:
    """The subclass of the adaptive stopping of transformers; it is not loaded before it is used."""
    from transformers.models.diffusion_gemma import generation_diffusion_gemma as theirs

    class CalibratedStopping(theirs.DiffusionGemmaAdaptiveStopping):  # type: ignore[misc]
        """Stable leading tokens and a mean entropy below a threshold; no stop without one."""

        def __init__(self, threshold: float | None, stability: int, record: StopRecord) -> None:
            self._threshold, self._stability = threshold, stability
            self._record: StopRecord | None = record
            self._history: list[Tensor] = []

        def __call__(self, argmax_canvas: Tensor, logits: Tensor, **_: Any) -> Bool[Tensor, "rows"]:
            """Whether each row stops after this pass."""
            log = torch.log_softmax(logits.float(), -1)
            entropy = -(log.exp() * log.where(log.isfinite(), 0.0)).sum(-1).mean(-1)
            if self._record is not None:
                self._record.entropy.append(entropy.clone())
                self._record.canvas.append(argmax_canvas.clone())
            stops = torch.zeros_like(entropy, dtype=torch.bool)
            if self._threshold is not None and len(self._history) >= self._stability:
                stops = entropy < self._threshold
                for earlier in self._history[len(self._history) - self._stability :]:
                    stops = stops & (earlier == argmax_canvas).all(-1)
            self._history.append(argmax_canvas.clone())
            return stops

        def reset(self) -> None:
            """Forget the passes of the canvas before; only the first one is recorded."""
            if self._history:
                self._record = None
            self._history = []

    return CalibratedStopping
