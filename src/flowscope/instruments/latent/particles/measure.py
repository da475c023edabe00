"""Fit the particle model to the attention of every block."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from flowscope.evidence import half_ends
from flowscope.flows.sphere import fastest_degree, phase_diagram
from flowscope.instruments.latent.clouds import Clouds
from flowscope.instruments.latent.particles.reading import FITS, half_weights, particle_fits
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.claim import Abstention
from flowscope.models.twin import fresh_twin
from flowscope.probes import tap_pass
from flowscope.probes.layers.particles import ParticleProbe
from flowscope.records import Unavailable

__all__ = ["particles"]

Values = NDArray[np.float64]
FEWEST_PROMPTS = 8
BETAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NOISES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
_TWINS = ("beta", "beta_r2", "value", "value_r2")
_PHASES = 7  # key of random numbers


def particles(bench: LatentBench) -> None:
    """Write the tables ``clustering`` and ``phases``, and the fits on halves of the prompts.

    Raises
    ------
    Abstention
        Where no block has an attention call that can be read.
    """
    bench.put("phases", _phases(bench))
    sums, followed = _sums(bench, bench.subject.loaded.model, "particles")
    if not np.isfinite(sums[:, :, 1:]).any():
        raise Abstention("no block has an attention call among tokens that could be read")
    everything = {"model": sums}
    for number in range(bench.config.twins if bench.config.controls else 0):
        twin = fresh_twin(bench.subject.loaded.model, bench.config.seed + number)
        if isinstance(twin, Unavailable):
            bench.abstain("particles, random twins", twin.reason)
            break
        name = f"random twin {number + 1}"
        everything[name] = _sums(bench, twin, name)[0]
    halves = {name: _fits(bench, one) for name, one in everything.items()}
    bench.put("clustering", _table(bench, halves, followed, len(sums)))
    arrays = {
        f"{subject}/{column}": fits[:, :, FITS.index(column)]
        for subject, fits in halves.items()
        for column in ("value", "value_r2", "value_r2_permuted")
    }
    bench.put_arrays("particle_halves", {**arrays, "prompts": np.array([float(len(sums))])})


def _sums(bench: LatentBench, model: nn.Module, name: str) -> tuple[Values, Values]:
    """Sums of all prompts, and for which blocks the transport part of the write is known."""
    material, key = bench.subject.material, name.replace(" ", "-")
    bench.list_pass(name, material.size)

    def made() -> dict[str, Values]:
        counter = bench.counter(name, material.size)
        probe = ParticleProbe(model, seed=bench.config.seed)
        pieces = tap_pass(
            model, material.batches(None), {"particles": probe}, advance=counter.advance
        )["particles"]
        prompt = np.concatenate([piece.arrays["prompt"] for piece in pieces])
        order = np.argsort(prompt, kind="stable")
        return {
            part: np.concatenate([piece.arrays[part] for piece in pieces])[order]
            for part in ("sums", "followed")
        }

    arrays = bench.shard(f"sums-{key}", made)
    return arrays["sums"], arrays["followed"][0]


def _fits(bench: LatentBench, sums: Values) -> Values:
    """Fits of all prompts, then on halves; no halves with fewer than 8 prompts."""
    prompts = len(sums)
    whole = np.ones((1, prompts), bool)
    if prompts < FEWEST_PROMPTS:
        return particle_fits(sums, whole)
    halves = half_weights(prompts, bench.config.halves, bench.config.seed)
    return particle_fits(sums, np.concatenate([whole, halves]))


def _table(
    bench: LatentBench, halves: dict[str, Values], followed: Values, prompts: int
) -> pd.DataFrame:
    fits, twins = halves["model"], [v for name, v in halves.items() if name != "model"]
    clouds: Clouds = bench.shared("clouds")
    dimensions = _dimensions(bench, clouds)
    columns: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, fits.shape[1] + 1)}
    for place, name in enumerate(FITS):
        values = fits[:, :, place]
        columns[name] = values[0]
        if name == "noise":
            continue
        low = high = np.full(fits.shape[1], np.nan)
        if len(values) > 1:
            low, high = half_ends(values[0], values[1:], prompts)
        columns |= {f"{name}_low": low, f"{name}_high": high}
        if name in _TWINS:
            beside = [twin[0, :, place] for twin in twins] or [np.full(fits.shape[1], np.nan)]
            columns[f"{name}_twin"] = np.mean(beside, 0)
    columns["degree"] = np.array(
        [_degree(beta, dim) for beta, dim in zip(columns["beta"], dimensions, strict=True)]
    )
    columns["write"] = np.where(followed > 0, "transport", "whole")
    return pd.DataFrame(columns)


def _dimensions(bench: LatentBench, clouds: Clouds) -> Values:
    """Intrinsic dimension of the cloud that enters each block."""
    layers = bench.records.read_table("layers")
    rows = layers[(layers["sample"] == "all") & (layers["rank"] == layers["rank"].min())]
    by_layer = rows.set_index("layer")["dimension_two_nn"]
    return np.array([float(by_layer.get(depth, np.nan)) for depth in range(clouds.layers)])


def _degree(beta: float, dimension: float) -> float:
    """Fastest degree on a sphere of the dimension of the cloud; NaN without attraction."""
    if not (np.isfinite(beta) and np.isfinite(dimension) and 0 < beta < 1e4):
        return float("nan")
    return float(fastest_degree(float(beta), max(2, round(float(dimension)) + 1)))


def _phases(bench: LatentBench) -> pd.DataFrame:
    found = bench.shard("phases", lambda: _phase_arrays(bench))
    return pd.DataFrame(found["phases"], columns=["beta", "noise", "growth", "order", "clusters"])


def _phase_arrays(bench: LatentBench) -> dict[str, Values]:
    phases = phase_diagram(
        BETAS, NOISES, dim=3, particles=48, duration=30.0, steps=200,
        generator=bench.generator(_PHASES),
    )  # fmt: skip
    rows = [[p.beta, p.noise, p.growth, p.order, p.clusters] for p in phases]
    return {"phases": np.array(rows, float)}
