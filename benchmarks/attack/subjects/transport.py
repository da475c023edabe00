"""What the functions of ``flowscope.transport`` are given."""

from typing import Any

import numpy as np

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Subject
from flowscope import transport

__all__ = ["EXCEPTIONS", "SUBJECTS"]
_LAYER = "an attention layer of a running model: its logits may be masked, and are not looked at"
_EPSILON = {"max_iterations": 300}
_CLOSE = "the iteration stops where its own precision lets it; both say how far they are"


def _cost(draw: Draw) -> Arguments:
    n, m = draw.integer(1, 4), draw.integer(1, 4)
    return {
        "cost": draw.array(n, m),
        "a": draw.probabilities(n),
        "b": draw.probabilities(m),
    }


def _entropic(draw: Draw) -> Arguments:
    epsilon = draw.one_of({"relative_epsilon": 0.5}, {"epsilon": 1.0}, {"epsilon": draw.positive()})
    return {**_cost(draw), **epsilon, **_EPSILON}


def _clouds(draw: Draw) -> Arguments:
    n, d = draw.integer(1, 4), draw.integer(1, 2)
    return {"x": draw.array(n, d), "y": draw.array(draw.integer(1, 4), d)}


def _size(arguments: Arguments) -> float:
    """Size of logits, in whose exponent a rounding error stands."""
    return 1.0 + float(np.abs(arguments["logits"]).max())


def _scaled(arguments: Arguments) -> float:
    """Size of cost over ε, in whose exponent a rounding error stands; at least one."""
    return 1.0 + float(np.abs(arguments["cost"]).max()) / arguments.get("epsilon", np.inf)


def _attention(draw: Draw) -> Arguments:
    n = draw.integer(1, 4)
    return {"logits": draw.array(n, n), "iterations": draw.integer(1, 4)}


def _gaussians(function: Any) -> Any:
    def called(
        means: Any, covariances: Any, first: int = 0, second: int = 1, **options: Any
    ) -> Any:
        pair = [
            transport.Gaussian(mean=means[i], covariance=covariances[i]) for i in (first, second)
        ]
        return function(*pair, **options)

    return called


def _gaussian(draw: Draw) -> Arguments:
    d = draw.integer(1, 3)
    covariances = np.stack([draw.covariance(d), draw.covariance(d)])
    return {"means": draw.array(2, d), "covariances": covariances}


def _square(draw: Draw) -> Arguments:
    d = draw.integer(1, 4)
    return {"products": draw.array(d, d)}


def _barycenter(means: Any, covariances: Any) -> Any:
    return transport.bures_barycenter(
        [transport.Gaussian(mean=m, covariance=c) for m, c in zip(means, covariances, strict=True)],
        tolerance=1e-6,
        max_iterations=200,
    )


def _turn(products: Any) -> Any:
    """What the rotation reaches; where products are singular, many rotations reach it."""
    turn = transport.orthogonal_map(products)
    return {"reached": (turn * products.double()).sum(), "gram": turn.T @ turn}


def _geometry_costs(x: Any, y: Any) -> Any:
    cloud = transport.PointCloud(x, y)
    coupling = transport.sinkhorn(cloud, relative_epsilon=0.5, max_iterations=200)
    return coupling.cost


def _nystrom(x: Any, y: Any) -> Any:
    return transport.nystrom_coupling(
        transport.PointCloud(x, y), relative_epsilon=0.5, max_iterations=100
    ).coupling.marginal_error


def _bridge(x: Any, y: Any) -> Any:
    bridge = transport.schroedinger_bridge(x, y, relative_epsilon=0.5, max_iterations=200)
    return bridge.coupling.cost


def _path(x: Any, y: Any) -> Any:
    bridges = transport.bridge_path([x, y], relative_epsilon=0.5, max_iterations=200)
    return [bridge.coupling.cost for bridge in bridges]


def _summary(function: Any) -> Any:
    """Value and error of a coupling; its geometry and potentials are arrays of the caller's."""

    def called(**arguments: Any) -> Any:
        coupling = function(**arguments)
        return {"matrix": coupling.matrix, "error": coupling.marginal_error}

    return called


def _kernel_and_metric(draw: Draw) -> Arguments:
    n = draw.integer(2, 4)
    points = draw.array(n, mild=draw.one_of(True, False))
    return {"points": points, "n": n}


def _distances(points: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        gaps = np.abs(points[:, None] - points[None])
        return gaps.astype(np.float32).astype(np.float64)


def _rows(draw: Draw) -> Arguments:
    n = draw.integer(2, 4)
    return {
        "p": draw.probabilities(2, n),
        "q": draw.probabilities(2, n),
        "metric": _distances(draw.array(n)),
    }


def _curvature(draw: Draw) -> Arguments:
    n = draw.integer(2, 4)
    pairs = np.array([[0, 1]])
    return {
        "rows": draw.probabilities(n, n),
        "distances": _distances(draw.array(n)),
        "pairs": pairs,
    }


def _line(draw: Draw) -> Arguments:
    n, m = draw.integer(1, 4), draw.integer(1, 4)
    return {
        "x": draw.array(n),
        "y": draw.array(m),
        "a": draw.probabilities(n),
        "b": draw.probabilities(m),
        "order": draw.one_of(1.0, 2.0),
    }


def _free(x: Any, y: Any) -> Any:
    return transport.free_barycenter([x, y], relative_epsilon=0.5, max_iterations=30)


def _drift(x: Any, y: Any) -> Any:
    return transport.barycenter_drift([x, y], 1.0, relative_epsilon=0.5, max_iterations=30)


def _particles(particles: Any, **options: Any) -> Any:
    return transport.jko_step_particles(
        particles, lambda x: x.square().sum(-1) / 2, max_iterations=20, **options
    )


SUBJECTS = {
    "CostMatrix": Subject(
        unit=lambda given: 1.0 + float(np.abs(given["cost"]).max()),
        function=lambda cost: (
            transport.sinkhorn(
                transport.CostMatrix(cost), epsilon=1.0, max_iterations=200
            ).marginal_error
        ),
        arguments=lambda draw: {"cost": draw.array(draw.integer(1, 3), draw.integer(1, 3))},
    ),
    "Gaussian": Subject(
        function=lambda means, covariances: transport.Gaussian(
            mean=means[0], covariance=covariances[0]
        ),
        arguments=_gaussian,
    ),
    "PointCloud": Subject(function=_geometry_costs, arguments=_clouds, factor=1e5, share=0.2),
    "NystromCloud": Subject(
        function=lambda x, y: transport.NystromCloud(transport.PointCloud(x, y)).median(),
        arguments=_clouds,
    ),
    "adapted_wasserstein": Subject(
        function=transport.adapted_wasserstein,
        arguments=lambda draw: {"x": draw.array(3, 2, 1), "y": draw.array(2, 2, 1), "cell": 0.5},
        share=0.5,
    ),
    "adapted_wasserstein_gaussian": Subject(
        function=_gaussians(transport.adapted_wasserstein_gaussian), arguments=_gaussian
    ),
    "bridge_path": Subject(function=_path, arguments=_clouds, factor=1e5, share=0.3),
    "bures_barycenter": Subject(function=_barycenter, arguments=_gaussian, share=0.2),
    "bures_distance": Subject(function=_gaussians(transport.bures_distance), arguments=_gaussian),
    "common_support": Subject(
        absent={".": "rows without a common key"},
        function=transport.common_support,
        arguments=lambda draw: {"p": draw.probabilities(2, 4), "q": draw.probabilities(2, 4)},
    ),
    "curvature": Subject(
        function=transport.curvature,
        arguments=_curvature,
        absent={".": "a pair of rows without a common key says nothing"},
    ),
    "exact": Subject(function=_summary(transport.exact), arguments=_cost, unit=1.0),
    "orthogonal_map": Subject(function=_turn, arguments=_square),
    "fixed_barycenter": Subject(
        unit=1.0,
        function=transport.fixed_barycenter,
        arguments=lambda draw: {
            "masses": draw.probabilities(2, 3),
            "cost": _distances(draw.array(3)) ** 2,
            "relative_epsilon": 0.5,
            "max_iterations": 200,
        },
        share=0.2,
    ),
    "gaussian_bridge": Subject(
        unit=lambda given: float(np.abs(given["means"]).max()),
        function=_gaussians(transport.gaussian_bridge),
        arguments=lambda draw: {
            **_gaussian(draw),
            "epsilon": draw.one_of(1.0, 1e-3, 1e3),
            "time": draw.one_of(0.5, 0.0, 1.0),
        },
    ),
    "gaussian_coupling": Subject(
        function=_gaussians(transport.gaussian_coupling),
        arguments=lambda draw: {**_gaussian(draw), "epsilon": draw.one_of(1.0, 1e-3, 1e3)},
    ),
    "jko_step": Subject(
        function=transport.jko_step,
        arguments=lambda draw: {
            "state": draw.probabilities(5) * 4,
            "potential": draw.array(5),
            "spacing": 0.25,
            "step": 0.1,
            "diffusivity": 1.0,
        },
        share=0.2,
    ),
    "jko_step_grid": Subject(
        function=transport.jko_step_grid,
        arguments=lambda draw: {
            "density": draw.probabilities(5) * 4,
            "potential": draw.array(5),
            "spacing": 0.25,
            "step": 0.1,
            "diffusivity": 1.0,
        },
        share=0.2,
    ),
    "jko_step_particles": Subject(
        function=_particles,
        arguments=lambda draw: {
            "particles": draw.array(4, 2),
            "step": 0.1,
            "diffusivity": 0.5,
        },
        share=0.2,
    ),
    "nystrom_coupling": Subject(function=_nystrom, arguments=_clouds, unit=1.0, share=0.2),
    "online_attention": Subject(
        function=transport.online_attention,
        arguments=lambda draw: {**_attention(draw), "relaxation": draw.one_of(1.0, 1e-6, 1e6)},
        unit=_size,
        passes_nan=_LAYER,
    ),
    "prescribed": Subject(
        function=_summary(transport.prescribed), arguments=_entropic, unit=_scaled, share=0.2
    ),
    "prescribed_attention": Subject(
        function=transport.prescribed_attention,
        arguments=lambda draw: {**_attention(draw), "columns": None} | _columns(draw),
        unit=_size,
        passes_nan=_LAYER,
    ),
    "row_wasserstein": Subject(function=transport.row_wasserstein, arguments=_rows),
    "schroedinger_bridge": Subject(function=_bridge, arguments=_clouds, factor=1e5, share=0.2),
    "semi_relaxed": Subject(
        unit=_scaled,
        function=_summary(transport.semi_relaxed),
        arguments=lambda draw: {
            "cost": draw.array(3, 4),
            "a": draw.probabilities(3),
            "epsilon": draw.positive(),
        },
    ),
    "sinkhorn": Subject(
        function=_summary(transport.sinkhorn), arguments=_entropic, unit=_scaled, share=0.2
    ),
    "sinkhorn_attention": Subject(
        function=transport.sinkhorn_attention, arguments=_attention, unit=_size, passes_nan=_LAYER
    ),
    "sinkhorn_divergence": Subject(
        unit=1.0,
        function=lambda **given: transport.sinkhorn_divergence(**given).value,
        arguments=lambda draw: {
            "first": draw.array(3, 2),
            "second": draw.array(2, 2),
            "relative_epsilon": 0.5,
            "max_iterations": 50,
        },
        share=0.1,
    ),
    "unbalanced": Subject(
        unit=_scaled,
        function=_summary(transport.unbalanced),
        arguments=lambda draw: {**_entropic(draw), "relaxation": draw.one_of(1.0, 1e-3, 1e3)},
        share=0.5,
    ),
    "unbalanced_attention": Subject(
        function=transport.unbalanced_attention,
        arguments=lambda draw: {**_attention(draw), "relaxation": draw.one_of(1.0, 1e-6, 1e6)},
        unit=_size,
        passes_nan=_LAYER,
    ),
    "wasserstein_1d": Subject(function=transport.wasserstein_1d, arguments=_line),
}
EXCEPTIONS = {
    "causal_columns": "takes no array",
    "barycenter_drift": "minutes for an example: an optimisation over points around many couplings",
    "free_barycenter": "minutes for an example: an optimisation over points around many couplings",
}


def _columns(draw: Draw) -> Arguments:
    n = draw.integer(1, 4)
    return {"logits": draw.array(n, n), "columns": np.full(n, 1.0)}
