r"""Fits of the particle model from the sums of prompts, whole and on halves of the prompts.

$\beta=\sum zc/\sum c^2$ for logits z and cosines c centred within rows, $v=\sum\langle t,m\rangle/
\sum\lVert m\rVert^2$ for transport writes t and velocities m of the particles, and both shares
$R^2=(\sum ab)^2/\sum a^2\sum b^2$, that of v with the sign of v: particles that flee what they
attend to do not move as the model says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowscope.probes.layers.particles import DEALS, PARTICLE_SUMS

__all__ = ["FITS", "half_weights", "particle_fits"]

FITS = (
    "beta", "beta_r2", "value", "value_r2", "value_r2_permuted", "cosine_change",
    "cosine_attention", "cosine_feed_forward", "cosine_predicted", "noise",
)  # fmt: skip
"""Columns of the fits."""

Values = NDArray[np.float64]
_MEANS = ("cosine", "cosine_after", "cosine_after_attention", "cosine_after_feed_forward")


def half_weights(prompts: int, draws: int, seed: int) -> NDArray[np.bool_]:
    """Random halves of the prompts, one a row."""
    rng = np.random.default_rng([seed, 6])
    rows = np.zeros((draws, prompts), bool)
    for row in rows:
        row[rng.choice(prompts, prompts // 2, replace=False)] = True
    return rows


def particle_fits(sums: Values, chosen: NDArray[np.bool_]) -> Values:
    """Fits ``[draws, blocks, columns]`` of ``sums`` ``[prompts, blocks, columns]``.

    ``chosen`` ``[draws, prompts]`` says which prompts each draw reads. A prompt without a number
    is left out of it.
    """
    there = np.isfinite(sums)
    total = np.einsum("dp,pbc->dbc", chosen.astype(float), np.where(there, sums, 0.0))
    count = np.einsum("dp,pbc->dbc", chosen.astype(float), there.astype(float))
    with np.errstate(invalid="ignore", divide="ignore"):
        s = {
            name: np.where(count[..., c] > 0, total[..., c], np.nan)
            for c, name in enumerate(PARTICLE_SUMS)
        }
        mean = {
            name: s[name] / count[..., PARTICLE_SUMS.index(name)]
            for name in (*_MEANS, "cosine_slope")
        }
        value = s["write_flow"] / s["flow_square"]
        dealt = [
            _signed(
                s[f"dealt_write_flow_{deal}"], s[f"dealt_flow_square_{deal}"], s["write_square"]
            )
            for deal in range(DEALS)
        ]
        left = s["step_square"] - 2 * value * s["step_flow"] + value**2 * s["flow_square"]
        found = {
            "beta": s["score_cosine"] / s["cosine_square"],
            "beta_r2": s["score_cosine"] ** 2 / (s["cosine_square"] * s["score_square"]),
            "value": value,
            "value_r2": _signed(s["write_flow"], s["flow_square"], s["write_square"]),
            "value_r2_permuted": np.mean(dealt, 0),
            "cosine_change": mean["cosine_after"] - mean["cosine"],
            "cosine_attention": mean["cosine_after_attention"] - mean["cosine"],
            "cosine_feed_forward": mean["cosine_after_feed_forward"]
            - mean["cosine_after_attention"],
            "cosine_predicted": value * mean["cosine_slope"],
            "noise": np.where(value > 0, left / s["tokens"] / (2 * value), np.nan),
        }
    return np.stack([found[name] for name in FITS], -1)


def _signed(product: Values, first: Values, second: Values) -> Values:
    share: Values = np.sign(product) * product**2 / (first * second)
    return share
