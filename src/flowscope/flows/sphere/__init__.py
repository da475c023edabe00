"""Attention as particles on a sphere: rates of clustering in closed form, and the flow itself."""

from flowscope.flows.sphere.particles import ParticleAttention, particle_flow, particle_velocity
from flowscope.flows.sphere.rates import (
    critical_beta,
    critical_coupling,
    equiangular,
    fastest_degree,
    growth_rate,
    time_to_cosine,
)

__all__ = [
    "ParticleAttention",
    "critical_beta",
    "critical_coupling",
    "equiangular",
    "fastest_degree",
    "growth_rate",
    "particle_flow",
    "particle_velocity",
    "time_to_cosine",
]
