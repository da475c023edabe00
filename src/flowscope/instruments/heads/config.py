"""Settings of the reading of attention heads."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt

from flowscope.lab.config import MOST_INPUTS, ReadingConfig, setting

__all__ = ["HeadsConfig"]

_Share = Annotated[float, Field(ge=0, le=1)]


class HeadsConfig(ReadingConfig):
    """Measure for every attention head whether a walk along its attention has a direction.

    A causal mask absorbs every walk at the first token, so that a label needs another chain: the
    logits without the mask (unmasked), the model's kernel with random jumps (damped), or its
    distribution conditioned on not being absorbed (quasi-stationary, which gives no label). Writes
    a run folder with tables, the verdicts Beyond sharpness and Unreturned looks, and report.html.
    The run abstains when no head can be labelled.
    """

    prompts: int = setting(16, "Number of prompts", option=True, ge=1, le=MOST_INPUTS)
    batch: int = setting(4, "Prompts in one pass through the model", ge=1)
    chain: Literal["unmasked", "damped", "quasi-stationary"] = setting(
        "unmasked", "Kernel of the walk", option=True
    )
    damping: float = setting(
        0.01, "Probability of a jump per step of the damped chain", option=True, gt=0, lt=1
    )
    level: float = setting(
        0.05,
        "Level of the test whether a walk as long as the text differs from its reversal",
        gt=0,
        lt=1,
    )
    twins: int = setting(
        3,
        "Networks with random weights that the heads are compared with",
        option=True,
        ge=3,
        le=1000,
    )
    permutations: int = setting(3, "Permutations of the keys of each prompt", ge=3, le=1000)
    sentence: str | None = setting(
        None, "Text of the portrait", option=True, unset="start of the first prompt"
    )
    shown_tokens: int = setting(24, "Tokens of the sentence that the portrait shows", ge=2, le=64)
    charge: float = setting(
        0.05, "Charge of the portrait's magnetic map per unit of the logits", allow_inf_nan=False
    )
    dials: bool = setting(
        True, "Measure the loss while parts of the logits are scaled", option=True
    )
    dial_layers: tuple[PositiveInt, ...] = setting(
        (), "Layers in which logits are scaled, counted from 1; empty for all"
    )
    dial_heads: tuple[NonNegativeInt, ...] = setting(
        (), "Heads in which logits are scaled, counted from 0; empty for all"
    )
    draws: int = setting(1, "Random perturbations of equal norm per dial", ge=1, le=1000)
    metric: tuple[FiniteFloat, ...] = setting(
        (0.5,), "Factors on the metric part of the logits; 1 is the model"
    )
    exact: tuple[FiniteFloat, ...] = setting(
        (0.0,), "Factors on the exact part of the logits; 1 is the model"
    )
    flux: tuple[FiniteFloat, ...] = setting(
        (0.0, 0.5), "Factors on the flux part of the logits; 1 is the model"
    )
    alpha: tuple[_Share, ...] = setting(
        (1.0,), "Powers of a column's degree by which the column is divided; 0 is the model"
    )
    temperatures: tuple[PositiveFloat, ...] = setting(
        (0.71, 1.41), "Temperatures by which all logits are divided; 1 is the model"
    )
    squares: tuple[tuple[FiniteFloat, FiniteFloat], ...] = setting(
        ((0.0, 1.0), (0.0, 0.0)), "Points (a, b) of the operator square; (1, 1) is the model"
    )
