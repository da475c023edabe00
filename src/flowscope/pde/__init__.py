"""The transformer as a driven field: balances, spectra, local stability, simulator (source 001)."""

from flowscope.pde.alignment import Alignment, path_alignment, persistence, straight_line
from flowscope.pde.attention import (
    AttentionParts,
    Moments,
    advection_diffusion,
    attention_parts,
)
from flowscope.pde.branches import AttentionBranch, FeedForwardBranch
from flowscope.pde.energy import EnergyBalance, energy_balance
from flowscope.pde.information import DecodableInformation, decodable_information
from flowscope.pde.jacobian import JacobianBound, JacobianBounds, euler_limit, jacobian_bounds
from flowscope.pde.master import MasterEquation
from flowscope.pde.refinement import Stepped, refined_path
from flowscope.pde.spectra import Spectrum, graph_spectrum, token_spectrum
from flowscope.pde.spread import Collapse, SpreadBalance, collapse, spread_balance
from flowscope.pde.transformer import AblatedTransformer

__all__ = [
    "AblatedTransformer",
    "Alignment",
    "AttentionBranch",
    "AttentionParts",
    "Collapse",
    "DecodableInformation",
    "EnergyBalance",
    "FeedForwardBranch",
    "JacobianBound",
    "JacobianBounds",
    "MasterEquation",
    "Moments",
    "Spectrum",
    "SpreadBalance",
    "Stepped",
    "advection_diffusion",
    "attention_parts",
    "collapse",
    "decodable_information",
    "energy_balance",
    "euler_limit",
    "graph_spectrum",
    "jacobian_bounds",
    "path_alignment",
    "persistence",
    "refined_path",
    "spread_balance",
    "straight_line",
    "token_spectrum",
]
