r"""Temperature of the output: what it does to mobility, and what to calibration.

$\Vert J^\tau\Vert = \lambda_{\max}(J(\mathrm{softmax}(z/\tau)))/\tau$ is neither rising nor falling
in $\tau$ in general (errata E06). Calibration is read as the loss and the expected calibration
error of the top outcome in equal-mass bins. The best temperature is chosen on half of the prompts
and judged on the other half, both ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from flowscope.evidence import Counts, mean_over_prompts
from flowscope.evidence.intervals import bounds_of, single
from flowscope.instruments.audit.adequacy.forecasts import halves
from flowscope.instruments.audit.paths import Paths
from flowscope.records import Measurement
from flowscope.simplex import mobility_norm

__all__ = ["Calibration", "calibration", "expected_calibration_error"]

_LOGITS_AT_ONCE = 2**21
_BINS = 15


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """The sweep, and what the temperature chosen on other prompts gains.

    Attributes
    ----------
    table
        One row per temperature: mobility, loss and ECE with intervals over prompts.
    gain
        Loss at τ = 1 less loss at the temperature chosen on the other half, in nats.
    chosen
        That temperature, for each half.
    """

    table: pd.DataFrame
    gain: Measurement
    chosen: tuple[float, float]


def expected_calibration_error(
    confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = _BINS
) -> float:
    """Mean over bins of equal mass of |share right − mean confidence|.

    Examples
    --------
    >>> sure = np.array([0.6] * 10 + [0.9] * 10)
    >>> right = np.array([True] * 6 + [False] * 4 + [True] * 5 + [False] * 5)
    >>> round(expected_calibration_error(sure, right, 2), 3)
    0.2
    """
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    gaps = [abs(right[p].mean() - confidence[p].mean()) * len(p) for p in parts]
    return float(np.sum(gaps) / len(order))


@torch.no_grad()
def calibration(
    paths: Paths,
    targets: NDArray[np.int64],
    temperatures: Sequence[float],
    counts: Counts,
    *,
    seed: int,
) -> Calibration:
    """Sweep the temperature of the model's own output on the tokens that have something to name.

    Parameters
    ----------
    paths, targets
        Sampled tokens, and what each should name (−1: nothing).
    temperatures
        To try; 1 is added.
    counts
        Resampled prompts.
    seed
        Of the halves.
    """
    rows = np.flatnonzero(targets >= 0)
    sweep = sorted({1.0, *temperatures})
    read = [_read(paths, rows, targets, tau) for tau in sweep]
    prompt = paths.prompt[rows]
    loss = np.stack([one["loss"] for one in read], 1)
    mobility = np.stack([one["mobility"] for one in read], 1)
    table = pd.DataFrame({"temperature": sweep})
    for name, values in (("loss", loss), ("mobility", mobility)):
        sums = np.zeros((counts.shape[1], len(sweep)))
        np.add.at(sums, prompt, values)
        sizes = np.bincount(prompt, minlength=counts.shape[1]).astype(np.float64)
        points, interval = mean_over_prompts(sums, np.repeat(sizes[:, None], len(sweep), 1), counts)
        low, high = bounds_of(interval, len(sweep))
        table[name], table[f"{name}_low"], table[f"{name}_high"] = points, low, high
    table["mobility_median"] = np.median(mobility, 0)
    table["ece"] = [expected_calibration_error(o["confidence"], o["right"] > 0) for o in read]
    for end, share in (("low", 0.025), ("high", 0.975)):
        table[f"ece_{end}"] = [np.quantile(_ece_draws(o, prompt, counts), share) for o in read]
    table["tokens"] = len(rows)
    gain, chosen = _gain(loss, prompt, sweep, counts, seed)
    return Calibration(table=table, gain=gain, chosen=chosen)


def _read(
    paths: Paths, rows: NDArray[np.int64], targets: NDArray[np.int64], tau: float
) -> dict[str, NDArray[np.float64]]:
    parts: dict[str, list[NDArray[np.float64]]] = {}
    for piece in np.array_split(rows, -(-len(rows) * paths.readout.width // _LOGITS_AT_ONCE)):
        z = paths.readout.logits(paths.hidden[piece, -1]) / tau
        p = z.softmax(-1)
        wanted = torch.from_numpy(targets[piece]).to(z.device)
        told = {
            "loss": z.logsumexp(-1) - z.gather(-1, wanted[:, None])[:, 0],
            "mobility": mobility_norm(p) / tau,
            "confidence": p.amax(-1),
            "right": (p.argmax(-1) == wanted).double(),
        }
        for name, values in told.items():
            parts.setdefault(name, []).append(values.double().cpu().numpy())
    return {name: np.concatenate(values) for name, values in parts.items()}


def _ece_draws(
    read: dict[str, NDArray[np.float64]], prompt: NDArray[np.int64], counts: Counts
) -> list[float]:
    owned = [np.flatnonzero(prompt == p) for p in range(counts.shape[1])]
    found = []
    for draw in counts:
        rows = np.concatenate([np.tile(owned[p], n) for p, n in enumerate(draw) if n])
        found.append(expected_calibration_error(read["confidence"][rows], read["right"][rows] > 0))
    return found


def _gain(
    loss: NDArray[np.float64],
    prompt: NDArray[np.int64],
    sweep: Sequence[float],
    counts: Counts,
    seed: int,
) -> tuple[Measurement, tuple[float, float]]:
    second = halves(counts.shape[1], seed)[prompt]
    plain = loss[:, list(sweep).index(1.0)]
    gained, chosen = np.zeros(len(loss)), []
    for judged in (second, ~second):
        best = int(loss[~judged].mean(0).argmin())
        gained[judged] = plain[judged] - loss[judged, best]
        chosen.append(float(sweep[best]))
    sums = np.bincount(prompt, gained, minlength=counts.shape[1]).astype(np.float64)[:, None]
    sizes = np.bincount(prompt, minlength=counts.shape[1]).astype(np.float64)[:, None]
    points, interval = mean_over_prompts(sums, sizes, counts)
    gain = Measurement(
        name="loss gained by a temperature chosen on other prompts",
        values=np.asarray(points[0]),
        unit="nat",
        n=counts.shape[1],
        estimator="mean over tokens, temperature chosen on the other half of the prompts",
        dtype="float64",
        seed=seed,
        interval=single(interval),
    )
    return gain, (chosen[0], chosen[1])
