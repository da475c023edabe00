"""What the last layers are worth: loss without them, beside the mobility that was left.

Removing the last k layers of a model is reading its output k layers early. 000's second prediction
is that depth has diminishing returns once mobility is gone; here is the loss after each removal,
with its interval, beside the mobility of the laws it was read from, and how many layers can go for
at most a hundredth of a nat.
"""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from flowscope.evidence import Counts, mean_over_prompts
from flowscope.evidence.intervals import bounds_of, single
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.units import prompt_sums
from flowscope.probes import rows_at_once
from flowscope.records import Interval, Measurement, Unavailable
from flowscope.simplex import mobility_frobenius

__all__ = ["depth_loss_table", "free_layers", "losses_along", "mobility_and_loss"]

_LOGITS_AT_ONCE = 2**21
_COPIES = 8
_TOLERATED = 0.01  # nats of loss that count as nothing


@torch.no_grad()
def losses_along(
    paths: Paths, rows: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loss (nats) of naming the target and mobility ‖J‖_F, of some tokens at every layer."""
    readout = paths.readout
    chunk = rows_at_once(readout.width, readout.device, _LOGITS_AT_ONCE, copies=_COPIES)
    hidden = paths.hidden[torch.from_numpy(rows).to(paths.hidden.device)]
    wanted = torch.from_numpy(targets[rows]).to(readout.device)
    loss, mobility = torch.empty(
        2, len(rows), paths.layers + 1, dtype=torch.float64, device=readout.device
    )
    for layer in range(paths.layers + 1):
        for start in range(0, len(rows), chunk):
            piece = slice(start, start + chunk)
            z = readout.logits(hidden[piece, layer])
            own = z.gather(-1, wanted[piece, None])[:, 0]
            loss[piece, layer] = z.logsumexp(-1).sub(own).double()
            mobility[piece, layer] = mobility_frobenius(z.softmax(-1)).double()
    return loss.cpu().numpy(), mobility.cpu().numpy()


def depth_loss_table(
    loss: NDArray[np.float64],
    mobility: NDArray[np.float64],
    prompt: NDArray[np.int64],
    counts: Counts,
) -> pd.DataFrame:
    """One row per number of removed layers, none first: loss, its increase, mobility left."""
    whole = loss[:, -1:]
    columns = {"loss": loss, "increase": loss - whole, "mobility": mobility}
    layers = loss.shape[1] - 1
    table = pd.DataFrame(
        {"removed": np.arange(layers + 1), "layer": layers - np.arange(layers + 1)}
    )
    for name, values in columns.items():
        points, low, high = _means(values[:, ::-1], prompt, counts)
        table[name], table[f"{name}_low"], table[f"{name}_high"] = points, low, high
    table["tokens"] = len(loss)
    return table


def _means(
    values: NDArray[np.float64], prompt: NDArray[np.int64], counts: Counts
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    sums = prompt_sums(values, prompt, counts.shape[1])
    sizes = np.bincount(prompt, minlength=counts.shape[1]).astype(np.float64)
    wide = np.repeat(sizes[:, None], values.shape[1], 1)
    points, interval = mean_over_prompts(sums, wide, counts)
    return points, *bounds_of(interval, len(points))


def free_layers(table: pd.DataFrame) -> int:
    """How many layers can go with the upper end of the loss's rise within a hundredth of a nat."""
    # nothing removed costs nothing, interval or not
    cheap = ((table["increase_high"] <= _TOLERATED) | (table["removed"] == 0)).to_numpy()
    return len(cheap) - 1 if cheap.all() else int((~cheap).argmax()) - 1


def mobility_and_loss(
    loss: NDArray[np.float64],
    mobility: NDArray[np.float64],
    prompt: NDArray[np.int64],
    counts: Counts,
    seed: int,
) -> Measurement:
    """Rank correlation, over tokens, of mobility left and what the layers after it still gain.

    At each depth over the tokens of a prompt, then averaged: depth itself, which lowers both, is
    held fixed.
    """
    gains = loss[:, :-1] - loss[:, -1:]
    each = np.full(counts.shape[1], np.nan)
    for number in np.unique(prompt):
        own = prompt == number
        if own.sum() > 3:
            each[number] = _within(mobility[own, :-1], gains[own])
    known = np.isfinite(each)
    name = "rank correlation of mobility left and gain of the layers after"
    if not known.any():
        return Measurement.abstained(name, "no prompt has enough tokens")
    sums = np.where(known, each, 0.0)[:, None]
    points, interval = mean_over_prompts(sums, known[:, None].astype(float), counts)
    told: Interval | Unavailable = single(interval)
    return Measurement(
        name=name,
        values=np.asarray(points[0]),
        unit="1",
        n=int(known.sum()),
        estimator="Spearman over the tokens of a prompt at each layer, averaged",
        dtype="float64",
        seed=seed,
        interval=told,
    )


def _within(mobility: NDArray[np.float64], gains: NDArray[np.float64]) -> float:
    """Mean over layers of the rank correlation; a layer that is constant or has a gap is left out.

    Ranks are whole or half numbers, so every sum below is exact.
    """
    both = np.stack([mobility, gains])
    # A column with NaN has neither a largest nor a smallest number.
    varies = (both.max(1) > both.min(1)).all(0)
    if not varies.any():
        return float("nan")
    ranks = rankdata(both[:, :, varies], axis=1)
    ranks -= ranks.mean(1, keepdims=True)
    covariance, variances = (ranks[0] * ranks[1]).sum(0), (ranks**2).sum(1)
    freedom = 1 / (len(mobility) - 1)
    deviations = np.sqrt(variances * freedom)
    found = np.clip(covariance * freedom / deviations[1] / deviations[0], -1, 1)
    return float(found.mean())
