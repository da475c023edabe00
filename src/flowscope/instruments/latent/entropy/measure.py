"""Read the cloud of tokens at every layer, of the model and of what stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import nn

from flowscope.instruments.latent.clouds import Clouds, Sample, entropy_refusal, made_clouds
from flowscope.instruments.latent.entropy.output import output_entropies, output_table
from flowscope.instruments.latent.entropy.reading import (
    cloud_entropies,
    cloud_shape,
    principal_axes,
)
from flowscope.instruments.latent.entropy.tables import (
    controls_table,
    halves_of,
    layers_table,
    samples_table,
)
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.claim import Abstention
from flowscope.models.twin import fresh_twin
from flowscope.records import Unavailable

__all__ = ["entropy"]

Arrays = dict[str, NDArray[np.float64]]
_SURROGATES = 3  # key of random numbers


def entropy(bench: LatentBench) -> None:
    """Write the tables of the cloud, of what stands beside it and of the output, and the halves.

    Raises
    ------
    Abstention
        With too few prompts or distinct tokens for an entropy; what needs none is written.
    """
    model = bench.subject.loaded.model
    clouds = bench.once("clouds", lambda: made_clouds(bench, model, "clouds"))
    refusal = entropy_refusal(clouds)
    counter = bench.counter("layers", clouds.layers + 1)
    readings = []
    bench.spread(_makers(bench, "model", clouds, refused=bool(refusal)))
    for depth in range(clouds.layers + 1):
        readings.append(_layer(bench, "model", clouds, depth, refused=bool(refusal)))
        counter.advance(1)
    spoken = output_entropies(bench, clouds)
    beside = {} if refusal else _controls(bench)
    bench.put("samples", samples_table(clouds))
    bench.put("layers", layers_table(bench.config, clouds, readings))
    if spoken is not None:
        bench.put("output_entropy", output_table(bench.config, *spoken))
    if beside:
        bench.put("entropy_controls", controls_table(bench.config, beside))
    if refusal:
        raise Abstention(refusal)
    _note_absences(bench, clouds, readings)
    bench.put_arrays("entropy_halves", halves_of({"model": (clouds, readings), **beside}))


def _layer(
    bench: LatentBench, subject: str, clouds: Clouds, depth: int, *, refused: bool
) -> dict[str, Arrays]:
    """Numbers of one layer by sample, from a shard where there is one."""
    name = _name(subject, depth)
    arrays = bench.shard(name, _makers(bench, subject, clouds, refused=refused)[name])
    found: dict[str, Arrays] = {}
    for key, value in arrays.items():
        sample, _, part = key.partition("/")
        found.setdefault(sample, {})[part] = value
    return found


def _name(subject: str, depth: int) -> str:
    return f"{subject}-{depth:04d}"


def _makers(
    bench: LatentBench, subject: str, clouds: Clouds, *, refused: bool
) -> dict[str, Callable[[], dict[str, NDArray[np.generic]]]]:
    """What makes the shard of each layer."""

    def made(depth: int) -> dict[str, NDArray[np.generic]]:
        return {
            f"{name}/{key}": value
            for number, (name, sample) in enumerate(clouds.samples.items())
            for key, value in _cloud(
                bench, clouds, sample, depth, number, control=subject != "model", refused=refused
            ).items()
        }

    return {_name(subject, depth): partial(made, depth) for depth in range(clouds.layers + 1)}


def _cloud(
    bench: LatentBench,
    clouds: Clouds,
    sample: Sample,
    depth: int,
    number: int,
    *,
    control: bool,
    refused: bool,
) -> dict[str, NDArray[np.generic]]:
    config = bench.config
    x = clouds.directions[sample.places, depth].double()
    axes = principal_axes(x) if len(x) > 1 else None
    found: dict[str, NDArray[np.generic]] = {}
    if not control:
        found |= cloud_shape(x, axes, sample) if sample.groups > 1 else {}
    if not refused:
        values, reasons = cloud_entropies(
            axes,
            sample,
            config.ranks[:1] if control else config.ranks,
            k=config.neighbour,
            surrogates=0 if control else config.surrogates,
            generator=bench.generator(_SURROGATES, depth, number),
        )
        found |= {"entropies": values, "reasons": _as_bytes(reasons)}
    return found


def _controls(bench: LatentBench) -> dict[str, tuple[Clouds, list[dict[str, Arrays]]]]:
    """Clouds of shuffled text and of networks with random weights, by name."""
    config, model = bench.config, bench.subject.loaded.model
    if not config.controls:
        return {}
    found = {}
    jobs: dict[str, Callable[[], nn.Module | Unavailable]] = {}
    if "types" in bench.shared("clouds").samples:
        jobs["shuffled text"] = lambda: model
    for number in range(config.twins):
        jobs[f"random twin {number + 1}"] = partial(fresh_twin, model, config.seed + number)
    for name, make in jobs.items():
        network = make()
        if isinstance(network, Unavailable):
            bench.abstain("random twins", network.reason)
            break
        clouds = made_clouds(bench, network, name, shuffled=name == "shuffled text")
        key = name.replace(" ", "-")
        layers = range(clouds.layers + 1)
        bench.spread(_makers(bench, key, clouds, refused=False))
        readings = [_layer(bench, key, clouds, depth, refused=False) for depth in layers]
        # only its samples are read from here on, and states of many layers are large
        found[name] = (replace(clouds, directions=clouds.directions[:0]), readings)
    return found


def _note_absences(bench: LatentBench, clouds: Clouds, readings: list[dict[str, Arrays]]) -> None:
    """Record why a layer has no entropy."""
    for depth, reading in enumerate(readings):
        for sample, arrays in reading.items():
            reason = bytes(arrays["reasons"]).decode() if "reasons" in arrays else ""
            if reason:
                bench.abstain(f"entropy of layer {depth}, {sample}", reason)


def _as_bytes(reasons: list[str]) -> NDArray[np.uint8]:
    """The first reason as numbers, which is all that a shard holds."""
    first = next(filter(None, reasons), "")
    return np.frombuffer(first.encode(), np.uint8).copy()
