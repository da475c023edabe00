"""Measure the change of entropy in every block and the flow behind it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.flows.potential import covariance_forecast, lag_correlation
from flowscope.instruments.latent.clouds import Clouds, entropy_refusal, made_clouds
from flowscope.instruments.latent.entropy.tables import ends_of
from flowscope.instruments.latent.rate.refinement import refinement_table, squared_steps
from flowscope.instruments.latent.rate.steps import pooled_steps, step_arrays
from flowscope.instruments.latent.rate.tables import (
    halves_of_rates,
    layers_with_rates,
    rate_controls_table,
    rates_table,
    spectrum_table,
    turning_table,
)
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.claim import Abstention
from flowscope.models.twin import fresh_twin
from flowscope.records import Unavailable

__all__ = ["rate"]

Arrays = dict[str, NDArray[np.generic]]
Steps = list[dict[str, Arrays]]
_AHEAD = 4  # blocks of a forecast of the covariance


def rate(bench: LatentBench) -> None:
    """Write the tables of the rate, and its columns into the table ``layers``.

    Raises
    ------
    Abstention
        Where the entropies abstain, or no block has a rate.
    """
    clouds: Clouds = bench.shared("clouds")
    squares = _squared_steps(bench)
    refusal = entropy_refusal(clouds)
    if not refusal:
        refusal = _rates(bench, clouds)
    if squares is not None:
        bench.put("refinement", refinement_table(bench.config, *squares))
    if refusal:
        raise Abstention(refusal)


def _rates(bench: LatentBench, clouds: Clouds) -> str:
    """Write what needs entropies; return why there is nothing, or nothing."""
    counter = bench.counter("rates", clouds.layers)
    steps: Steps = []
    makers = {
        f"rate-{block:04d}": partial(_block, bench, clouds, block, curved=True)
        for block in range(1, clouds.layers + 1)
    }
    bench.spread(makers)
    for name, make in makers.items():
        steps.append(_split(bench.shard(name, make)))
        counter.advance(1)
    groups = {name: sample.groups for name, sample in clouds.samples.items()}
    twins = _twins(bench)
    _note_absences(bench, steps)
    _memory(bench, clouds)
    frame = rates_table(bench.config, clouds, steps)
    if not len(frame):
        return "no block has a rate; the measurements say why"
    bench.put("rates", frame)
    bench.put("curvature_spectrum", spectrum_table(steps))
    bench.put("layers", layers_with_rates(bench.records.read_table("layers"), frame))
    halves = halves_of_rates("model", groups, steps)
    turning = turning_table(bench.config, halves, frame)
    if len(turning):
        bench.put("turning_layers", turning)
    if twins:
        bench.put("rate_controls", rate_controls_table(bench.config, clouds, twins))
    for name, found in twins.items():
        halves |= halves_of_rates(name, groups, found)
    bench.put_arrays("rate_halves", halves)
    return ""


def _block(bench: LatentBench, clouds: Clouds, block: int, *, curved: bool) -> Arrays:
    config = bench.config
    return {
        f"{name}/{key}": value
        for name, sample in clouds.samples.items()
        for key, value in step_arrays(
            clouds, sample, block, config.ranks[0], config.neighbour, curved=curved
        ).items()
    }


def _split(arrays: Arrays) -> dict[str, Arrays]:
    """Arrays of one block by sample."""
    found: dict[str, Arrays] = {}
    for key, value in arrays.items():
        sample, _, part = key.partition("/")
        found.setdefault(sample, {})[part] = value
    return found


def _twins(bench: LatentBench) -> dict[str, Steps]:
    """Steps of networks with random weights, by name."""
    config, found = bench.config, {}
    if not config.controls:
        return {}
    for number in range(config.twins):
        name = f"random twin {number + 1}"

        def made(number: int = number, name: str = name) -> Arrays:
            twin = fresh_twin(bench.subject.loaded.model, config.seed + number)
            if isinstance(twin, Unavailable):
                return {"absent": np.zeros(1)}
            clouds = made_clouds(bench, twin, f"{name}, rates")
            return {
                f"{block}/{key}": value
                for block in range(1, clouds.layers + 1)
                for key, value in _block(bench, clouds, block, curved=False).items()
            }

        arrays = bench.shard(f"rate-twin-{number}", made)
        if "absent" in arrays:
            break
        blocks: dict[int, Arrays] = {}
        for key, value in arrays.items():
            block, _, rest = key.partition("/")
            blocks.setdefault(int(block), {})[rest] = value
        found[name] = [_split(blocks[block]) for block in sorted(blocks)]
    return found


def _note_absences(bench: LatentBench, steps: Steps) -> None:
    for block, found in enumerate(steps, 1):
        for sample, arrays in found.items():
            if "reason" in arrays:
                reason = bytes(arrays["reason"].astype(np.uint8)).decode()
                bench.abstain(f"rate of block {block}, {sample}", reason)


def _memory(bench: LatentBench, clouds: Clouds) -> None:
    """Write the table ``memory``."""
    sample = clouds.samples["all"]
    try:
        flows = pooled_steps(clouds, sample, bench.config.ranks[0])
    except InvalidInputError as refusal:
        bench.abstain("memory", str(refusal))
        return
    rows = []
    for block in range(1, len(flows)):
        first, second = flows[block - 1].residuals, flows[block].residuals
        lags = [lag_correlation(first, second)]
        lags += [lag_correlation(first[half], second[half]) for half in sample.halves]
        row = {"layer": block, **ends_of("lag_correlation", np.array(lags), sample.groups)}
        ahead = min(_AHEAD, len(flows) - block + 1)
        error, persistence = covariance_forecast(flows[block - 1 : block - 1 + ahead])
        rows.append(row | {
            "ahead": ahead, "forecast_error": error, "persistence_error": persistence,
        })  # fmt: skip
    if rows:
        bench.put("memory", pd.DataFrame(rows))


def _squared_steps(
    bench: LatentBench,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What the table ``refinement`` is made of; it needs no entropy."""
    try:
        return squared_steps(bench)
    except InvalidInputError as refusal:
        bench.abstain("refinement", f"blocks cannot be cut into shorter steps: {refusal}")
        return None
