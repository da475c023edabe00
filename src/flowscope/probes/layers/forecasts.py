r"""How far a forecast of the next layers is from the layers: whole laws, not coordinates.

A drift says where the coordinates $y$ of a token go. Read through
$z(t) = z^{\ell_0} + B(y(t) - y^{\ell_0})$ it says a law, and the total variation to the law the
model really gives is what the flow is judged by. Beside it stand, at the same tokens and layers:

* *persistence*, zero drift: how far the model moved;
* the *floor*, the true coordinates in place of the forecast: what $r$ axes cannot say;
* the *line* of logits between the two ends of the segment, which knows the end.

And the bound that says how far one layer may go, $\tanh(\sum_w \mathrm{osc}(\Delta z_w)/4)$ over
the writes $w$ of the block. Each is taken where it is made: $\Delta z_w$ is the difference of the
logits after and before the write, so the sum telescopes and no norm term is left over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.flows.drift import first_order, restricted_bound
from flowscope.probes.layers.coordinates import LogitCoordinates, LogitReadout
from flowscope.probes.layers.readouts import rows_at_once
from flowscope.probes.reducer import Arrays
from flowscope.simplex import entropy, oscillation
from flowscope.simplex.probability import split_peak

__all__ = ["REFERENCES", "Forecast", "forecast_errors", "local_statistics"]

REFERENCES = ("persistence", "floor", "line")
_LOGITS_AT_ONCE = 2**22
_COPIES = 24
_LEADING = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Coordinates forecast at every state of a segment but the first.

    Attributes
    ----------
    one_step
        From the state before; None where only the long forecast is asked for.
    onward
        From the first state of the segment.
    """

    one_step: Float[Tensor, "n steps r"] | None
    onward: Float[Tensor, "n steps r"]


@torch.no_grad()
def forecast_errors(
    readout: LogitReadout,
    coordinates: LogitCoordinates,
    hidden: Float[Tensor, "n states d"],
    forecasts: Mapping[str, Forecast],
    between: Float[Tensor, "n steps writes d"] | None = None,
) -> Arrays:
    """Total variation of every forecast and reference, per token and step of a segment.

    Parameters
    ----------
    readout, coordinates
        From states to logits, and the axes the forecasts are in.
    hidden
        States of the segment, its first one included.
    forecasts
        By name; coordinates as ``coordinates.reduced`` gives them.
    between
        States between the writes of each block, where there are any.

    Returns
    -------
    ``one_*`` and ``onward_*`` ``[n, steps]`` for every forecast and reference (the line, and a
    forecast without ``one_step``, only onward), and of the model's own steps:
    ``osc``, ``first_order``, ``restricted``, ``writes`` (NaN without ``between``).
    """
    y = coordinates.reduced(hidden)
    rows = max(_LOGITS_AT_ONCE // (readout.width * 8), 4)
    if readout.device.type != "cpu":
        rows = rows_at_once(readout.width, readout.device, copies=_COPIES)
    found: dict[str, list[Tensor]] = {}
    for start in range(0, len(hidden), rows):
        piece = slice(start, start + rows)
        part = {
            name: Forecast(
                one_step=None if f.one_step is None else f.one_step[piece],
                onward=f.onward[piece],
            )
            for name, f in forecasts.items()
        }
        segment = _Segment(readout, coordinates, hidden[piece], y[piece], part)
        told = segment.told(None if between is None else between[piece])
        for name, columns in told.items():
            found.setdefault(name, []).append(torch.stack(columns, 1))
    return {name: torch.cat(pieces).double().cpu().numpy() for name, pieces in found.items()}


@torch.no_grad()
def local_statistics(
    readout: LogitReadout, hidden: Float[Tensor, "n steps d"], y: Float[Tensor, "n states r"]
) -> Float[Tensor, "n steps c"]:
    """What a rich drift sees beside the coordinates, at every state but the last (000 O.1).

    Entropy and tail mass of the law, and the step that led to the state along the four leading
    coordinates (zero at the first, which has none).
    """
    rows = hidden.flatten(0, 1)
    parts = []
    chunk = rows_at_once(readout.width, readout.device, _LOGITS_AT_ONCE, copies=_COPIES)
    for piece in torch.split(rows, chunk):
        p = readout.logits(piece).softmax(-1)
        parts.append(torch.stack([entropy(p), split_peak(p)[1].sum(-1)], -1).double())
    steps = y[..., :_LEADING].diff(dim=1)
    before = torch.cat([torch.zeros_like(steps[:, :1]), steps[:, :-1]], 1).double()
    return torch.cat([torch.cat(parts).reshape(*hidden.shape[:2], 2).to(before), before], -1)


@dataclass(frozen=True, eq=False)
class _Segment:
    """A few tokens along one segment."""

    readout: LogitReadout
    coordinates: LogitCoordinates
    hidden: Tensor
    y: Tensor
    forecasts: Mapping[str, Forecast]

    def told(self, between: Tensor | None) -> dict[str, list[Tensor]]:
        found: dict[str, list[Tensor]] = {}
        for columns in self._steps(between):
            for name, values in columns.items():
                found.setdefault(name, []).append(values)
        return found

    def _steps(self, between: Tensor | None) -> Iterator[dict[str, Tensor]]:
        first, last = (self.readout.logits(self.hidden[:, k]) for k in (0, -1))
        start = first.softmax(-1)
        z, p, steps = first, start, self.hidden.shape[1] - 1
        for k in range(steps):
            nearer = self.readout.logits(self.hidden[:, k + 1])
            q = nearer.softmax(-1)
            line = first + (last - first) * ((k + 1) / steps)
            told = {
                "one_persistence": _variation(p, q),
                "onward_persistence": _variation(start, q),
                "onward_line": _variation(line.softmax(-1), q),
                "osc": oscillation(nearer - z),
                "first_order": first_order(p, nearer - z),
                "restricted": restricted_bound(p, q, nearer - z),
                "writes": self._writes(z, nearer, None if between is None else between[:, k]),
            }
            truth = Forecast(one_step=self.y[:, 1:], onward=self.y[:, 1:])
            for name, said in {**self.forecasts, "floor": truth}.items():
                if said.one_step is not None:
                    near = z + self.coordinates.lifted(said.one_step[:, k] - self.y[:, k])
                    told[f"one_{name}"] = _variation(near.softmax(-1), q)
                far = first + self.coordinates.lifted(said.onward[:, k] - self.y[:, 0])
                told[f"onward_{name}"] = _variation(far.softmax(-1), q)
            yield told
            z, p = nearer, q

    def _writes(self, z: Tensor, nearer: Tensor, between: Tensor | None) -> Tensor:
        if between is None:
            return torch.full_like(z[:, 0], torch.nan)
        inner = [self.readout.logits(between[:, w]) for w in range(between.shape[1])]
        steps = [oscillation(b - a) for a, b in pairwise([z, *inner, nearer])]
        return torch.stack(steps).sum(0)


def _variation(p: Tensor, q: Tensor) -> Tensor:
    return 0.5 * (p - q).abs().sum(-1)
