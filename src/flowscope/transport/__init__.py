"""Couplings: the Sinkhorn family, distances, barycenters, bridges (sources 000 and 003)."""

from flowscope.transport.adapted import (
    AdaptedDistance,
    adapted_wasserstein,
    adapted_wasserstein_gaussian,
)
from flowscope.transport.barycenter import (
    BarycenterDrift,
    FixedBarycenter,
    FreeBarycenter,
    barycenter_drift,
    fixed_barycenter,
    free_barycenter,
)
from flowscope.transport.bridge import Bridge, bridge_path, schroedinger_bridge
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
    causal_columns,
    online_attention,
    prescribed_attention,
    sinkhorn_attention,
    unbalanced_attention,
)
from flowscope.transport.jko import JKOStep, jko_step, jko_step_grid, jko_step_particles
from flowscope.transport.line import wasserstein_1d
from flowscope.transport.nystrom import NystromCloud, NystromCoupling, nystrom_coupling
from flowscope.transport.procrustes import orthogonal_map
from flowscope.transport.rows import common_support, curvature, row_wasserstein
from flowscope.transport.unregularised import exact

__all__ = [
    "AdaptedDistance",
    "BarycenterDrift",
    "Bridge",
    "CostMatrix",
    "Coupling",
    "Divergence",
    "ExactCoupling",
    "FixedBarycenter",
    "FreeBarycenter",
    "Gaussian",
    "Geometry",
    "JKOStep",
    "NystromCloud",
    "NystromCoupling",
    "PointCloud",
    "adapted_wasserstein",
    "adapted_wasserstein_gaussian",
    "barycenter_drift",
    "bridge_path",
    "bures_barycenter",
    "bures_distance",
    "causal_columns",
    "common_support",
    "curvature",
    "exact",
    "fixed_barycenter",
    "free_barycenter",
    "gaussian_bridge",
    "gaussian_coupling",
    "jko_step",
    "jko_step_grid",
    "jko_step_particles",
    "nystrom_coupling",
    "online_attention",
    "orthogonal_map",
    "prescribed",
    "prescribed_attention",
    "row_wasserstein",
    "schroedinger_bridge",
    "semi_relaxed",
    "sinkhorn",
    "sinkhorn_attention",
    "sinkhorn_divergence",
    "unbalanced",
    "unbalanced_attention",
    "wasserstein_1d",
]
