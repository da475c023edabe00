"""What is known of the forecasts on one segment, and the halves of the prompts behind them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.probes.layers.coordinates import LogitCoordinates

__all__ = ["KINDS", "Adequacy", "halves"]

KINDS = ("ridge", "neighbours", "perceptron")


@dataclass(frozen=True, kw_only=True, eq=False)
class Adequacy:
    """One segment: how well drifts fitted on other prompts forecast its layers.

    Attributes
    ----------
    segment
        Which layers.
    prompt
        Of every token that was looked at in full.
    errors
        As `forecast_errors` gives them. Besides the kinds of drift there are ``flow`` (for each
        half the kind with the least error on a fifth of the other half that no kind was fitted on),
        ``mean`` and ``scaled`` (the mean step of each layer, without and with a scale), ``lookup``
        (the mean path of the same token and position), and onward ``half`` and ``shuffled``
        (the flow fitted on half of the prompts, and with its layers in random order).
    chosen
        The kind of the flow, of both halves.
    fits
        One row per half and kind: its error onward on that fifth relative to no motion, setting,
        status.
    coordinates
        The axes of the first half that is forecast, and how much of the variance they hold.
    y, predicted
        True coordinates ``[n, states, r]`` and forecast ones (onward) ``[n, steps, r]`` of those
        tokens.
    stopped
        Why the flow could not be integrated; empty when it could.
    """

    segment: SegmentEvidence
    prompt: NDArray[np.int64]
    errors: Arrays
    chosen: tuple[str, str]
    fits: list[dict[str, object]]
    coordinates: LogitCoordinates
    y: Float[Tensor, "n states r"]
    predicted: Float[Tensor, "n steps r"]
    stopped: str


def halves(prompts: int, seed: int) -> NDArray[np.bool_]:
    """Which prompts are in the second half: a random half, the same for every part of a run."""
    order = np.random.default_rng(seed).permutation(prompts)
    second: NDArray[np.bool_] = np.isin(np.arange(prompts), order[: prompts // 2])
    return second
