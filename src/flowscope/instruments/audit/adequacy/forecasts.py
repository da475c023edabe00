r"""Adequacy on sampled paths: drifts fitted on half of the prompts, judged on the other half.

Prompts are split in two; on each half every kind of drift is fitted to the one-step differences of
the coordinates, and each half is forecast by the drift of the other. So every forecast is of a
prompt the drift has not seen, and every prompt is forecast. Two horizons: one layer ahead, and from
the first state of the segment to each later one, integrated by Dormand–Prince. A drift by nearest
neighbours jumps where neighbours change, which an adaptive step would resolve one by one: it is
integrated by Heun's method with a fixed step. The axes of the coordinates are those of all sampled
states, the judged ones included; only the drifts are held out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    Drift,
    DriftSample,
    drift_sample,
    group_folds,
    instantaneous_sample,
    neighbour_drift,
    perceptron_drift,
    ridge_drift,
)
from flowscope.flows.sampling import OdePath, ode_path
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.probes import Arrays
from flowscope.probes.layers.coordinates import LogitCoordinates
from flowscope.probes.layers.forecasts import Forecast, forecast_errors, local_statistics
from flowscope.records import Unavailable

__all__ = ["KINDS", "Adequacy", "forecasts_of", "halves"]

KINDS = ("ridge", "neighbours", "perceptron")
_FOLDS = 5
_FEWEST_PROMPTS = 14  # five folds in four fifths of each half
_HEUN_STEPS = 2


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
        As `forecast_errors` gives them; besides the kinds of drift there is ``flow``, for each half
        the kind with the least error on a fifth of the other half that no kind was fitted on.
    chosen
        That kind, of both halves.
    fits
        One row per half and kind: its error on that fifth relative to zero drift, setting, status.
    coordinates
        The axes, and how much of the variance they hold.
    y, predicted
        True and forecast coordinates (onward) of those tokens, ``[n, steps, r]``.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Half:
    """One half of the prompts as it is forecast by drifts of the other."""

    rows: Tensor
    forecasts: dict[str, Forecast]
    chosen: str
    fits: list[dict[str, object]]
    stopped: dict[str, str] = field(default_factory=dict)


def halves(prompts: int, seed: int) -> NDArray[np.bool_]:
    """Which prompts are in the second half: a random half, the same for every part of a run."""
    order = np.random.default_rng(seed).permutation(prompts)
    found: NDArray[np.bool_] = np.isin(np.arange(prompts), order[: prompts // 2])
    return found


@torch.no_grad()
def forecasts_of(
    paths: Paths,
    segment: SegmentEvidence,
    *,
    rank: int,
    rich: bool,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Adequacy | Unavailable:
    """Fit, integrate and compare on one segment, or why that cannot be done.

    Parameters
    ----------
    paths, segment
        Sampled paths, and the layers of a segment that passed the gate on variation.
    rank
        How many principal coordinates.
    rich
        Whether ridge and network also see products of coordinates and what O.1 of source 000 adds:
        entropy and tail mass of the law, and the velocity of the layer before. Forecasting onward,
        these stay what they were at the start.
    seed
        Of halves and networks.
    advance
        Told after each half.
    """
    prompts = int(paths.prompt.max()) + 1
    if prompts < _FEWEST_PROMPTS:
        return Unavailable(
            f"at least {_FEWEST_PROMPTS} prompts are needed to fit a drift and judge it on other "
            f"prompts; there are {prompts}"
        )
    hidden = paths.hidden[:, segment.first - 1 : segment.last + 1]
    try:
        axes = paths.readout.coordinates(hidden.flatten(0, 1), rank)
        return _forecasts(paths, segment, axes, hidden, rich=rich, seed=seed, advance=advance)
    except InvalidInputError as error:  # too few tokens, or nothing moves: no drift can be fitted
        return Unavailable(str(error))


def _forecasts(
    paths: Paths,
    segment: SegmentEvidence,
    axes: LogitCoordinates,
    hidden: Tensor,
    *,
    rich: bool,
    seed: int,
    advance: Callable[[], None],
) -> Adequacy:
    y = axes.reduced(hidden)
    times = torch.arange(segment.first - 1, segment.last + 1, dtype=torch.float64) / paths.layers
    context = local_statistics(paths.readout, hidden[:, :-1], y) if rich else None
    course = _Course(y=y, times=times, context=context, prompt=torch.from_numpy(paths.prompt))
    second = halves(int(paths.prompt.max()) + 1, seed)[paths.prompt]
    close = np.isin(np.arange(len(paths.prompt)), paths.close)
    parts = []
    for judged in (second, ~second):
        fitted = course.at(torch.from_numpy(~judged))
        rows = torch.from_numpy(judged & close)
        parts.append(_half(fitted, course.at(rows), rows, seed))
        advance()
    return _joined(paths, segment, axes, y, parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Course:
    """Coordinates of tokens along a segment, with what a rich drift sees beside them."""

    y: Float[Tensor, "n states r"]
    times: Float[Tensor, "states"]
    context: Float[Tensor, "n steps c"] | None
    prompt: Tensor

    @property
    def step(self) -> float:
        """Time of one layer."""
        return float(self.times[1] - self.times[0])

    def at(self, rows: Tensor) -> "_Course":
        context = None if self.context is None else self.context[rows]
        return replace(self, y=self.y[rows], context=context, prompt=self.prompt[rows])

    def pairs(self) -> DriftSample:
        return drift_sample(self.y, self.times, self.prompt, self.context)


def _half(fitted: _Course, judged: _Course, rows: Tensor, seed: int) -> _Half:
    forecasts: dict[str, Forecast] = {}
    fits, stopped = [], {}
    for kind, (drift, error, setting) in _fitted(fitted, seed).items():
        forecasts[kind], because = _forecast(drift, kind, judged)
        stopped[kind] = because
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
    return _Half(rows=rows, forecasts=forecasts, chosen=chosen, fits=fits, stopped=stopped)


def _fitted(course: _Course, seed: int) -> dict[str, tuple[Drift, float, str]]:
    """Every kind of drift, its error relative to zero drift, and its setting.

    All are fitted to the velocity at the start of a layer, which the flow of a ridge drift tells
    from the difference across it, on four fifths of the prompts; the error is that of the rest, the
    same for all, so that kinds can be compared.
    """
    generator = torch.Generator().manual_seed(seed)
    pairs, rich = course.pairs(), course.context is not None
    folds = group_folds(pairs.groups, _FOLDS, generator)
    moving = instantaneous_sample(pairs, course.step, fit=lambda some: ridge_drift(some, rich=rich))
    sample, rest = moving.at(folds != 0), moving.at(folds == 0)
    with torch.enable_grad():  # the network is trained
        network = perceptron_drift(sample, generator=generator, rich=rich)
    ridge, near = ridge_drift(sample, rich=rich), neighbour_drift(sample)
    settings: dict[str, tuple[Drift, str]] = {
        "ridge": (ridge, f"strength {ridge.strength:g}"),
        "neighbours": (near, f"{near.neighbours} neighbours"),
        "perceptron": (network, f"{len(network.errors)} epochs"),
    }
    still = float(rest.velocities.square().sum())
    found: dict[str, tuple[Drift, float, str]] = {}
    for kind, (drift, setting) in settings.items():
        missed = rest.velocities - drift(rest.times, rest.states, rest.context)
        found[kind] = (drift, float(missed.square().sum()) / still, setting)
    return found


def _forecast(drift: Drift, kind: str, course: _Course) -> tuple[Forecast, str]:
    """Coordinates one layer ahead and onward from the first state."""
    y, times, context = course.y, course.times, course.context
    n, states, r = y.shape
    first = None if context is None else context[:, 0]
    onward = _integrated(kind, lambda t, x: drift(t, x, first), y[:, 0], times)
    # every state starts its own layer: one path for all of them, on a clock of its own
    starts, ahead = times[:-1].repeat(n), torch.tensor([0.0, course.step], dtype=torch.float64)
    each = None if context is None else context.flatten(0, 1)
    near = _integrated(
        kind, lambda t, x: drift(starts + t, x, each), y[:, :-1].reshape(-1, r), ahead
    )
    because = "; ".join(
        path.because or path.status for path in (onward, near) if path.status != "ok"
    )
    said = Forecast(
        one_step=near.states[-1].reshape(n, states - 1, r),
        onward=onward.states[1:].transpose(0, 1),
    )
    return said, because


def _integrated(
    kind: str, velocity: Callable[[Tensor, Tensor], Tensor], start: Tensor, times: Tensor
) -> OdePath:
    if kind == "neighbours":
        return ode_path(velocity, start, times, method="heun", substeps=_HEUN_STEPS)
    return ode_path(velocity, start, times)


def _joined(
    paths: Paths,
    segment: SegmentEvidence,
    axes: LogitCoordinates,
    y: Tensor,
    parts: list[_Half],
) -> Adequacy:
    """Both halves put together and compared with the layers."""
    rows = torch.cat([part.rows.nonzero()[:, 0] for part in parts])
    order = torch.argsort(rows)
    whole = {
        name: Forecast(
            one_step=torch.cat([part.forecasts[name].one_step for part in parts])[order],
            onward=torch.cat([part.forecasts[name].onward for part in parts])[order],
        )
        for name in parts[0].forecasts
    }
    close = rows[order]
    steps = slice(segment.first - 1, segment.last)
    between = None if isinstance(paths.between, Unavailable) else paths.between[:, steps]
    hidden = paths.hidden[close, segment.first - 1 : segment.last + 1]
    fits = [{"half": half, **row} for half, part in enumerate(parts) for row in part.fits]
    errors = forecast_errors(paths.readout, axes, hidden, whole, between)
    owner = torch.cat([torch.full((int(p.rows.sum()),), k) for k, p in enumerate(parts)])[order]
    chosen = (parts[0].chosen, parts[1].chosen)
    for horizon in ("one", "onward"):
        either = [errors[f"{horizon}_{kind}"] for kind in chosen]
        errors[f"{horizon}_flow"] = np.where(owner.numpy()[:, None] == 0, *either)
    onward = [whole[kind].onward for kind in chosen]
    return Adequacy(
        segment=segment,
        prompt=paths.prompt[close.numpy()],
        errors=errors,
        chosen=chosen,
        fits=fits,
        coordinates=axes,
        y=y[close],
        predicted=torch.where(owner[:, None, None] == 0, onward[0], onward[1]),
        stopped="; ".join(part.stopped[part.chosen] for part in parts if part.stopped[part.chosen]),
    )
