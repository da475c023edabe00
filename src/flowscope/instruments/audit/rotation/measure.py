r"""The rotation stage of an audit: how much of the motion at each central layer turns.

At a layer, the points are the states of the sampled tokens before it in $r$ principal coordinates
of the logits, the velocities their differences across it per unit of depth. Energies are squared
lengths of centred logits; that of the whole step counts what lies outside the coordinates. Prompts
are the unit of halves, signs and intervals, and a prompt that repeats another is left out. Layers
share their halves and signs, so that a mean or a maximum over layers knows how they depend.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge import RotationReading, Settings, rotation_presence, rotation_reading
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.reading import depth_of, path_probes, paths_of
from flowscope.instruments.audit.rotation import TABLES
from flowscope.instruments.audit.rotation.stored import stored
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.units import distinct_prompts
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.instruments.audit.variation.tables import prompt_medians
from flowscope.lab.claim import Abstention
from flowscope.probes import LogitCoordinates
from flowscope.records import Unavailable

__all__ = ["LayerRotation", "central_layers", "layer_rotations", "measure", "probes", "tables"]

probes = path_probes

# More blocks of prompts hardly narrow an interval, and each costs its moments.
_SETTINGS = Settings(splits=4, blocks=32)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerRotation:
    """A layer and its reading, or why it has none.

    ``coordinates``, ``tokens`` and ``prompts`` are those that the layer was read in.
    """

    layer: int
    reading: RotationReading | Unavailable
    coordinates: int
    tokens: int
    prompts: int


def measure(bench: AuditBench) -> None:
    """Write how much of the motion rotates at the central layers, beside gradient controls."""
    paths = paths_of(bench)
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    depth, config = depth_of(bench), bench.config
    wanted = central_layers(depth.passing, paths.layers, config.rotation_layers)
    counter = bench.counter("rotation", len(wanted))
    layers = layer_rotations(
        paths,
        depth.passing,
        wanted,
        distinct=distinct_prompts(prompt_medians(depth.reading.depth)),
        rank=config.rotation_rank,
        seed=config.seed,
        advance=counter.advance,
    )
    table, arrays = tables(layers)
    bench.put("rotation", table)
    if arrays:
        bench.put_arrays("rotation", arrays)


def central_layers(passing: Sequence[SegmentEvidence], layers: int, count: int) -> list[int]:
    """The layers of passing segments nearest to the middle of the depth, in order."""
    inside = [layer for s in passing for layer in range(s.first, s.last + 1)]
    middle = (layers + 1) / 2
    return sorted(sorted(inside, key=lambda layer: (abs(layer - middle), layer))[:count])


def layer_rotations(
    paths: Paths,
    passing: Sequence[SegmentEvidence],
    wanted: Sequence[int],
    *,
    distinct: NDArray[np.int64],
    rank: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[LayerRotation]:
    """Read the rotation at every wanted layer.

    Parameters
    ----------
    paths
        Sampled tokens.
    passing
        Segments that passed the gate; the coordinates of a layer are those of its segment.
    wanted
        Layers, each in a passing segment.
    distinct
        Numbers of the prompts that repeat no other one.
    rank
        How many coordinates.
    seed
        Of halves, signs, centres and waves; the layers share it.
    advance
        Called after every layer.
    """
    rows = np.isin(paths.prompt, distinct)
    groups = torch.from_numpy(np.unique(paths.prompt[rows], return_inverse=True)[1])
    hidden = paths.hidden[torch.from_numpy(np.flatnonzero(rows)).to(paths.hidden.device)]
    axes: dict[int, LogitCoordinates] = {}
    made = []
    for layer in wanted:
        segment = next(s for s in passing if s.first <= layer <= s.last)
        coordinates = 0
        reading: RotationReading | Unavailable
        try:
            if segment.first not in axes:
                states = hidden[:, segment.first - 1 : segment.last + 1].flatten(0, 1)
                axes[segment.first] = _axes(paths, states, rank)
            y, v, energy = _step(paths, axes[segment.first], hidden[:, layer - 1 : layer + 1])
            coordinates = y.shape[1]
            reading = rotation_reading(
                y, v, groups=groups, seed=seed, total_energy=energy, settings=_SETTINGS
            )
        except InvalidInputError as error:
            reading = Unavailable(str(error))
        made.append(
            LayerRotation(
                layer=layer,
                reading=reading,
                coordinates=coordinates,
                tokens=len(groups),
                prompts=int(groups.max()) + 1,
            )
        )
        advance()
    return made


def tables(layers: Sequence[LayerRotation]) -> tuple[pd.DataFrame, dict[str, NDArray[Any]]]:
    """The table ``rotation`` and the arrays that its judge reads; no arrays where no layer spoke.

    Parameters
    ----------
    layers
        What was read.
    """
    pairs = [(one.layer, one.reading) for one in layers]
    ok = [(layer, read) for layer, read in pairs if not isinstance(read, Unavailable)]
    adjusted: dict[int, float] = {}
    if ok:
        there = rotation_presence([read for _, read in ok])
        numbers = zip(there.used, there.layer_p, strict=True)
        adjusted = {ok[k][0]: p for k, p in numbers}
    rows = [
        {
            "layer": one.layer,
            "coordinates": one.coordinates,
            "tokens": one.tokens,
            "prompts": one.prompts,
            **_numbers(one.reading, adjusted.get(one.layer, np.nan)),
        }
        for one in layers
    ]
    table = pd.DataFrame(rows, columns=list(TABLES["rotation"].schema))
    arrays = stored([layer for layer, _ in ok], [read for _, read in ok]) if ok else {}
    return table, arrays


@torch.no_grad()
def _axes(paths: Paths, states: Tensor, rank: int) -> LogitCoordinates:
    """Principal coordinates of the logits of a segment."""
    return paths.readout.coordinates(states, rank)


@torch.no_grad()
def _step(paths: Paths, axes: LogitCoordinates, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Points, velocities and energies of whole steps; ``ends`` are the states before and after."""
    y = axes.reduced(ends)
    v = (y[:, 1] - y[:, 0]) * paths.layers
    whole = paths.readout.squared_steps(ends[:, 0], ends[:, 1]) * paths.layers**2
    # Where the coordinates span all logits, rounding may leave the part larger than the whole.
    return y[:, 0], v, torch.maximum(whole, v.square().sum(1))


def _numbers(reading: RotationReading | Unavailable, adjusted: float) -> dict[str, Any]:
    if isinstance(reading, Unavailable):
        return {"status": "abstained", "because": reading.reason}
    shares = {
        "represented": reading.represented,
        "rotation_share": reading.rotation,
        "gradient_share": reading.gradient,
    }
    made: dict[str, Any] = {
        "normalised": reading.normalised.value,
        "low": reading.normalised.low,
        "high": reading.normalised.high,
        "control": reading.control,
        "control_least": min(reading.controls),
        "control_most": max(reading.controls),
        "margin": reading.margin,
        "energy": reading.rotation.value * reading.energy,
        "total": reading.energy,
        "p_value": rotation_presence([reading]).p,
        "p_adjusted": adjusted,
        "degree": reading.degree,
        "functions": reading.regressors,
        "potentials": reading.potentials,
        "status": "ok",
        "because": "",
    }
    for name, share in shares.items():
        made |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
    return made
