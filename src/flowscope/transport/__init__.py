"""Couplings: the Sinkhorn family, distances, barycenters, bridges (sources 000 and 003)."""

from flowscope.transport.adapted import (
    AdaptedDistance,
    adapted_wasserstein,
    adapted_wasserstein_gaussian,
)
from flowscope.transport.cloud import PointCloud
from flowscope.transport.coupling import Coupling, ExactCoupling
from flowscope.transport.distances import Divergence, sinkhorn_divergence
from flowscope.transport.entropic import prescribed, semi_relaxed, sinkhorn, unbalanced
from flowscope.transport.gaussian import (
    Gaussian,
    bures_barycenter,
    bures_distance,
    gaussian_bridge,
    gaussian_coupling,
)
from flowscope.transport.geometry import CostMatrix, Geometry
from flowscope.transport.iterations import (
    prescribed_attention,
    sinkhorn_attention,
    unbalanced_attention,
)
from flowscope.transport.jko import JKOStep, jko_step_grid, jko_step_particles
from flowscope.transport.line import wasserstein_1d
from flowscope.transport.rows import common_support, curvature, row_wasserstein
from flowscope.transport.unregularised import exact

__all__ = [
    "AdaptedDistance",
    "CostMatrix",
    "Coupling",
    "Divergence",
    "ExactCoupling",
    "Gaussian",
    "Geometry",
    "JKOStep",
    "PointCloud",
    "adapted_wasserstein",
    "adapted_wasserstein_gaussian",
    "bures_barycenter",
    "bures_distance",
    "common_support",
    "curvature",
    "exact",
    "gaussian_bridge",
    "gaussian_coupling",
    "jko_step_grid",
    "jko_step_particles",
    "prescribed",
    "prescribed_attention",
    "row_wasserstein",
    "semi_relaxed",
    "sinkhorn",
    "sinkhorn_attention",
    "sinkhorn_divergence",
    "unbalanced",
    "unbalanced_attention",
    "wasserstein_1d",
]
