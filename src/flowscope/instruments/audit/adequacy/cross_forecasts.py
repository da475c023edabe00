r"""Forecasts on sampled paths: flows fitted on half of the prompts, judged on the other half.

The prompts are split in two. Each half is forecast by flows of the other, in principal axes of the
other: nothing of a forecast has seen the prompt it is judged on, and every prompt is judged once.
Within the fitting half, every kind of drift is fitted on four fifths of the prompts and the kind is
chosen that forecasts the remaining fifth best, from the first state of the segment onward. Beside
the flow stand

* the mean step of each layer over the fitting half, the same for all tokens;
* the same with one rate per layer at which states leave their mean or return to it;
* a lookup: the mean path of the same token and of the same position (`flows.drift.lookups`);
* the chosen kind fitted on half of the prompts (the learning curve);
* the chosen kind fitted with the layers in random order (an autonomous flow does not notice).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    Drift,
    DriftSample,
    Neighbours,
    Training,
    chosen_lookup,
    group_folds,
    half_of_prompts,
    instantaneous_sample,
    lookup_paths,
    mean_drift,
    mean_paths,
    neighbour_drift,
    perceptron_drift,
    ridge_drift,
    scaled_mean,
    scaled_paths,
    shuffled_layers,
)
from flowscope.instruments.audit.adequacy.courses import Course, one_layer, onward
from flowscope.instruments.audit.adequacy.forecasts import KINDS, Adequacy, halves
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.probes.layers.coordinates import LogitCoordinates
from flowscope.probes.layers.forecasts import Forecast, forecast_errors, local_statistics
from flowscope.records import Unavailable

__all__ = ["cross_forecasts", "skill_table"]

_FOLDS = 5
_FEWEST_PROMPTS = 14  # five folds in four fifths of each half
_TRAINING = Training(epochs=30, patience=4)
_NEIGHBOURS = (8, 16, 32, 64)
_PROBES = 600  # pairs that choose among these: errors differ by per cents, a prompt by as much
_COLUMNS = {
    "still": "onward_persistence",
    "mean_drift": "onward_mean",
    "scaled_drift": "onward_scaled",
    "lookup": "onward_lookup",
    "flow": "onward_flow",
    "floor": "onward_floor",
    "flow_half": "onward_half",
    "flow_shuffled": "onward_shuffled",
}


@torch.no_grad()
def cross_forecasts(
    paths: Paths,
    segment: SegmentEvidence,
    *,
    rank: int,
    tokens: NDArray[np.int64] | None = None,
    rich: bool = False,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Adequacy | Unavailable:
    """Fit, integrate and compare on one segment, or say why that cannot be done.

    Parameters
    ----------
    paths, segment
        Sampled paths, and the layers of a segment that passed the gate on variation.
    rank
        How many principal coordinates.
    tokens
        Which token each path belongs to, for the lookup; without it, it knows positions alone.
    rich
        Whether ridge and network also see products of coordinates, entropy and tail mass of the
        distribution, and the velocity of the layer before. Forecasting onward, these stay what they
        were at the start.
    seed
        Of halves, networks and shuffles.
    advance
        Called after each half.
    """
    prompts = int(paths.prompt.max()) + 1
    if prompts < _FEWEST_PROMPTS:
        return Unavailable(
            f"at least {_FEWEST_PROMPTS} prompts are needed to fit a flow on half of them and to "
            f"judge it on the rest; there are {prompts}. Give at least {_FEWEST_PROMPTS} prompts"
        )
    second = halves(prompts, seed)[paths.prompt]
    names = [paths.position] if tokens is None else [tokens, paths.position]
    labels = torch.from_numpy(np.stack(names, 1).astype(np.int64))
    try:
        parts = []
        for judged in (second, ~second):
            parts.append(_half(paths, segment, judged, labels, rank=rank, rich=rich, seed=seed))
            advance()
    except InvalidInputError as error:  # too few tokens, or nothing moves: no drift can be fitted
        return Unavailable(str(error))
    return _joined(paths, segment, parts)


def skill_table(readings: Sequence[Adequacy]) -> pd.DataFrame:
    """One row per segment and prompt: total variation onward, summed over tokens and layers.

    ``still`` is the error of assuming that nothing changes, ``mean_drift`` that of the mean step of
    each layer over other prompts, ``scaled_drift`` that of the same with a rate per layer,
    ``lookup`` that of the mean path of the same token and position, ``floor`` that of the true
    coordinates. NaN where a forecast stopped.
    """
    rows = []
    for part in readings:
        sums = {
            column: np.bincount(part.prompt, part.errors[name].sum(1))
            for column, name in _COLUMNS.items()
            if name in part.errors
        }
        tokens = np.bincount(part.prompt)
        rows += [
            {
                "first_layer": part.segment.first,
                "last_layer": part.segment.last,
                "prompt": int(prompt),
                "tokens": int(tokens[prompt]),
                **{column: values[prompt] for column, values in sums.items()},
            }
            for prompt in np.flatnonzero(tokens)
        ]
    return pd.DataFrame(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Half:
    """One half of the prompts as it is forecast by drifts of the other."""

    rows: Tensor
    axes: LogitCoordinates
    y: Float[Tensor, "n states r"]
    onward: Float[Tensor, "n steps r"]
    errors: Arrays
    chosen: str
    fits: list[dict[str, object]]
    stopped: str


def _half(
    paths: Paths,
    segment: SegmentEvidence,
    judged: NDArray[np.bool_],
    labels: Int64[Tensor, "n columns"],
    *,
    rank: int,
    rich: bool,
    seed: int,
) -> _Half:
    hidden = paths.hidden[:, segment.first - 1 : segment.last + 1]
    near = np.zeros(len(judged), np.bool_)
    near[paths.close] = True
    fitting, rows = (_numbers(chosen, hidden.device) for chosen in (~judged, near & judged))
    axes = paths.readout.coordinates(hidden[fitting].flatten(0, 1), rank)
    y = axes.reduced(hidden)
    times = torch.arange(segment.first - 1, segment.last + 1, dtype=torch.float64) / paths.layers
    context = local_statistics(paths.readout, hidden[:, :-1], y) if rich else None
    course = Course(
        y=y,
        times=times.to(y.device),
        context=context,
        prompt=torch.from_numpy(paths.prompt).to(y.device),
        labels=labels.to(y.device),
    )
    fitted, held = (course.at(chosen.to(y.device)) for chosen in (fitting, rows))
    forecasts, fits, chosen = _forecasts(fitted, held, seed)
    between = None
    if not isinstance(paths.between, Unavailable):
        of_half = _numbers(judged[paths.close], paths.between.device)
        between = paths.between[of_half, segment.first - 1 : segment.last]
    errors = forecast_errors(paths.readout, axes, hidden[rows], forecasts, between)
    for horizon in ("one", "onward"):
        errors[f"{horizon}_flow"] = errors[f"{horizon}_{chosen}"]
    return _Half(
        rows=rows.cpu(),
        axes=axes,
        y=held.y,
        onward=forecasts[chosen].onward,
        errors=errors,
        chosen=chosen,
        fits=fits,
        stopped=str(next(row["because"] for row in fits if row["drift"] == chosen)),
    )


def _numbers(chosen: NDArray[np.bool_], device: torch.device) -> Int64[Tensor, "some"]:
    return torch.from_numpy(np.flatnonzero(chosen)).to(device)


def _forecasts(
    fitted: Course, held: Course, seed: int
) -> tuple[dict[str, Forecast], list[dict[str, object]], str]:
    """Forecasts of held-out tokens by every drift of the fitting half, and the kind it chooses."""
    generator = torch.Generator().manual_seed(seed)
    pairs, rich = fitted.pairs(), fitted.context is not None
    steps = fitted.y.shape[1] - 1
    folds = group_folds(pairs.groups, _FOLDS, generator)
    moving = instantaneous_sample(pairs, fitted.step, fit=lambda some: ridge_drift(some, rich=rich))
    left_out = folds.reshape(-1, steps)[:, 0] == 0
    sample, spare = moving.at(folds != 0), fitted.at(left_out)
    forecasts: dict[str, Forecast] = {}
    fits: list[dict[str, object]] = []
    nearest = {}
    for kind in KINDS:
        drift, setting = _fit(kind, sample, rich=rich, generator=generator)
        nearest[kind] = drift.neighbours if isinstance(drift, Neighbours) else 0
        forecasts[kind], error, because = _forecast(drift, kind, held, spare)
        fits.append(
            {
                "drift": kind,
                "relative_error": error,
                "setting": setting,
                "status": "stopped" if because else "ok",
                "because": because,
            }
        )
    chosen = str(min(fits, key=lambda row: float(str(row["relative_error"])))["drift"])
    near, far = mean_paths(mean_drift(pairs), held.y, held.times)
    forecasts["mean"] = Forecast(one_step=near, onward=far)
    scaled = scaled_mean(pairs, folds == 0)
    near, far = scaled_paths(scaled, held.y, held.times)
    forecasts["scaled"] = Forecast(one_step=near, onward=far)
    lookup = chosen_lookup(fitted.y, fitted.labels, left_out)
    near, far = lookup_paths(lookup, held.y, held.labels)
    forecasts["lookup"] = Forecast(one_step=near, onward=far)
    others = {
        "half": sample.at(half_of_prompts(sample.groups, generator)),
        "shuffled": shuffled_layers(sample, generator),
    }
    for name, part in others.items():
        drift, _ = _fit(chosen, part, rich=rich, generator=generator, neighbours=nearest[chosen])
        forecasts[name] = Forecast(one_step=None, onward=onward(drift, chosen, held)[0])
    return forecasts, fits, chosen


def _fit(
    kind: str,
    sample: DriftSample,
    *,
    rich: bool,
    generator: torch.Generator,
    neighbours: int = 0,
) -> tuple[Drift, str]:
    """One kind of drift and its setting in words; smaller choices where a sample is small.

    ``neighbours`` fixes their number; with 0 it is chosen.
    """
    if kind == "perceptron":
        with torch.enable_grad():  # the network is trained
            network = perceptron_drift(sample, generator=generator, rich=rich, training=_TRAINING)
        return network, f"{len(network.errors)} epochs"
    counts = torch.unique(sample.groups, return_counts=True)[1]
    if kind == "neighbours":
        others = len(sample) - int(counts.max())
        choices = (neighbours,) if neighbours else _NEIGHBOURS
        # the search is in float32 already: velocities in float32 halve the time
        near = neighbour_drift(
            replace(sample, velocities=sample.velocities.float()),
            candidates=[k for k in choices if k <= others] or [others],
            probes=_PROBES,
        )
        return near, f"{near.neighbours} neighbours"
    ridge = ridge_drift(sample, rich=rich, folds=min(_FOLDS, len(counts)))
    return ridge, f"strength {ridge.strength:g}"


def _forecast(drift: Drift, kind: str, held: Course, spare: Course) -> tuple[Forecast, float, str]:
    """Forecast of the held-out tokens, its error on spare fitting prompts, and why it stopped.

    The error is that of the coordinates onward, relative to no motion; infinite after a stop.
    """
    far, because = onward(drift, kind, held)
    said, stop = onward(drift, kind, spare)
    truth, still = spare.y[:, 1:], spare.y[:, :1]
    error = float((said - truth).square().sum() / (truth - still).square().sum())
    because = because or stop
    near, stop = (
        (torch.full_like(far, torch.nan), because) if because else one_layer(drift, kind, held)
    )
    error = float("inf") if stop or not np.isfinite(error) else error
    return Forecast(one_step=near, onward=far), error, stop


def _joined(paths: Paths, segment: SegmentEvidence, parts: list[_Half]) -> Adequacy:
    """Both halves put together; clouds are shown in the axes of the first."""
    rows = torch.cat([part.rows for part in parts])
    order = torch.argsort(rows)
    shown = parts[0].axes
    chosen = rows[order].to(paths.hidden.device)
    hidden = paths.hidden[chosen, segment.first - 1 : segment.last + 1]
    y = shown.reduced(hidden)
    moves = []
    for part in parts:
        turn = (part.axes.axes.mT @ shown.axes).double()
        moves.append((part.onward - part.y[:, :1]) @ turn)
    return Adequacy(
        segment=segment,
        prompt=paths.prompt[rows[order].numpy()],
        errors={
            name: np.concatenate([part.errors[name] for part in parts])[order.numpy()]
            for name in parts[0].errors
        },
        chosen=(parts[0].chosen, parts[1].chosen),
        fits=[{"half": half, **row} for half, part in enumerate(parts) for row in part.fits],
        coordinates=shown,
        y=y,
        predicted=y[:, :1] + torch.cat(moves)[order.to(y.device)],
        stopped="; ".join(part.stopped for part in parts if part.stopped),
    )
