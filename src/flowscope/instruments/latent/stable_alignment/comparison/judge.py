r"""Judge whether models in consensus predict better than the cheap ways to combine them.

For every paired consensus of the children the effect is the loss of a cheap way less its own, in
nats per token, for each of three ways (mean of logits, of probabilities, of weights) and each kind
of text. The consensus is as good as the least of these,

$$ e = \max_{\rm consensus}\ \min_{\rm way,\,text}\ (\ell_{\rm way} - \ell_{\rm consensus}) , $$

with the same of the ends of intervals over texts that cover all differences together, so that the
choice of the consensus is paid for. L4 holds if e lies above 0: one consensus beats all three ways
on every kind of text. It fails if e lies below 0: each consensus is worse than one of the ways
somewhere. It is uninformative where the members hardly differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import judged_effect, not_measured, simultaneous
from flowscope.evidence.intervals import bounds_of
from flowscope.evidence.verdicts import pure_number
from flowscope.instruments.latent.stable_alignment.comparison import CONSENSUS
from flowscope.instruments.latent.stable_alignment.names import (
    APART,
    CHILDREN,
    DOMAINS,
    PAIRED,
    PLAIN,
)
from flowscope.lab.view import Records
from flowscope.records import Interval, Unavailable, Verdict

__all__ = ["DIFFERENT", "THRESHOLDS", "consensus_is_better", "judge_losses"]

THRESHOLDS = (0.005, 0.02, 0.1)
"""Nats per token from which L4 is weak, clear and strong."""

DIFFERENT = 1e-3
"""Nats of divergence between members below which there is nothing to agree on."""

_COLUMNS = (
    "domain", "members", "method", "layers", "strength", "align", "prompt", "loss", "divergence",
)  # fmt: skip
Values = NDArray[np.float64]
Losses = Mapping[str, tuple[dict[str, Values], dict[tuple[str, float], Values]]]
"""By kind of text: losses of the cheap ways and of every consensus, one number per text."""


def consensus_is_better(records: Records) -> list[Verdict]:
    """Judge L4 from the table ``consensus_prompts``."""
    frame = records.table("consensus_prompts", *_COLUMNS)
    frame = frame[frame["members"] == CHILDREN]
    apart = frame[frame["method"] == APART]
    if not len(apart):
        return [not_measured(CONSENSUS, "no models were compared")]
    losses: dict[str, tuple[dict[str, Values], dict[tuple[str, float], Values]]] = {}
    for domain in DOMAINS:
        rows = frame[frame["domain"] == domain]
        plain = {way: _by_text(rows[rows["method"] == way]) for way in PLAIN}
        agreed = {
            (layers, strength): _by_text(
                rows[
                    (rows["method"] == PAIRED)
                    & (rows["layers"] == layers)
                    & (rows["strength"] == strength)
                ]
            )
            for layers, strength in _ways(rows[rows["method"] == PAIRED])
        }
        if all(len(values) for values in plain.values()) and agreed:
            losses[domain] = plain, agreed
    if not losses:
        return [not_measured(CONSENSUS, "no consensus was compared with the cheap ways")]
    seed = int(records.settings["seed"])
    return [judge_losses(losses, divergence=float(apart["divergence"].mean()), seed=seed)]


def _ways(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """Blocks and strength of every consensus."""
    pairs = zip(rows["layers"].astype(str), rows["strength"].astype(float), strict=True)
    return list(dict.fromkeys(pairs))


def _by_text(rows: pd.DataFrame) -> Values:
    return rows.sort_values("prompt")["loss"].to_numpy(float)


def judge_losses(losses: Losses, *, divergence: float, seed: int) -> Verdict:
    """Verdict on losses per text.

    Parameters
    ----------
    losses
        See `Losses`; every kind of text has the same ways.
    divergence
        Mean Jensen–Shannon divergence between the members apart.
    seed
        Of the joint intervals.
    """
    ways = list(next(iter(losses.values()))[1])
    values, low, high = _differences(losses, ways, seed)
    least = [part.min(1) for part in (values, low, high)]
    best = int(least[0].argmax())
    texts = min(len(next(iter(plain.values()))) for plain, _ in losses.values())
    layers, strength = ways[best]
    facts: dict[str, Any] = {"n": texts, "estimator": "mean over texts", "seed": seed}
    domain, rival = divmod(int(values[best].argmin()), len(PLAIN))
    ends = [float(part.max()) for part in least[1:]]
    interval: Interval | Unavailable = Unavailable("texts are too few for an interval")
    if np.isfinite(ends).all():
        interval = Interval(
            low=ends[0], high=ends[1], level=0.95,
            method=f"joint over {values.size} differences, largest of the least",
        )  # fmt: skip
    alike = f"the members hardly differ (divergence {divergence:.1e} nats)"
    return judged_effect(
        claim=CONSENSUS,
        statistic=pure_number("nats saved", float(least[0][best]), **facts),
        null=Unavailable("0 by definition: as good as the cheap ways"),
        effect=float(least[0][best]),
        interval=interval,
        thresholds=THRESHOLDS,
        because=f"the best consensus (blocks: {layers}, strength {strength:g}) saves at least "
        f"{least[0][best]:+.3f} nats a token, least beside the {PLAIN[rival]} on "
        f"{DOMAINS[list(losses)[domain]]}; members apart differ by {divergence:.3f} nats",
        units=texts,
        unit="texts of each kind",
        guard=alike if divergence < DIFFERENT else "",
    )


def _differences(
    losses: Losses, ways: list[tuple[str, float]], seed: int
) -> tuple[Values, Values, Values]:
    """Cheap ways less every consensus with joint ends, ``[consensus, texts × cheap ways]``."""
    parts = []
    level = 1 - 0.05 / len(losses)  # of each kind of text: all together 95 %
    for plain, agreed in losses.values():
        columns = np.stack([plain[rival] - agreed[way] for way in ways for rival in PLAIN], 1)
        found = simultaneous(columns, level=level, seed=seed)
        low, high = bounds_of(found.joint, columns.shape[1])
        shape = (len(ways), len(PLAIN))
        parts.append([np.asarray(x, float).reshape(shape) for x in (found.points, low, high)])
    values, low, high = (np.concatenate(part, 1) for part in zip(*parts, strict=True))
    return values, low, high
