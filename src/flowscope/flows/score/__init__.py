"""Scores: in closed form, learned by denoising, and how far to trust them."""

from flowscope.flows.score.analytic import (
    NoisedMoments,
    gaussian_score,
    mixture_log_density,
    mixture_score,
    noised_moments,
    student_t_score,
)
from flowscope.flows.score.consistency import ScoreConsistency, score_consistency
from flowscope.flows.score.denoising import DenoisingScore, fit_denoising_score
from flowscope.flows.score.error_parts import FieldSplit, ScoreError, gradient_part, score_error
from flowscope.flows.score.network import ScoreNet, Standard
from flowscope.flows.score.stein import (
    AnisotropySpectrum,
    SteinCheck,
    anisotropy_spectrum,
    noised_stein_identities,
    stein_identities,
)
from flowscope.flows.score.training import ScoreTraining

__all__ = [
    "AnisotropySpectrum",
    "DenoisingScore",
    "FieldSplit",
    "NoisedMoments",
    "ScoreConsistency",
    "ScoreError",
    "ScoreNet",
    "ScoreTraining",
    "Standard",
    "SteinCheck",
    "anisotropy_spectrum",
    "fit_denoising_score",
    "gaussian_score",
    "gradient_part",
    "mixture_log_density",
    "mixture_score",
    "noised_moments",
    "noised_stein_identities",
    "score_consistency",
    "score_error",
    "stein_identities",
    "student_t_score",
]
