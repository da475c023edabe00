"""Coupled replicas of a diffusion transformer: gates, propagators, speciation (source 004)."""

from flowscope.replica.commitment import (
    CommitmentGap,
    CommitmentTime,
    commitment_gap,
    commitment_time,
)
from flowscope.replica.gains import (
    LeadingEigenvalue,
    ModalGains,
    leading_eigenvalue,
    modal_gains,
)
from flowscope.replica.gap import (
    ExchangeNull,
    SplitHalfGap,
    exchange_null,
    naive_gap,
    split_half_gap,
)
from flowscope.replica.gate import (
    coupled_attention,
    coupling_weights,
    pattern_factor,
    routing_factor,
    row_softmax,
)
from flowscope.replica.information import (
    ClassInformation,
    class_information,
    mixture_entropy,
    mixture_gap,
    mixture_u_turn,
)
from flowscope.replica.layer_mean import (
    LayerGaps,
    MeanGap,
    gap_beyond_twins,
    mean_gap,
    smallest_detectable_gap,
)
from flowscope.replica.mixture import MixtureMoments, ScoreGain, mixture_moments, score_gain
from flowscope.replica.modes import (
    ModeEnergies,
    mode_energies,
    stacked_gram,
)
from flowscope.replica.ornstein import (
    AdditiveCoupling,
    JointForward,
    ModeMoments,
    ModePair,
    ModeSpeciation,
    SynchronizationGap,
    mode_speciation,
    mode_variance,
)
from flowscope.replica.propagator import Channels, Propagator, ReplicaBlock
from flowscope.replica.routing import (
    PatternBound,
    RatioBound,
    RoutingResiduals,
    kernel_derivative,
    pattern_bound,
    ratio_bound,
    routing_residuals,
)
from flowscope.replica.scales import (
    CoarseFine,
    agreement,
    coarse_fine,
    independent_baseline,
)
from flowscope.replica.sigmoids import SigmoidFit, sigmoid_fit
from flowscope.replica.speciation import (
    live_gain,
    mixture_amplitude,
    mixture_step,
    speciation_parameter,
)
from flowscope.replica.structure import (
    ModalProduct,
    StructuralAssumptions,
    modal_product,
    structural_assumptions,
)

__all__ = [
    "AdditiveCoupling",
    "Channels",
    "ClassInformation",
    "CoarseFine",
    "CommitmentGap",
    "CommitmentTime",
    "ExchangeNull",
    "JointForward",
    "LayerGaps",
    "LeadingEigenvalue",
    "MeanGap",
    "MixtureMoments",
    "ModalGains",
    "ModalProduct",
    "ModeEnergies",
    "ModeMoments",
    "ModePair",
    "ModeSpeciation",
    "PatternBound",
    "Propagator",
    "RatioBound",
    "ReplicaBlock",
    "RoutingResiduals",
    "ScoreGain",
    "SigmoidFit",
    "SplitHalfGap",
    "StructuralAssumptions",
    "SynchronizationGap",
    "agreement",
    "class_information",
    "coarse_fine",
    "commitment_gap",
    "commitment_time",
    "coupled_attention",
    "coupling_weights",
    "exchange_null",
    "gap_beyond_twins",
    "independent_baseline",
    "kernel_derivative",
    "leading_eigenvalue",
    "live_gain",
    "mean_gap",
    "mixture_amplitude",
    "mixture_entropy",
    "mixture_gap",
    "mixture_moments",
    "mixture_step",
    "mixture_u_turn",
    "modal_gains",
    "modal_product",
    "mode_energies",
    "mode_speciation",
    "mode_variance",
    "naive_gap",
    "pattern_bound",
    "pattern_factor",
    "ratio_bound",
    "routing_factor",
    "routing_residuals",
    "row_softmax",
    "score_gain",
    "sigmoid_fit",
    "smallest_detectable_gap",
    "speciation_parameter",
    "split_half_gap",
    "stacked_gram",
    "structural_assumptions",
]
