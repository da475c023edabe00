r"""The rotation stage of an audit: how much of the motion at each central layer is rotation.

At a layer, the points are the states of the sampled tokens before it in $r$ principal coordinates
of the logits, the velocities their differences across it per unit of depth. The diffusion is the
covariance of the velocities around their own fit, per layer. Prompts are the unit of halves and
resamples; layers share their resamples, so that the mean over layers has an interval of its own.
Fields are polynomials of a stated degree: how much of the rotation is in linear fields alone stands
beside, since the share depends on how fine a pattern one looks for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.evidence import not_measured
from flowscope.evidence.joint_intervals import mean_interval
from flowscope.flows.hodge import PLANTED, ControlledRotation, controlled_rotation
from flowscope.instruments.audit.config import AuditConfig
from flowscope.instruments.audit.paths import Paths
from flowscope.instruments.audit.reading import depth_of, path_probes, paths_of
from flowscope.instruments.audit.rotation import ROTATION
from flowscope.instruments.audit.rotation.judge import judge_rotation
from flowscope.instruments.audit.subject import AuditBench
from flowscope.instruments.audit.variation.judge import SegmentEvidence
from flowscope.lab.claim import Abstention
from flowscope.records import Measurement, Unavailable, Verdict

__all__ = ["RotationStage", "central_layers", "measure", "probes"]

probes = path_probes

_LEVEL = 0.05


def measure(bench: AuditBench) -> None:
    """Write how much of the motion rotates at the central layers."""
    paths = paths_of(bench)
    if isinstance(paths, Unavailable):
        raise Abstention(paths.reason)
    stage = RotationStage(config=bench.config, put=bench.put, progress=bench.progress)
    bench.decide(stage.verdict(paths, depth_of(bench).passing))


def central_layers(passing: Sequence[SegmentEvidence], layers: int, count: int) -> list[int]:
    """The layers of passing segments nearest to the middle of the depth, in order."""
    inside = [layer for s in passing for layer in range(s.first, s.last + 1)]
    middle = (layers + 1) / 2
    return sorted(sorted(inside, key=lambda layer: (abs(layer - middle), layer))[:count])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Layer(ControlledRotation):
    """One layer read: the model, and its two controls."""

    layer: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationStage:
    """Reads the rotation at central layers: settings, sink of tables, callback of progress."""

    config: AuditConfig
    put: Callable[[str, pd.DataFrame], None]
    progress: Callable[[str, int, int], None]

    def verdict(self, paths: Paths, passing: Sequence[SegmentEvidence]) -> Verdict:
        """Rotation at every central layer, its controls, and the verdict."""
        wanted = central_layers(passing, paths.layers, self.config.rotation_layers)
        read, reasons = [], []
        self.progress("rotation", 0, len(wanted))
        for done, layer in enumerate(wanted):
            try:
                y, v = self._step(paths, passing, layer)
                read.append(self._layer(layer, paths.layers, y, v, torch.from_numpy(paths.prompt)))
            except InvalidInputError as error:
                reasons.append(f"layer {layer} could not be measured: {error}")
            self.progress("rotation", done + 1, len(wanted))
        self._write(read)
        ok = [one for one in read if one.found.status == "ok"]
        reasons += [
            f"layer {o.layer} could not be measured: {o.found.because}"
            for o in read
            if o.found.status != "ok"
        ]
        if not ok:
            return not_measured(ROTATION, reasons[0])
        return self._judged(ok, int(paths.prompt.max()) + 1)

    def _step(
        self, paths: Paths, passing: Sequence[SegmentEvidence], layer: int
    ) -> tuple[Tensor, Tensor]:
        """Points and velocities of a layer, in the coordinates of its segment."""
        segment = next(s for s in passing if s.first <= layer <= s.last)
        hidden = paths.hidden[:, segment.first - 1 : segment.last + 1]
        with torch.no_grad():
            axes = paths.readout.coordinates(hidden.flatten(0, 1), self.config.rotation_rank)
            y = axes.reduced(paths.hidden[:, layer - 1 : layer + 1])
        return y[:, 0], (y[:, 1] - y[:, 0]) * paths.layers

    def _layer(self, layer: int, layers: int, y: Tensor, v: Tensor, groups: Tensor) -> _Layer:
        read = controlled_rotation(
            y,
            v,
            groups=groups,
            diffusion="estimate",
            degree=self.config.rotation_degree,
            draws=self.config.rotation_resamples,
            seed=self.config.seed,  # layers share their halves and resamples
            step=1 / layers,
        )
        return _Layer(layer=layer, **vars(read))

    def _write(self, read: Sequence[_Layer]) -> None:
        rows = [
            {
                "layer": one.layer,
                "normalised": one.found.normalised,
                "low": one.found.interval.low,
                "high": one.found.interval.high,
                "interval_method": one.found.interval.method,
                "energy": one.found.energy,
                "energy_low": one.found.energy_interval.low,
                "energy_high": one.found.energy_interval.high,
                "total": one.found.total,
                "p_value": one.found.p_value,
                "degree": one.found.degree,
                "linear": one.linear,
                "gradient_control": one.gradient,
                "planted_control": one.planted,
                "planted_share": PLANTED,
                "epsilon": one.found.extrapolation[-1].epsilon if one.found.extrapolation else 0.0,
                "ridge": one.found.ridge,
                "functions": one.found.regressors,
                "tokens": one.found.n,
                "status": one.found.status,
                "because": one.found.because,
            }
            for one in read
        ]
        if rows:
            self.put("rotation", pd.DataFrame(rows))

    def _judged(self, read: Sequence[_Layer], prompts: int) -> Verdict:
        known = {"unit": "1", "n": prompts, "dtype": "float64", "seed": self.config.seed}
        estimator = f"mean over {len(read)} layers, cross-fitted between halves of the prompts"
        lowest = min(one.found.degree for one in read)
        asked = lowest == self.config.rotation_degree
        share = Measurement(
            name="R_norm" if asked else f"R_norm (too few tokens: fields of degree {lowest} only)",
            values=np.asarray(np.mean([one.found.normalised for one in read])),
            estimator=estimator,
            interval=mean_interval([one.found for one in read], "prompts"),
            **known,  # type: ignore[arg-type]
        )
        null = Measurement(
            name="R_norm of a gradient field",
            values=np.asarray(np.mean([one.gradient for one in read])),
            estimator=estimator,
            **known,  # type: ignore[arg-type]
        )
        return judge_rotation(
            share,
            null,
            claim=ROTATION,
            layers=len(read),
            detected=sum(one.found.p_value < _LEVEL for one in read),
            planted=PLANTED,
            seen=float(np.mean([one.planted for one in read])),
        )
