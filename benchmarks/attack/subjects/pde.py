"""What the functions of ``flowscope.pde`` are given."""

from typing import Any

import numpy as np
import torch

from benchmarks.attack.numbers import Draw
from benchmarks.attack.subject import Arguments, Subject
from flowscope import pde

__all__ = ["EXCEPTIONS", "SUBJECTS"]
_FREE = "modes of equal value have any basis, and shares belong to a basis"


def _largest(x: Any) -> float:
    return float(np.abs(x).max(initial=0.0))


def _states(draw: Draw) -> Arguments:
    return {"x": draw.array(draw.integer(2, 5), draw.integer(1, 3))}


def _signal(draw: Draw) -> Arguments:
    return {"x": draw.array(draw.integer(3, 8), draw.integer(1, 2))}


def _written(draw: Draw, name: str) -> Arguments:
    shape = draw.integer(2, 4), draw.integer(1, 3)
    return {name: draw.array(*shape), "writes": [draw.array(*shape) for _ in range(2)]}


def _squared_sizes(name: str) -> Any:
    """Size of the largest product of two coordinates, summed over coordinates and tokens."""

    def unit(given: Arguments) -> float:
        size = _largest(given[name]) + sum(map(_largest, given["writes"]))
        return given[name].size * size**2

    return unit


def _kernel(draw: Draw) -> tuple[int, Any]:
    n = draw.integer(3, 5)
    return n, draw.probabilities(n, n)


def _attention(draw: Draw) -> Arguments:
    n, kernel = _kernel(draw)
    return {"P": kernel, "v": draw.array(n, 2), "sinks": draw.one_of([], [0], [0, n - 1])}


def _positions(draw: Draw) -> Arguments:
    n, kernel = _kernel(draw)
    return {
        "P": kernel,
        "positions": draw.array(n),
        "sinks": draw.one_of([], [0]),
        "dt": draw.one_of(1.0, 1e-3, 1e3),
    }


def _on_graph(draw: Draw) -> Arguments:
    n, kernel = _kernel(draw)
    return {"P": kernel, "x": draw.array(n, 2)}


def _paths(draw: Draw) -> Arguments:
    shape = 3, 2, 3, 2
    return {"path": draw.array(*shape), "reference": draw.array(*shape)}


def _reference(draw: Draw) -> Arguments:
    return {"reference": draw.array(draw.integer(1, 4), 1, 2, 2)}


def _labelled(draw: Draw) -> Arguments:
    return {
        "states": draw.array(40, 3),
        "labels": np.arange(40) % draw.integer(1, 3),
        "groups": np.arange(40) // 5,
        "kind": draw.one_of("gaussian", "softmax"),
        "folds": 3,
    }


def _bounds(state: Any, kernel: Any, values: Any, metric: str) -> Any:
    return pde.jacobian_bounds(lambda h: kernel @ torch.tanh(h) @ values, state, metric=metric)


def _block(draw: Draw, metric: str) -> Arguments:
    return {
        "state": draw.array(3, 2),
        "kernel": draw.array(3, 3, unbroken=True),
        "values": draw.array(2, 2, unbroken=True),
        "metric": metric,
    }


def _gain(given: Arguments) -> float:
    return 6 * _largest(given["kernel"]) * _largest(given["values"])


def _network(u: Any, kind: str, norm: str, n: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: Any = (
            pde.MasterEquation(width=4, heads=2, steps=2, norm=norm, stabiliser="relaxing")
            if kind == "master"
            else pde.AblatedTransformer(width=4, heads=2, blocks=2, norm=norm)
        )
    with torch.no_grad():
        return pde.refined_path(network.to(u.dtype), u, n)


def _field(draw: Draw) -> Arguments:
    return {
        "u": draw.array(1, 3, 4, mild=True),
        "kind": draw.one_of("master", "ablated"),
        "norm": draw.one_of("layer", "none"),
        "n": draw.integer(1, 3),
    }


SUBJECTS = {
    "advection_diffusion": Subject(
        function=pde.advection_diffusion,
        arguments=_positions,
        unit=lambda given: 2 * _largest(given["positions"]) / given["dt"],
    ),
    "attention_parts": Subject(
        function=pde.attention_parts,
        arguments=_attention,
        unit=lambda given: _largest(given["v"]),
    ),
    "collapse": Subject(function=pde.collapse, arguments=_states, unit=1.0),
    "decodable_information": Subject(
        function=pde.decodable_information, arguments=_labelled, share=0.3, unit=1.0
    ),
    "energy_balance": Subject(
        function=lambda h, writes: (lambda b: (b.radial, b.angular))(pde.energy_balance(h, writes)),
        arguments=lambda draw: _written(draw, "h"),
        unit=1.0,
    ),
    "energy_balance of energies": Subject(
        function=lambda h, writes: (lambda b: (b.energy, b.work))(pde.energy_balance(h, writes)),
        arguments=lambda draw: _written(draw, "h"),
        unit=_squared_sizes("h"),
    ),
    "euler_limit": Subject(
        function=pde.euler_limit,
        arguments=lambda draw: {"jacobian": draw.array(*[draw.integer(1, 4)] * 2)},
    ),
    "graph_spectrum": Subject(function=pde.graph_spectrum, arguments=_on_graph, unequal=_FREE),
    "graph_spectrum of frequencies": Subject(
        function=lambda P, x: pde.graph_spectrum(P, x).frequencies, arguments=_on_graph, unit=2.0
    ),
    "jacobian_bounds": Subject(
        function=_bounds, arguments=lambda draw: _block(draw, "plain"), share=0.5, unit=_gain
    ),
    "jacobian_bounds of a relative metric": Subject(
        function=_bounds,
        arguments=lambda draw: _block(draw, "relative"),
        share=0.5,
        unequal="lengths of tokens span the range, and their ratios the rounding of a product",
    ),
    "path_alignment": Subject(
        function=pde.path_alignment, arguments=_paths, unit=1.0, absent={".skill": "documented"}
    ),
    "persistence": Subject(
        function=pde.persistence,
        arguments=_reference,
        passes_nan="repeats what it is given",
    ),
    "refined_path": Subject(
        function=_network, arguments=_field, share=0.5, unit=lambda given: _largest(given["u"])
    ),
    "spread_balance": Subject(
        function=lambda x, writes: (lambda b: (b.cosine, b.cosine_changes))(
            pde.spread_balance(x, writes)
        ),
        arguments=lambda draw: _written(draw, "x"),
        unit=1.0,
    ),
    "spread_balance of spreads": Subject(
        function=lambda x, writes: (lambda b: (b.spread, b.shares))(pde.spread_balance(x, writes)),
        arguments=lambda draw: _written(draw, "x"),
        unit=_squared_sizes("x"),
    ),
    "straight_line": Subject(
        function=pde.straight_line,
        arguments=_reference,
        unit=lambda given: _largest(given["reference"]),
    ),
    "token_spectrum": Subject(function=pde.token_spectrum, arguments=_signal, unit=1.0),
}
EXCEPTIONS: dict[str, str] = {}
