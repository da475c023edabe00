"""Tables of the comparison, from the sums of every way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.evidence import mean_over_prompts, resampled_counts
from flowscope.evidence.intervals import bounds_of
from flowscope.instruments.latent.stable_alignment.names import (
    APART,
    FIRST,
    LOGITS,
    PROBABILITIES,
    SECOND,
)

__all__ = ["Scores", "consensus_table", "means", "prompts_table"]

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Sums of one way on one kind of text, as `scoring.scored` gives them."""

    domain: str
    members: str
    method: str
    arrays: Mapping[str, NDArray[Any]]
    layers: str = ""
    strength: float = 0.0
    align: str = "none"

    @property
    def key(self) -> dict[str, Any]:
        """The columns that name its rows."""
        return {
            "domain": self.domain, "members": self.members, "method": self.method,
            "layers": self.layers, "strength": self.strength, "align": self.align,
        }  # fmt: skip

    @property
    def loss(self) -> Values:
        """Sum over the tokens of every text, mean over the members."""
        mean: Values = np.asarray(self.arrays["losses"], float).mean(0)
        return mean

    @property
    def tokens(self) -> Values:
        """Predicted tokens of every text."""
        return np.asarray(self.arrays["tokens"], float)

    def expanded(self) -> Iterator[Scores]:
        """Itself; members apart also as each member, the mean of logits and of probabilities."""
        yield self
        if self.method != APART:
            return
        losses = self.arrays["losses"]
        for method, own in (
            (FIRST, losses[0]),
            (SECOND, losses[1]),
            (LOGITS, self.arrays["logits"]),
            (PROBABILITIES, self.arrays["mixed"]),
        ):
            arrays = {
                **self.arrays, "losses": own[None], "mixed": own,
                "divergence": np.zeros_like(own),
            }  # fmt: skip
            yield replace(self, method=method, arrays=arrays)


def means(
    columns: Mapping[str, Values], sizes: Values, *, seed: int, resamples: int
) -> dict[str, Any]:
    """Mean per token of sums over texts, each with its interval over texts."""
    sums = np.stack(list(columns.values()), 1)
    counts = resampled_counts(len(sums), resamples=resamples, seed=seed)
    points, interval = mean_over_prompts(sums, np.repeat(sizes[:, None], sums.shape[1], 1), counts)
    low, high = bounds_of(interval, sums.shape[1])
    row: dict[str, Any] = {}
    for place, name in enumerate(columns):
        row |= {
            name: float(points[place]),
            f"{name}_low": float(low[place]), f"{name}_high": float(high[place]),
        }  # fmt: skip
    return row


def consensus_table(scores: Sequence[Scores], *, seed: int, resamples: int) -> pd.DataFrame:
    """Table ``consensus``."""
    rows = []
    for each in (part for whole in scores for part in whole.expanded()):
        arrays = each.arrays
        columns = {
            "loss": each.loss,
            "loss_mixed": np.asarray(arrays["mixed"], float),
            "divergence": np.asarray(arrays["divergence"], float),
        }
        rows.append(
            {
                **each.key,
                **means(columns, each.tokens, seed=seed, resamples=resamples),
                "distance": float(arrays.get("distance", [math.nan])[0]),
                "matched": float(arrays.get("matched", [math.nan])[0]),
                "prompts": len(each.tokens), "tokens": int(each.tokens.sum()),
                "seconds": float(arrays["seconds"][0]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def prompts_table(scores: Sequence[Scores]) -> pd.DataFrame:
    """Table ``consensus_prompts``."""
    return pd.DataFrame(
        [
            {
                **each.key, "prompt": number, "loss": float(loss / tokens),
                "divergence": float(divergence / tokens), "tokens": int(tokens),
            }
            for whole in scores
            for each in whole.expanded()
            for number, (loss, divergence, tokens) in enumerate(
                zip(each.loss, each.arrays["divergence"], each.tokens, strict=True)
            )
        ]
    )  # fmt: skip
