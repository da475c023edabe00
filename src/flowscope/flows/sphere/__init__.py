"""Attention as particles on a sphere: rates of clustering in closed form, and the flow itself."""

from flowscope.flows.sphere.clusters import ClusterCount, cluster_count
from flowscope.flows.sphere.particles import ParticleAttention, particle_flow, particle_velocity
from flowscope.flows.sphere.phases import Phase, phase_diagram
from flowscope.flows.sphere.rates import (
    critical_beta,
    critical_coupling,
    critical_noise,
    equiangular,
    fastest_degree,
    growth_rate,
    time_to_cosine,
)

__all__ = [
    "ClusterCount",
    "ParticleAttention",
    "Phase",
    "cluster_count",
    "critical_beta",
    "critical_coupling",
    "critical_noise",
    "equiangular",
    "fastest_degree",
    "growth_rate",
    "particle_flow",
    "particle_velocity",
    "phase_diagram",
    "time_to_cosine",
]
