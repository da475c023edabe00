"""What the functions of ``flowscope.markov`` are given."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Subject
from flowscope import markov

__all__ = ["EXCEPTIONS", "SUBJECTS"]


def _size(arguments: Arguments) -> float:
    """Size of the logits, of which some answers are differences."""
    scores = arguments.get("scores", arguments.get("logits"))
    return 1.0 + float(np.abs(scores).max()) * float(arguments.get("beta", 1.0))


def _scores(draw: Draw) -> Arguments:
    n = draw.one_of(2, 3, 5, 1)
    return {"scores": draw.array(n, n), "beta": draw.one_of(1.0, 1e8, 1e-8, 1e30, 0.0)}


def _positive_scores(draw: Draw) -> Arguments:
    return {**_scores(draw), "beta": draw.one_of(1.0, 1e8, 1e-8)}


def _mild_scores(draw: Draw) -> Arguments:
    n = draw.integer(2, 6)
    return {"scores": draw.array(n, n, mild=draw.one_of(True, False)), "beta": 0.5}


def _logits(draw: Draw) -> Arguments:
    n = draw.one_of(2, 3, 5, 1)
    return {"logits": draw.array(n, n)}


def _kernel(draw: Draw) -> Arguments:
    n = draw.integer(2, 5)
    return {"kernel": draw.probabilities(n, n)}


def _positive_kernel(draw: Draw) -> Arguments:
    n = draw.integer(2, 5)
    return {"kernel": draw.one_of(draw.positive_rows(n, n), draw.probabilities(n, n))}


def _with_law(draw: Draw) -> Arguments:
    kernel = _positive_kernel(draw)
    return {**kernel, "law": draw.positive_rows(len(kernel["kernel"]))}


def _plus(base: Callable[[Draw], Arguments], **more: Callable[[Draw], Any]) -> Any:
    return lambda draw: {**base(draw), **{name: make(draw) for name, make in more.items()}}


def _cycle(draw: Draw) -> Arguments:
    return {"kernel": draw.positive_rows(3, 3), "cycles": np.array([[0, 1, 2]])}


def _causal(draw: Draw) -> Arguments:
    """A causal kernel: rows of probabilities over the past."""
    n = draw.integer(2, 5)
    kernel = np.zeros((n, n))
    for row in range(n):
        kernel[row, : row + 1] = draw.probabilities(row + 1)
    return {"kernel": kernel}


def _causal_logits(draw: Draw) -> Arguments:
    n = draw.integer(2, 5)
    logits = draw.array(n, n)
    return {"logits": np.where(np.tril(np.ones((n, n))) > 0, logits, -np.inf)}


def _stationary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a kernel and its own law."""

    def called(kernel: Any, **options: Any) -> Any:
        return function(kernel, markov.stationary_distribution(kernel, 0.0), **options)

    return called


def _reversal(kernel: Any) -> Any:
    return markov.time_reversal(kernel, markov.stationary_distribution(kernel))


def _bridge(draw: Draw) -> Arguments:
    n = draw.integer(2, 4)
    return {
        "kernel": draw.positive_rows(n, n),
        "start": draw.probabilities(n),
        "end": draw.probabilities(n),
    }


def _experts(first: Any, second: Any) -> Any:
    return markov.product_of_experts(first, second)


def _two_kernels(draw: Draw) -> Arguments:
    n = draw.integer(2, 4)
    return {"first": draw.probabilities(n, n), "second": draw.probabilities(n, n)}


def _points(draw: Draw) -> Arguments:
    n, d = draw.integer(1, 4), draw.integer(1, 3)
    return {"q": draw.array(n, d), "k": draw.array(n, d), "beta": draw.one_of(1.0, 1e-8, 1e8)}


def _factored(q: Any, k: Any, beta: float) -> Any:
    return markov.diffusion_map(markov.FactoredScores(q, k), beta, coordinates=1)


def _steps_to_tell(draw: Draw) -> Arguments:
    return {"entropy_production": draw.nonnegative(draw.integer(1, 4))}


def _judged(draw: Draw) -> Arguments:
    low = draw.nonnegative(3)
    return {"low": low, "high": low + draw.nonnegative(3), "steps": draw.positive(1.0, 1e6)}


SUBJECTS = {
    "attention_kernel": Subject(
        unit=_size,
        function=markov.attention_kernel,
        arguments=_plus(_scores, direction=lambda d: d.one_of("forward", "backward")),
    ),
    "chain_production": Subject(function=markov.chain_production, unit=_size, arguments=_logits),
    "chain_quantities": Subject(
        function=markov.chain_quantities,
        unit=_size,
        arguments=_plus(_logits, damping=lambda d: d.one_of(0.0, 0.01)),
    ),
    "currents": Subject(function=markov.currents, unit=1.0, arguments=_with_law),
    "cycle_affinities": Subject(function=markov.cycle_affinities, unit=1.0, arguments=_cycle),
    "damped_kernel": Subject(
        function=markov.damped_kernel,
        unit=1.0,
        arguments=_plus(_kernel, damping=lambda d: d.one_of(0.01, 0.0, 1.0, 1e-30)),
    ),
    "degree_tilt": Subject(
        function=markov.degree_tilt,
        unit=_size,
        arguments=_plus(_positive_scores, alpha=lambda d: d.one_of(0.5, 0.0, 1.0)),
    ),
    "dialled_logits": Subject(
        function=markov.dialled_logits,
        unit=_size,
        arguments=_plus(_scores, metric=lambda d: d.one_of(1.0, 0.0, 2.0)),
    ),
    "diffusion_kernel": Subject(
        unit=_size,
        function=markov.diffusion_kernel,
        arguments=_plus(_positive_scores, alpha=lambda d: d.one_of(0.0, 0.5, 1.0)),
    ),
    "diffusion_map": Subject(
        function=markov.diffusion_map,
        arguments=_plus(_mild_scores, coordinates=lambda d: 1),
        unequal="eigenvectors have a free sign, and any basis where eigenvalues are equal",
    ),
    "displacement": Subject(function=markov.displacement, unit=1.0, arguments=_positive_kernel),
    "doob_transform": Subject(
        function=markov.doob_transform,
        unit=1.0,
        arguments=lambda draw: {
            "kernel": draw.probabilities(3, 3),
            "h": draw.nonnegative(3),
        },
    ),
    "effective_keys": Subject(function=markov.effective_keys, arguments=_logits, unit=_size),
    "entropy_production": Subject(
        function=_stationary(markov.entropy_production), unit=1.0, arguments=_positive_kernel
    ),
    "flux_production": Subject(
        function=markov.flux_production,
        unit=_size,
        arguments=lambda draw: {
            "scores": draw.array(3, 3),
            "beta": draw.one_of(1.0, 1e-8, 1e8),
            "law": draw.probabilities(3),
        },
    ),
    "holonomy": Subject(
        function=markov.holonomy,
        arguments=lambda draw: {
            "scores": draw.array(3, 3),
            "charge": draw.one_of(0.25, 0.0, 1.0),
            "cycles": np.array([[0, 1, 2]]),
        },
    ),
    "is_causal": Subject(function=markov.is_causal, arguments=_kernel),
    "is_irreducible": Subject(function=markov.is_irreducible, arguments=_kernel),
    "judged": Subject(function=markov.judged, arguments=_judged),
    "kernel_bridge": Subject(function=markov.kernel_bridge, unit=1.0, arguments=_bridge),
    "keys_permuted": Subject(
        function=markov.keys_permuted,
        arguments=lambda draw: {"logits": draw.array(3, 3), "order": np.array([1, 2, 0])},
    ),
    "magnetic_laplacian": Subject(
        unit=_size,
        function=markov.magnetic_laplacian,
        arguments=_plus(_positive_scores, charge=lambda d: d.one_of(0.25, 0.0)),
    ),
    "magnetic_map": Subject(
        function=markov.magnetic_map,
        arguments=_plus(
            _mild_scores, charge=lambda d: d.one_of(0.25, 0.0), coordinates=lambda d: 1
        ),
        unequal="eigenvectors have a free phase, and any basis where eigenvalues are equal",
    ),
    "matching_scale": Subject(
        function=markov.matching_scale,
        absent={"": "no factor gives that many keys"},
        factor=3e4,  # it ends within 0.1 % of the wanted keys
        arguments=lambda draw: {
            "logits": draw.array(2, 4, 4),
            "keys": np.array([1.5, 2.5]),
        },
    ),
    "mixing_time": Subject(
        function=markov.mixing_time,
        arguments=_plus(_positive_kernel, longest=lambda d: 1024),
    ),
    "net_flow": Subject(function=markov.net_flow, unit=1.0, arguments=_with_law),
    "occupation": Subject(function=markov.occupation, unit=1.0, arguments=_causal),
    "operator_square": Subject(
        function=markov.operator_square,
        arguments=_points,
        unit=lambda given: given["beta"] * float(np.abs([given["q"], given["k"]]).max()) ** 2,
    ),
    "product_of_experts": Subject(function=_experts, unit=1.0, arguments=_two_kernels),
    "quasi_quantities": Subject(
        function=markov.quasi_quantities,
        unit=_size,
        arguments=_causal_logits,
    ),
    "quasi_stationary": Subject(function=markov.quasi_stationary, unit=1.0, arguments=_causal),
    "regime": Subject(
        function=_stationary(markov.regime),
        unit=1.0,
        arguments=_plus(_positive_kernel, steps=lambda d: 64.0),
    ),
    "relaxation_time": Subject(function=markov.relaxation_time, arguments=_positive_kernel),
    "sector_quantities": Subject(
        function=markov.sector_quantities,
        arguments=lambda draw: {"scores": draw.array(2, 4, 4)},
        unit=_size,
    ),
    "sinkhorn_kernel": Subject(
        function=markov.sinkhorn_kernel,
        unit=_size,
        arguments=_plus(_scores, iterations=lambda d: d.integer(1, 4)),
    ),
    "spectral_gap": Subject(function=markov.spectral_gap, unit=1.0, arguments=_positive_kernel),
    "spectrum": Subject(
        function=markov.spectrum,
        arguments=_kernel,
        unequal="eigenvalues of a matrix that is not symmetric are no smooth function of it",
    ),
    "stationary_distribution": Subject(
        function=markov.stationary_distribution,
        unit=1.0,
        arguments=_plus(_kernel, damping=lambda d: d.one_of(0.0, 0.01, 1.0)),
    ),
    "steps_to_tell": Subject(function=markov.steps_to_tell, arguments=_steps_to_tell),
    "time_reversal": Subject(function=_reversal, unit=1.0, arguments=_positive_kernel),
    "token_rank": Subject(function=markov.token_rank, unit=1.0, arguments=_kernel),
    "weight_ratio": Subject(
        function=markov.weight_ratio,
        absent={"": "weights whose product is zero have no ratio"},
        arguments=lambda draw: {"query_weight": draw.array(3, 4), "key_weight": draw.array(3, 4)},
    ),
}
EXCEPTIONS: dict[str, str] = {}
