"""What the functions of ``flowscope.flows.sphere`` are given."""

from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from flowscope.flows import sphere

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _particles(draw: Draw, n: int, d: int) -> Any:
    """Unit vectors: of any numbers, few directions, all equal, opposite, or broken."""
    content = draw.one_of("any", "any", "axes", "equal", "opposite")
    x = np.eye(d)[np.arange(n) % (1 if content in ("equal", "opposite") else d)]
    if content == "opposite":
        x[1::2] *= -1
    if content == "any":
        x = draw.array(n, d)
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(-1, keepdims=True)
        x = np.where(largest == 0, np.eye(d)[0], x / np.where(largest == 0, 1, largest))
        x = x / np.linalg.norm(x, axis=-1, keepdims=True)
        return x.astype(np.float32).astype(np.float64)


def _cluster_arguments(draw: Draw) -> Arguments:
    return {
        "x": _particles(draw, 12, draw.integer(2, 3)),
        "most": draw.integer(1, 3),
        "references": 3,
        "generator": Seeded(),
    }


def _matrix(draw: Draw, d: int) -> Any:
    return draw.one_of(None, None, draw.array(d, d, mild=draw.one_of(True, True, False)))


def _attention(draw: Draw) -> Arguments:
    d = draw.integer(2, 3)
    return {
        "x": _particles(draw, draw.integer(1, 4), d),
        "beta": draw.positive(1e-30, 1e6),
        "query": _matrix(draw, d),
        "key": _matrix(draw, d),
        "value": _matrix(draw, d),
        "normalised": draw.one_of(True, False),
        "causal": draw.one_of(True, False),
    }


def _velocity(x: Any, **options: Any) -> Any:
    return sphere.particle_velocity(x, sphere.ParticleAttention(**options))


def _flow(x: Any, duration: float, steps: int, noise: float, generator: Any, **options: Any) -> Any:
    attention = sphere.ParticleAttention(**options)
    return sphere.particle_flow(x, attention, duration, steps, noise=noise, generator=generator)


def _flow_arguments(draw: Draw) -> Arguments:
    return {
        **_attention(draw),
        "duration": draw.one_of(1.0, -1.0, 1e-30, 1e30, 1e300),
        "steps": draw.integer(1, 3),
        "noise": draw.one_of(0.0, 0.5, 1e-30, 1e30, 1e300),
        "generator": Seeded(),
    }


def _beta(draw: Draw) -> float:
    return draw.positive(1e-30, 1e6)


def _diagram(draw: Draw) -> Arguments:
    return {
        "betas": [_beta(draw)],
        "noises": [draw.one_of(0.0, 0.5, 1e-30, 1e30, 1e300)],
        "dim": draw.integer(2, 3),
        "particles": draw.integer(4, 8),
        "duration": draw.one_of(1.0, 40.0, 1e30, 1e300),
        "steps": draw.integer(1, 10),
        "generator": Seeded(),
    }


def _dim(draw: Draw) -> int:
    return int(draw.one_of(2, 3, 5, 64, 768, 10**6))


SUBJECTS = {
    "cluster_count": Subject(
        function=sphere.cluster_count, arguments=_cluster_arguments, share=0.5
    ),
    "critical_beta": Subject(
        function=sphere.critical_beta, arguments=lambda draw: {"dim": _dim(draw)}
    ),
    "critical_coupling": Subject(
        function=sphere.critical_coupling,
        arguments=lambda draw: {"beta": _beta(draw), "dim": _dim(draw)},
    ),
    "critical_noise": Subject(
        function=sphere.critical_noise,
        arguments=lambda draw: {"beta": _beta(draw), "dim": _dim(draw)},
    ),
    "equiangular": Subject(
        function=sphere.equiangular,
        arguments=lambda draw: {
            "n": draw.one_of(2, 3, 100, 10**6, 10**12),
            "beta": draw.positive(1e-30, 700.0),
            "t": draw.one_of(0.0, draw.positive(1e-30, 1e30), 1e300),
        },
        share=0.5,
    ),
    "fastest_degree": Subject(
        function=lambda **given: float(sphere.fastest_degree(**given)),
        arguments=lambda draw: {
            "beta": draw.positive(1e-30, 1e4),
            "dim": draw.one_of(2, 3, 64, 768),
        },
        share=0.5,
    ),
    "growth_rate": Subject(
        function=sphere.growth_rate,
        arguments=lambda draw: {
            "beta": _beta(draw),
            "degree": draw.one_of(0, 1, 2, 100, 10**6),
            "dim": _dim(draw),
        },
    ),
    "particle_flow": Subject(function=_flow, arguments=_flow_arguments, share=0.5, unit=1.0),
    "particle_velocity": Subject(function=_velocity, arguments=_attention, unit=1.0),
    "phase_diagram": Subject(function=sphere.phase_diagram, arguments=_diagram, share=0.3),
    "time_to_cosine": Subject(
        function=sphere.time_to_cosine,
        arguments=lambda draw: {
            "n": draw.one_of(2, 3, 100, 10**6, 10**12),
            "beta": draw.positive(1e-30, 700.0),
            "cosine": draw.one_of(0.0, 1e-30, 0.5, 1 - 2**-53),
        },
        share=0.5,
    ),
}
EXCEPTIONS: dict[str, str] = {}
