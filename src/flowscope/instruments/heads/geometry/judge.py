r"""Judge whether heads are directed beyond their sharpness, and whether their looks are one-way.

Every softmax chain of unequal scores produces *some* entropy $\sigma$, and sharper rows produce
more: neither zero nor random weights as they are can be a null. Two nulls are as sharp as the head:

* **M1, random weights as sharp.** Twins of the network with random weights; the logits of each of
  their heads are scaled until the head has the effective keys of the model's head on that prompt.
* **M2, keys permuted.** The same logits with the keys of a prompt permuted, all rows alike, each
  token's weight on itself kept. Where $i$ looks then has nothing to do with where $j$ looks.
  Above this null looks are less mutual than chance, below it they are more mutual. It does not
  see whether a head drives its walk round: a directed ring is hardly above it. A text that repeats
  tokens puts even random attention a little below its permuted keys, so that the same number of
  the twins of M1 is taken off.

The effect is the median over heads of $\log(\sigma / \sigma_{\rm null})$ on each prompt, the mean
over prompts and over references. The spread of single twins is in the interval, because with random
weights the model would be one more of them. Where the permuted chain of half of the heads cannot be
told from its reversal within the text, attention is too flat to have a direction, and the claim
could not have failed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import (
    MINIMUM_UNITS,
    distance_from_draws,
    judged_effect,
    mean_over_prompts,
    not_measured,
    resampled_counts,
)
from flowscope.evidence.intervals import single
from flowscope.evidence.verdicts import ends, pure_number
from flowscope.instruments.heads.geometry import ONE_WAY, SHARPNESS
from flowscope.instruments.heads.geometry.ratios import (
    distinct_prompts,
    log_ratios,
    prompt_effects,
    silent_share,
    twin_effects,
)
from flowscope.lab.claim import Abstention
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = [
    "FEWEST_TOKENS",
    "ONE_WAY_THRESHOLDS",
    "SHARPNESS_THRESHOLDS",
    "SILENT",
    "irreversibility",
    "judge_one_way",
    "judge_sharpness",
]

SHARPNESS_THRESHOLDS = (0.15, 0.4, 1.0)
"""Log ratios from which M1 is weak, clear and strong."""

ONE_WAY_THRESHOLDS = (0.05, 0.15, 0.4)
"""Log ratios from which M2 is weak, clear and strong."""

SILENT = 0.5
"""Share of heads without a visible direction from which a claim could not have failed."""

FEWEST_TOKENS = 32
"""Tokens per prompt below which M2 could not have failed."""

_RESAMPLES = 999
_POWER = 1 + 0.8416 / 1.96  # an effect this many half widths from 0 is seen four times in five
_UNIT = "different prompts"

Arrays = Mapping[str, NDArray[Any]]


def irreversibility(records: Records) -> list[Verdict]:
    """Judge both claims from the arrays of a run."""
    arrays = records.arrays("production")
    if "tokens" not in arrays:
        raise Abstention(
            "this run was made by a version that did not store what the rule needs; measure the "
            "model again"
        )
    table = records.table("references", "reference", "because").set_index("reference")["because"]
    settings = records.settings
    options: dict[str, Any] = {
        "level": float(settings["level"]), "chain": str(settings["chain"]),
        "seed": int(settings["seed"]),
    }  # fmt: skip
    if not np.isfinite(arrays["model"]).any():
        reasons = records.table("geometry", "because")["because"]
        reason = next((str(text) for text in reasons if text), "no head could be measured")
        return [not_measured(claim, reason) for claim in (SHARPNESS, ONE_WAY)]
    return [
        judge_sharpness(arrays, _missing(table, "random weights, as sharp"), **options),
        judge_one_way(
            arrays, records.table("geometry"), _missing(table, "keys permuted"), **options
        ),
    ]


def _missing(table: pd.Series[str], reference: str) -> str:
    """Why a reference is missing; empty if it is there."""
    because = str(table.get(reference, "it was not read"))
    return f"the reference “{reference}” is missing: {because}" if because else ""


def judge_sharpness(
    arrays: Arrays, missing: str = "", *, level: float, chain: str, seed: int
) -> Verdict:
    """Judge M1 by the log ratio to random twins as sharp.

    Parameters
    ----------
    arrays
        ``model`` (prompts, heads), ``as_sharp`` (twins, prompts, heads), ``effective_keys``,
        ``tokens``, and where there are such ``keys_permuted`` and ``random_weights``.
    missing
        Why there are no twins; empty if there are.
    level
        Of the label: odds of 1/level tell a direction.
    chain
        Which kernel walked.
    seed
        Of the resampled prompts.
    """
    if missing:
        return not_measured(SHARPNESS, missing)
    distinct = distinct_prompts(arrays["model"], arrays["effective_keys"])
    model, twins = arrays["model"][distinct], arrays["as_sharp"][:, distinct]
    effects = prompt_effects(log_ratios(model, twins))
    if not np.isfinite(effects).any():
        return not_measured(
            SHARPNESS,
            "no scale of the logits makes a random twin as sharp as the model: its logits are the "
            "same for every key, or no head of it has a number",
        )
    effects = effects[np.isfinite(effects).any(1)]
    value, interval = distance_from_draws(effects, seed=seed)
    units = int(np.isfinite(effects).all(0).sum())
    null = arrays.get("keys_permuted", arrays["as_sharp"])
    guard = _guard(null, arrays["tokens"], level)
    return judged_effect(
        claim=SHARPNESS,
        **_numbers(value, interval, units, seed, "σ of random twins as sharp"),
        thresholds=SHARPNESS_THRESHOLDS,
        because=_sharpness_in_words(arrays, distinct, effects, (value, interval), chain)
        + ("" if guard else _could_see(value, interval, SHARPNESS_THRESHOLDS)),
        units=units,
        unit=_UNIT,
        guard=guard,
    )


def judge_one_way(
    arrays: Arrays,
    heads: pd.DataFrame,
    missing: str = "",
    *,
    level: float,
    chain: str,
    seed: int,
) -> Verdict:
    """Judge M2 by the log ratio to the same attention with permuted keys.

    Parameters
    ----------
    arrays
        ``model`` (prompts, heads), ``keys_permuted`` (permutations, prompts, heads),
        ``effective_keys``, ``tokens``, and where there are twins ``as_sharp`` and
        ``as_sharp_permuted`` (twins, prompts, heads).
    heads
        Table ``geometry``, for the number of heads that differ from their permuted keys.
    missing
        Why keys were not permuted; empty if they were.
    level, chain, seed
        As for `judge_sharpness`.
    """
    if missing:
        return not_measured(ONE_WAY, missing)
    distinct = distinct_prompts(arrays["model"], arrays["effective_keys"])
    model, permuted = arrays["model"][distinct], arrays["keys_permuted"][:, distinct]
    effects = prompt_effects(log_ratios(model, permuted))
    if not np.isfinite(effects).any():
        return not_measured(ONE_WAY, "no head has a number with its keys permuted")
    plain = effects[np.isfinite(effects).any(1)].mean(0)
    control = twin_effects(arrays)[:, distinct] if "as_sharp_permuted" in arrays else None
    if control is None or not np.isfinite(control).any():
        control = None
        value, interval = _mean(plain, seed)
        units = int(np.isfinite(plain).sum())
    else:
        control = control[np.isfinite(control).any(1)]
        value, interval = distance_from_draws(plain - control, seed=seed)
        units = int(np.isfinite(plain - control).all(0).sum())
    guard = _short(arrays["tokens"]) or _guard(arrays["keys_permuted"], arrays["tokens"], level)
    return judged_effect(
        claim=ONE_WAY,
        **_numbers(value, interval, units, seed, "σ with keys permuted"),
        thresholds=ONE_WAY_THRESHOLDS,
        because=_one_way_in_words(
            _Middles(chain, _middle(model), _middle(permuted)),
            heads,
            (plain, control),
            (value, interval),
        )
        + ("" if guard else _could_see(value, interval, ONE_WAY_THRESHOLDS)),
        units=units,
        unit=_UNIT,
        guard=guard,
    )


def _mean(by_prompt: NDArray[np.float64], seed: int) -> tuple[float, Interval | Unavailable]:
    """Mean over prompts with its interval."""
    column = by_prompt[np.isfinite(by_prompt), None]
    counts = resampled_counts(len(column), resamples=_RESAMPLES, seed=seed)
    point, interval = mean_over_prompts(column, np.ones_like(column), counts)
    return float(point[0]), single(interval)


def _numbers(
    value: float, interval: Interval | Unavailable, units: int, seed: int, null: str
) -> dict[str, Any]:
    """Statistic, null, effect and interval of a log ratio."""
    estimator = "mean over prompts and references of the median over heads"
    name = f"log(σ / {null})"
    statistic = pure_number(name, value, n=units, estimator=estimator, seed=seed, interval=interval)
    zero = pure_number(
        "log ratio of exchangeable chains", 0.0, n=units, estimator="0 by exchange", seed=seed
    )
    return {"statistic": statistic, "null": zero, "effect": value, "interval": interval}


def _guard(null: NDArray[np.float64], tokens: NDArray[np.integer], level: float) -> str:
    """Why attention is too flat to have a direction; empty if it is not, or for few prompts.

    Copies of a prompt count here: uniform attention has the same numbers on every prompt.
    """
    if len(tokens) < MINIMUM_UNITS:
        return ""
    share = silent_share(null, tokens, level)
    if share < SILENT:
        return ""
    return (
        f"in {share:.0%} of the heads a walk as long as the text ({tokens.mean():.0f} steps) "
        f"cannot be told from its reversal at odds of {1 / level:.0f} to 1, even with keys that "
        "have nothing to do with each other: attention is too flat to have a direction"
    )


def _short(tokens: NDArray[np.integer]) -> str:
    if tokens.mean() >= FEWEST_TOKENS or len(tokens) < MINIMUM_UNITS:
        return ""
    return (
        f"the prompts have {tokens.mean():.0f} tokens on average; with fewer than {FEWEST_TOKENS} "
        "most keys keep their neighbours when they are permuted"
    )


def _sharpness_in_words(
    arrays: Arrays,
    distinct: NDArray[np.int64],
    effects: NDArray[np.float64],
    number: tuple[float, Interval | Unavailable],
    chain: str,
) -> str:
    means = np.nanmean(effects, axis=1)
    own, other = _middle(arrays["model"][distinct]), _middle(arrays["as_sharp"][:, distinct])
    keys = float(np.nanmedian(arrays["effective_keys"][distinct]))
    plain = ""
    if "random_weights" in arrays and np.isfinite(arrays["random_weights"]).any():
        plain = (
            f"; with random weights as they are {_middle(arrays['random_weights']):.3g}, which "
            "says how flat their attention is and is not judged"
        )
    return (
        f"the walk along attention produces {own:.3g} nats per step on the {chain} chain (median "
        f"over heads) and {other:.3g} in {len(effects)} random twins whose heads attend to as many "
        f"keys (median {keys:.3g}): {_ratio_in_words(*number)}, single twins {means.min():+.2f} to "
        f"{means.max():+.2f}{plain}"
    )


class _Middles(NamedTuple):
    """Which kernel walked, and the medians over heads of σ of the model and with permuted keys."""

    chain: str
    model: float
    permuted: float


def _one_way_in_words(
    middles: _Middles,
    heads: pd.DataFrame,
    effects: tuple[NDArray[np.float64], NDArray[np.float64] | None],
    number: tuple[float, Interval | Unavailable],
) -> str:
    plain, control = effects
    beside = "; there is no random twin to compare with"
    if control is not None:
        beside = (
            f", where {len(control)} random twins as sharp read {np.nanmean(control):+.3f} on the "
            f"same text: {_ratio_in_words(*number, 'a difference')}"
        )
    together = ""
    if {"log_ratio_permuted_joint_low", "log_ratio_permuted_joint_high"} <= set(heads):
        above = int((heads["log_ratio_permuted_joint_low"] > 0).sum())
        below = int((heads["log_ratio_permuted_joint_high"] < 0).sum())
        together = (
            f"; tested together, {above} of {len(heads)} heads look one way more than chance, "
            f"{below} look back more than chance"
        )
    return (
        f"the walk along attention produces {middles.model:.3g} nats per step on the "
        f"{middles.chain} chain (median over heads) and {middles.permuted:.3g} with the keys "
        f"permuted, a log ratio of {np.nanmean(plain):+.3f}{beside}{together}"
    )


def _ratio_in_words(
    value: float, interval: Interval | Unavailable, name: str = "a log ratio"
) -> str:
    if isinstance(interval, Unavailable):
        return f"{name} of {value:+.3f}"
    low, high = ends(interval)
    return f"{name} of {value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _could_see(
    value: float, interval: Interval | Unavailable, thresholds: tuple[float, float, float]
) -> str:
    """The effect that an undecided run could have seen; nothing where it saw one."""
    if isinstance(interval, Unavailable):
        return ""
    low, high = ends(interval)
    if (low > 0 or high < 0) and abs(value) >= thresholds[0]:
        return ""
    least = max(_POWER * (high - low) / 2, thresholds[0])
    return f"; this run could have seen an effect of {least:.2g} (four times in five)"


def _middle(values: NDArray[np.float64]) -> float:
    """Median over heads of the mean over prompts and references."""
    flat = values.reshape(-1, values.shape[-1])
    present = np.isfinite(flat)
    heads = present.any(0)
    if not heads.any():
        return math.nan
    means = np.where(present, flat, 0.0).sum(0)[heads] / present.sum(0)[heads]
    return float(np.median(means))
