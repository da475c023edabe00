"""What the functions of ``flowscope.replica`` are given."""

from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Seeded, Subject
from flowscope import replica

__all__ = ["EXCEPTIONS", "SUBJECTS"]
_BLOCK = "works inside a running block, on tensors that nobody looks at twice"
_ABSTAINS = {".": "a fit or gap that abstains, with its reason"}
_LARGE = "fits by an iteration whose end depends on rounding"


def _attention(draw: Draw) -> Arguments:
    n = draw.integer(1, 4)
    return {"A": draw.probabilities(n, n), "dS": draw.array(n, n), "V": draw.array(n, 2)}


def _heads(draw: Draw) -> Arguments:
    return {name: draw.array(2, 1, 3, 2) for name in ("q", "k", "v")}


def _exponent(given: Arguments) -> float:
    """Size of the logits, in whose exponent a rounding error stands, times that of the values."""
    with np.errstate(over="ignore"):
        logits = 2 * np.abs(given["q"]).max() * np.abs(given["k"]).max() * given["scale"]
        return float((1 + logits) * max(1.0, np.abs(given.get("v", np.ones(1))).max()))


def _images(draw: Draw) -> Arguments:
    shape = (3, 1, 4, 4)
    return {"images_a": draw.array(*shape), "images_b": draw.array(*shape), "size": 2}


def _gram(draw: Draw) -> Arguments:
    return {"gram": draw.covariance(24), "lead": 2, "trail": 2}


def _mode_gram(draw: Draw) -> Arguments:
    return {"gram": draw.covariance(8)}


def _curve(draw: Draw) -> Arguments:
    return {
        "steps": np.arange(8.0),
        "values": draw.array(4, 8),
        "resamples": 20,
    }


def _agreement(low: Any, high: Any, base_low: Any, base_high: Any) -> Any:
    return replica.agreement(replica.CoarseFine(low, high), replica.CoarseFine(base_low, base_high))


def _four(draw: Draw) -> Arguments:
    return {name: draw.nonnegative(3) for name in ("low", "high", "base_low", "base_high")}


def _response(draw: Draw) -> Arguments:
    half = np.arange(1.0, 8.0) / 16
    return {
        "response": draw.array(14),
        "amplitudes": np.concatenate([-half[::-1], half]),
        "m2": draw.positive(1e-6, 1e3),
        "c": draw.positive(1e-3, 1e3),
    }


def _mixture(draw: Draw) -> Arguments:
    return {
        "t": draw.nonnegative(3),
        "mu": draw.positive(1e-6, 1e3),
        "s2": draw.positive(1e-6, 1e3),
    }


def _cube(given: Arguments) -> float:
    with np.errstate(over="ignore"):
        sizes = [np.abs(given[name]).max(initial=0.0) for name in ("dS", "V")]
        return float(np.prod(sizes))


SUBJECTS = {
    "agreement": Subject(
        function=_agreement,
        arguments=_four,
        absent={".": "a pair of equal images of reference has no agreement"},
    ),
    "class_information": Subject(
        function=replica.class_information,
        arguments=lambda draw: {
            "log_snr": np.linspace(-4, 4, 6),
            "gaps": draw.array(8, 6),
            "classes": 2,
            "draws": 20,
            "generator": Seeded(),
        },
        unequal="the random draws depend on the precision",
        share=0.3,
    ),
    "coarse_fine": Subject(
        function=replica.coarse_fine,
        arguments=_images,
        unit=lambda given: float(np.abs(given["images_a"]).max(initial=0.0)) ** 2,
    ),
    "independent_baseline": Subject(
        function=replica.independent_baseline,
        arguments=_images,
        unit=lambda given: float(np.abs(given["images_a"]).max(initial=0.0)) ** 2,
    ),
    "commitment_time": Subject(
        function=replica.commitment_time,
        arguments=_curve,
        numpy=True,
        share=0.1,
        unequal=_LARGE,
        absent=_ABSTAINS,
    ),
    "coupled_attention": Subject(
        function=replica.coupled_attention,
        arguments=lambda draw: {**_heads(draw), "g": draw.one_of(0.5, 0.0, 1.0), "scale": 0.5},
        passes_nan=_BLOCK,
        unit=_exponent,
    ),
    "exchange_null": Subject(
        function=replica.exchange_null,
        arguments=lambda draw: {**_gram(draw), "draws": 39},
        numpy=True,
        share=0.1,
        unequal="modes of equal energy may change places",
        absent=_ABSTAINS,
    ),
    "kernel_derivative": Subject(
        function=replica.kernel_derivative,
        arguments=lambda draw: {"A": draw.probabilities(3, 3), "dS": draw.array(3, 3)},
        passes_nan=_BLOCK,
        unit=lambda given: float(np.abs(given["dS"]).max(initial=0.0)),
    ),
    "mean_gap": Subject(
        function=replica.mean_gap,
        arguments=lambda draw: {
            "observed": draw.array(3),
            "draws": draw.array(3, 20),
            "left_out": draw.array(3, 8),
        },
        numpy=True,
        factor=1e6,
        unit=lambda given: float(np.abs(given["draws"]).max(initial=0.0)),
    ),
    "mixture_entropy": Subject(
        function=replica.mixture_entropy, arguments=_mixture, unit=1.0, share=0.5
    ),
    "mixture_gap": Subject(function=replica.mixture_gap, arguments=_mixture, share=0.5, factor=1e4),
    "mixture_moments": Subject(
        function=replica.mixture_moments,
        arguments=lambda draw: {"p": draw.probabilities(8), "resamples": 20},
        numpy=True,
        absent=_ABSTAINS,
    ),
    "mixture_step": Subject(
        function=replica.mixture_step,
        arguments=lambda draw: {
            "a": draw.array(3),
            "gamma": draw.one_of(0.4, 0.0),
            "m2": 0.9,
            "c": 0.5,
            "eta": 0.7,
        },
        numpy=True,
        factor=1e4,
    ),
    "mixture_u_turn": Subject(
        function=replica.mixture_u_turn, arguments=_mixture, unit=1.0, share=0.5
    ),
    "mode_energies": Subject(
        function=replica.mode_energies,
        arguments=_mode_gram,
        unequal="modes of equal energy have any basis",
        absent=_ABSTAINS,
    ),
    "naive_gap": Subject(
        function=replica.naive_gap,
        arguments=_gram,
        numpy=True,
        unequal="modes of equal energy may change places",
        share=0.3,
    ),
    "pattern_bound": Subject(function=replica.pattern_bound, arguments=_attention, unit=_cube),
    "ratio_bound": Subject(
        function=replica.ratio_bound,
        arguments=lambda draw: (lambda given: {**given, "dV": draw.array(*given["V"].shape)})(
            _attention(draw)
        ),
        unequal="rounding decides whether values are too rough for a bound, which is ∞ then",
    ),
    "routing_residuals": Subject(
        function=replica.routing_residuals,
        arguments=_attention,
        unequal="tells the rounding error itself",
    ),
    "row_softmax": Subject(
        function=replica.row_softmax,
        arguments=lambda draw: {
            "q": draw.array(3, 2),
            "k": draw.array(4, 2),
            "scale": draw.one_of(0.5, 1e8),
        },
        passes_nan=_BLOCK,
        unit=_exponent,
    ),
    "score_gain": Subject(
        function=replica.score_gain,
        arguments=_response,
        numpy=True,
        factor=1e6,
        unit=lambda given: float(np.abs(given["response"]).max(initial=0.0)),
        absent=_ABSTAINS,
    ),
    "sigmoid_fit": Subject(
        function=replica.sigmoid_fit,
        arguments=lambda draw: {"x": np.arange(8.0), "y": draw.array(8)},
        numpy=True,
        share=0.3,
        unequal=_LARGE,
    ),
    "smallest_detectable_gap": Subject(
        function=replica.smallest_detectable_gap,
        arguments=lambda draw: {"draws": draw.array(40)},
        numpy=True,
        unit=lambda given: float(np.abs(given["draws"]).max(initial=0.0)),
    ),
    "split_half_gap": Subject(
        function=replica.split_half_gap,
        arguments=_gram,
        numpy=True,
        share=0.3,
        unequal="modes of equal energy may change places",
        absent=_ABSTAINS,
    ),
    "stacked_gram": Subject(
        function=replica.stacked_gram,
        arguments=lambda draw: {"V0": draw.array(3, 2), "Vs": draw.array(3, 2)},
    ),
}
EXCEPTIONS = {
    "commitment_gap": "compares two commitment times",
    "leading_eigenvalue": "asks a propagator of a block for products",
    "modal_gains": "asks a propagator of a block for products",
    "modal_product": "asks propagators of blocks for products",
    "structural_assumptions": "asks a propagator of a block for products",
}
