"""Train a simulator to follow the states of a trained transformer, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.field.pde_view.networks import (
    Core,
    Network,
    arrays_of,
    core,
    restored,
    shared_weights,
)
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.tasks import Task
from flowscope.instruments.field.pde_view.trained import WEIGHTS
from flowscope.instruments.field.pde_view.training.loop import Descent, fast_products, schedule
from flowscope.instruments.field.pde_view.training.measure import batches

__all__ = ["Student", "distilled"]

Student = tuple[Core, float]
"""A simulator and its loss at the end."""

_OTHER_ORDER = 7919  # added to the seed: not the order in which the teacher saw the examples


def distilled(
    bench: PdeBench,
    task: Task,
    teacher: Network,
    arm: str,
    seed: int,
    advance: Callable[[int], None],
) -> Student:
    """The simulator of an arm that follows a teacher, from its shard or newly trained."""
    config = settings_of(bench)
    arrays = bench.shard(
        f"distilled-{task.name}-{task.mark[:8]}-{arm}-{seed}",
        lambda: _made(bench, task, teacher, arm, seed, advance),
    )
    student = core(arm, config, seed).to(bench.subject.place)
    restored(student, {k.removeprefix(WEIGHTS): v for k, v in arrays.items() if k != "losses"})
    losses = arrays["losses"]
    return student, float(losses[-max(len(losses) // 10, 1) :].mean())


def _made(
    bench: PdeBench,
    task: Task,
    teacher: Network,
    arm: str,
    seed: int,
    advance: Callable[[int], None],
) -> Mapping[str, NDArray[np.generic]]:
    config, place = settings_of(bench), bench.subject.place
    steps = config.distillation_steps
    student = core(arm, config, seed).to(place)
    order = batches(len(task.inputs), steps, config.minibatch, seed + _OTHER_ORDER).to(place)

    def loss(step: Tensor) -> Tensor:
        with torch.no_grad():
            start = teacher.start(task.inputs[order.index_select(0, step)[0]])
            goal = teacher.core.path(start)[1:]
            scale = goal.square().mean((-1, -2, -3), keepdim=True)
        error = (student.path(start)[1:] - goal).square() / scale
        return error.mean()

    with fast_products(place):
        descent = Descent(
            student, loss, schedule(steps, config.learning_rate), shared_weights(student)
        )
        left = descent.run(graph=config.graphs and place.type == "cuda", advance=advance)
    weights = {f"{WEIGHTS}{name}": value for name, value in arrays_of(student).items()}
    return {**weights, "losses": left.losses.numpy()}
