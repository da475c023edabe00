"""Entropy, dimension and negentropy of a cloud of points, with intervals over groups."""

from flowscope.flows.entropy.dimensions import (
    IntrinsicDimension,
    dimension_of_distances,
    intrinsic_dimension,
)
from flowscope.flows.entropy.gaussian import gaussian_entropy, gaussian_surrogate
from flowscope.flows.entropy.nearest import NearestEntropy, kozachenko_leonenko
from flowscope.flows.entropy.neighbours import NeighbourLists, neighbour_lists
from flowscope.flows.entropy.principal import (
    PrincipalCoordinates,
    effective_rank,
    principal_coordinates,
)
from flowscope.flows.entropy.subsampling import (
    Ends,
    half_samples,
    subsampled_ends,
    subsampled_interval,
)
from flowscope.flows.entropy.surrogates import (
    Negentropy,
    negentropy,
    surrogate_bias,
    surrogate_errors,
)

__all__ = [
    "Ends",
    "IntrinsicDimension",
    "NearestEntropy",
    "Negentropy",
    "NeighbourLists",
    "PrincipalCoordinates",
    "dimension_of_distances",
    "effective_rank",
    "gaussian_entropy",
    "gaussian_surrogate",
    "half_samples",
    "intrinsic_dimension",
    "kozachenko_leonenko",
    "negentropy",
    "neighbour_lists",
    "principal_coordinates",
    "subsampled_ends",
    "subsampled_interval",
    "surrogate_bias",
    "surrogate_errors",
]
