"""What the functions of ``flowscope.flows.score`` are given."""

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from benchmarks.attack.subjects.flows.shared import DRAWS, FREE, cloud
from flowscope.flows import score

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _mixture(draw: Draw) -> Arguments:
    d = draw.integer(1, 2)
    return {
        "x": draw.array(3, d),
        "weights": draw.positive_rows(2),
        "means": draw.array(2, d),
        "covariances": draw.covariance(d, batch=(2,)),
    }


SUBJECTS = {
    "stein_identities": Subject(
        function=score.stein_identities,
        arguments=lambda draw: {
            "score_values": draw.array(24, 2),
            "points": draw.array(24, 2),
            "groups": draw.groups(24, 12),
        },
        factor=1e5,
        unit=1.0,
    ),
    "score_error": Subject(
        function=score.score_error,
        arguments=lambda draw: {
            "points": draw.array(120, 2, mild=draw.one_of(True, True, False)),
            "learned": draw.array(120, 2),
            "true": draw.array(120, 2),
            "generator": Seeded(),
        },
        share=0.2,
        factor=1e5,
        unequal=DRAWS,
    ),
    "anisotropy_spectrum": Subject(
        function=score.anisotropy_spectrum,
        arguments=lambda draw: {"score_values": draw.array(12, 2)},
        unequal=FREE,
    ),
    "gaussian_score": Subject(
        function=score.gaussian_score,
        arguments=lambda draw: {
            "x": draw.array(3, 2),
            "mean": draw.array(2),
            "covariance": draw.covariance(2),
        },
        factor=1e5,
    ),
    "gradient_part": Subject(
        function=score.gradient_part,
        arguments=lambda draw: {
            **cloud(draw, 120),
            "field": draw.array(120, 2),
            "generator": Seeded(),
        },
        share=0.2,
        unequal=DRAWS,
    ),
    "mixture_log_density": Subject(
        function=score.mixture_log_density, arguments=_mixture, factor=1e5
    ),
    "mixture_score": Subject(function=score.mixture_score, arguments=_mixture, factor=1e5),
    "noised_moments": Subject(
        function=score.noised_moments,
        arguments=lambda draw: {
            "means": draw.array(2, 2),
            "covariances": draw.covariance(2, batch=(2,)),
            "t": draw.one_of(0.5, 1e-6, 20.0),
        },
    ),
    "noised_stein_identities": Subject(
        function=lambda points, generator: score.noised_stein_identities(
            lambda x: -x, points, 0.5, generator=generator
        ),
        arguments=lambda draw: {**cloud(draw), "generator": Seeded()},
        share=0.3,
        unequal=DRAWS,
    ),
    "score_consistency": Subject(
        function=score.score_consistency,
        arguments=lambda draw: {
            **cloud(draw),
            "scores": draw.array(24, 2),
            "draws": 20,
            "generator": Seeded(),
        },
        absent={".": "an answer that abstains, with its reason"},
        share=0.2,
        unequal=DRAWS,
    ),
    "student_t_score": Subject(
        function=score.student_t_score,
        arguments=lambda draw: {
            "x": draw.array(3, 2),
            "mean": draw.array(2),
            "scatter": draw.covariance(2),
            "freedom": draw.one_of(3.0, 1e-3, 1e6),
        },
        factor=1e5,
    ),
}
EXCEPTIONS = {
    "fit_denoising_score": "trains a network: minutes for an example",
}
