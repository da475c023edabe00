"""The Markov geometry of query–key scores: divergences, kernels, chains, maps (source 002)."""

from flowscope.markov.bidivergence import Bidivergence, Signature, weight_ratio
from flowscope.markov.bridges import KernelBridge, kernel_bridge
from flowscope.markov.causal import QuasiStationary, is_causal, occupation, quasi_stationary
from flowscope.markov.dials import degree_tilt, dialled_logits, operator_square
from flowscope.markov.eigenmaps import DiffusionMap, MagneticMap, diffusion_map, magnetic_map
from flowscope.markov.irreversibility import (
    currents,
    cycle_affinities,
    displacement,
    entropy_production,
    flux_production,
    net_flow,
)
from flowscope.markov.kernels import (
    attention_kernel,
    damped_kernel,
    diffusion_kernel,
    doob_transform,
    product_of_experts,
    sinkhorn_kernel,
    time_reversal,
)
from flowscope.markov.magnetic import holonomy, magnetic_laplacian
from flowscope.markov.operators import DenseScores, FactoredScores
from flowscope.markov.quantities import (
    QUANTITIES,
    chain_production,
    chain_quantities,
    quasi_quantities,
    sector_quantities,
)
from flowscope.markov.regimes import judged, regime, steps_to_tell
from flowscope.markov.relaxation import mixing_time, relaxation_time, spectral_gap, spectrum
from flowscope.markov.sharpness import effective_keys, keys_permuted, matching_scale
from flowscope.markov.stationary import is_irreducible, stationary_distribution, token_rank

__all__ = [
    "QUANTITIES",
    "Bidivergence",
    "DenseScores",
    "DiffusionMap",
    "FactoredScores",
    "KernelBridge",
    "MagneticMap",
    "QuasiStationary",
    "Signature",
    "attention_kernel",
    "chain_production",
    "chain_quantities",
    "currents",
    "cycle_affinities",
    "damped_kernel",
    "degree_tilt",
    "dialled_logits",
    "diffusion_kernel",
    "diffusion_map",
    "displacement",
    "doob_transform",
    "effective_keys",
    "entropy_production",
    "flux_production",
    "holonomy",
    "is_causal",
    "is_irreducible",
    "judged",
    "kernel_bridge",
    "keys_permuted",
    "magnetic_laplacian",
    "magnetic_map",
    "matching_scale",
    "mixing_time",
    "net_flow",
    "occupation",
    "operator_square",
    "product_of_experts",
    "quasi_quantities",
    "quasi_stationary",
    "regime",
    "relaxation_time",
    "sector_quantities",
    "sinkhorn_kernel",
    "spectral_gap",
    "spectrum",
    "stationary_distribution",
    "steps_to_tell",
    "time_reversal",
    "token_rank",
    "weight_ratio",
]
