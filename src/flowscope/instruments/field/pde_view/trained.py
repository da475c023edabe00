"""The trained networks of a study, for the stages after the training, and what states say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.pde_view import PdeView
from flowscope.instruments.field.pde_view.names import SIMULATOR, TRANSFORMER
from flowscope.instruments.field.pde_view.networks import Network, network, restored
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.lab.bench import seeded_generator
from flowscope.pde import collapse, token_spectrum

__all__ = [
    "MEASURES", "WEIGHTS", "Place", "places", "random_network", "read_examples", "readings",
    "rival", "rivals", "states_of", "trained",
]  # fmt: skip

WEIGHTS = "weights/"
"""Begins the names of the arrays of a shard that are weights."""

MEASURES = (
    "fidelity", "correlation", "mean_cosine", "effective_rank", "high_frequency", "size",
)  # fmt: skip
"""What `readings` gives of the states, in this order."""

Place = tuple[str, str, int]
"""Task, arm and seed of a network."""


def places(config: PdeView) -> list[Place]:
    """All networks, those of one seed together and each transformer first."""
    arms = sorted(config.arms, key=lambda arm: arm != TRANSFORMER)
    return [(t, arm, seed) for t in config.tasks for seed in config.seeds for arm in arms]


def rival(config: PdeView, seed: int) -> int:
    """Seed of the network that a network of this seed is compared with as another seed."""
    others = [other for other in sorted(config.seeds) if other != seed]
    later = [other for other in others if other > seed]
    return (later or others or [seed + 1])[0]


def rivals(config: PdeView) -> list[Place]:
    """Networks of other seeds that are trained for comparison only, where there is one seed."""
    if len(config.seeds) > 1 or not config.rivals:
        return []
    seed = rival(config, config.seeds[0])
    arms = [arm for arm in config.arms if arm in (TRANSFORMER, SIMULATOR)]
    return [(task, arm, seed) for task in config.tasks for arm in arms]


def trained(bench: PdeBench, place: Place) -> Network:
    """A network with the weights that the training left, on the device."""
    arrays: Mapping[str, NDArray[np.generic]] = bench.shared("trained")[place]
    made = random_network(bench, place)
    restored(made, {k.removeprefix(WEIGHTS): v for k, v in arrays.items()})
    return made


def random_network(bench: PdeBench, place: Place, draw: int = 0) -> Network:
    """The network of a place before its training, or, for another draw, another one."""
    name, arm, seed = place
    sizes = bench.subject.tasks[name].sizes
    made = network(arm, settings_of(bench), seed + 1000 * draw, sizes)
    return made.to(bench.subject.place)


def read_examples(bench: PdeBench, name: str, seed: int, count: int = 0) -> Int[Tensor, "examples"]:
    """Test examples whose states are read; each seed has others."""
    task = bench.subject.tasks[name]
    draw = seeded_generator(bench.config.seed, seed, 1)
    order = torch.randperm(len(task.test_inputs), generator=draw)
    return order[: count or bench.config.prompts].to(bench.subject.place)


@torch.no_grad()
def states_of(made: Network, tokens: Int[Tensor, "batch N"]) -> Float[Tensor, "L+1 batch N d"]:
    """States before the first block and after each."""
    return made.core.path(made.start(tokens))


def readings(bench: PdeBench, place: Place, made: Network, first: int = 0) -> NDArray[np.float64]:
    """What the states of a network say, ``[layers, examples, measures]``; NaN where nothing.

    Parameters
    ----------
    bench, place, made
        The study, and which of its networks this is.
    first
        Layer from which on the states are read; −1 for the last alone.
    """
    task = bench.subject.tasks[place[0]]
    chosen = read_examples(bench, place[0], place[2])
    path = states_of(made, task.test_inputs[chosen]).cpu()
    start, path = path[0], path[first:]
    values = np.full((len(path), path.shape[1], len(MEASURES)), np.nan)
    for depth, states in enumerate(path):
        if states.isfinite().all():
            values[depth] = _read(states, start)
    return values


def _read(
    states: Float[Tensor, "batch N d"], start: Float[Tensor, "batch N d"]
) -> NDArray[np.float64]:
    """Measures of one depth, ``[examples, measures]``."""
    narrow = states  # in the precision of the network: rounding of equal tokens is no direction
    states, start = states.double(), start.double()
    centred, origin = (x - x.mean(-1, keepdim=True) for x in (states, start))
    rows = torch.full((len(states), len(MEASURES)), torch.nan, dtype=torch.float64)
    rows[:, 0] = F.cosine_similarity(states, start, dim=-1).mean(-1)
    rows[:, 1] = F.cosine_similarity(centred, origin, dim=-1).mean(-1)
    rows[:, 5] = states.square().mean((-1, -2)).sqrt()
    try:
        found = collapse(narrow)
        rows[:, 2], rows[:, 3] = found.mean_cosine, found.effective_rank
        rows[:, 4] = token_spectrum(states).high_frequency
    except InvalidInputError:  # a zero state has no direction, equal tokens have no spectrum
        pass
    return rows.numpy()
