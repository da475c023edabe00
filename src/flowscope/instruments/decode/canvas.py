"""A stopping rule of DiffusionGemma that changes at most a share alpha of the canvases.

The model refines a canvas pass by pass and stops by itself. `calibrate_stop` lets it refine
calibration prompts for all passes, replays every level of mean entropy on the record, and chooses
the loosest that keeps the promise; `flowscope.levers.calibrated_stop` then stops at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError
from flowscope.evidence.risk import RiskControl, risk_control
from flowscope.instruments.decode.policies.once import Stable
from flowscope.levers import recorded_stop
from flowscope.records import Unavailable

__all__ = ["StopCalibration", "calibrate_stop"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StopCalibration:
    """A level of mean entropy with a promise, or why there is none.

    Attributes
    ----------
    threshold
        Level for `flowscope.levers.calibrated_stop`.
    thresholds
        Levels that were tried, from the strictest.
    passes
        Passes of each prompt at each level, ``[prompts, levels]``.
    most
        Passes of the reference.
    control
        Risks, p-values and status.
    """

    threshold: float | Unavailable
    thresholds: tuple[float, ...]
    passes: NDArray[np.int64]
    most: int
    control: RiskControl

    @property
    def saved(self) -> float | Unavailable:
        """Mean share of the passes that is left out on the calibration prompts."""
        if isinstance(self.control.index, Unavailable):
            return self.control.index
        return float(1 - self.passes[:, self.control.index].mean() / self.most)


def calibrate_stop(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    alpha: float = 0.05,
    delta: float = 0.05,
    passes: int = 48,
    stability: int = 1,
    thresholds: Sequence[float] = Stable.grid,
    seed: int = 0,
) -> StopCalibration:
    """Choose the level of mean entropy at which a DiffusionGemma may stop.

    Parameters
    ----------
    model
        A ``DiffusionGemmaForBlockDiffusion``.
    prompts
        Token ids of the calibration prompts, one list each; the first canvas behind each is read.
    alpha, delta
        Share of the canvases that may change, and how often a calibration may fail to keep it.
    passes
        Passes of the reference.
    stability
        Passes before for which the leading tokens must be the same.
    thresholds
        Levels from the strictest to the loosest.
    seed
        Of the noise of each prompt's canvas.

    Raises
    ------
    InvalidInputError
        There is no prompt, prompts repeat, or the levels do not rise.
    UnsupportedModelError
        The model has no stopping rule.
    """
    _refuse(prompts, thresholds)
    columns, stops = [], []
    for number, prompt in enumerate(prompts):
        same, at = _replayed(model, prompt, passes, stability, thresholds, seed + number)
        columns.append(~same)
        stops.append(at)
    control = risk_control(np.stack(columns).astype(float), range(len(thresholds)), alpha, delta)
    return StopCalibration(
        threshold=control.index
        if isinstance(control.index, Unavailable)
        else float(thresholds[control.index]),
        thresholds=tuple(map(float, thresholds)), passes=np.stack(stops), most=passes,
        control=control,
    )  # fmt: skip


def _refuse(prompts: Sequence[Sequence[int]], thresholds: Sequence[float]) -> None:
    if not len(prompts):
        raise InvalidInputError("There is no calibration prompt. Give token ids, a list each.")
    keys = {tuple(int(token) for token in prompt) for prompt in prompts}
    if len(keys) < len(prompts):
        raise InvalidInputError(
            f"{len(prompts) - len(keys)} of {len(prompts)} calibration prompts equal another one. "
            "A repeated prompt is no new evidence: give each once."
        )
    if not len(thresholds) or (np.diff(np.asarray(thresholds, float)) <= 0).any():
        raise InvalidInputError(
            f"thresholds must rise from the strictest level to the loosest; got {thresholds!r:.80}."
        )


def _replayed(
    model: nn.Module, prompt: Sequence[int], passes: int, stability: int,
    thresholds: Sequence[float], seed: int,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:  # fmt: skip
    """Whether the canvas stays the same at each level, and after how many passes it stops."""
    device = next(model.parameters()).device
    ids = torch.as_tensor(prompt, dtype=torch.long, device=device)[None]
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), recorded_stop(model) as record:
        torch.manual_seed(seed)
        made: Any = model
        made.generate(
            ids, max_new_tokens=int(made.config.canvas_length), max_denoising_steps=passes,
            disable_compile=True,
        )  # fmt: skip
    last = record.canvas[-1]
    at = torch.stack([record.stops(level, stability)[0] for level in thresholds])
    same = torch.stack([(record.canvas[int(k) - 1] == last).all() for k in at])
    return _array(same).astype(bool), _array(at).astype(np.int64)


def _array(values: Tensor) -> NDArray[np.int64]:
    found: NDArray[np.int64] = values.cpu().numpy()
    return found
