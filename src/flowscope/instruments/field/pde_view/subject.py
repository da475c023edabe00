"""What the study measures: its tasks. The networks are trained by its first stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flowscope.errors import InvalidInputError
from flowscope.instruments.field.config import FieldConfig
from flowscope.instruments.field.pde_view import PdeView
from flowscope.instruments.field.pde_view.names import TRANSFORMER
from flowscope.instruments.field.pde_view.tasks import Task, task
from flowscope.lab.bench import Bench, Subject
from flowscope.models.checkpoints.devices import usable_device
from flowscope.records import Unavailable

__all__ = ["PdeBench", "PdeSubject", "prepare", "settings_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PdeSubject(Subject):
    """Tasks by name, their examples on the device."""

    tasks: Mapping[str, Task]

    @property
    def place(self) -> torch.device:
        """The device."""
        return torch.device(self.device)


def prepare(config: PdeView) -> PdeSubject:
    """Make the tasks.

    Raises
    ------
    InvalidInputError
        For settings that do not fit one another, a device that is not there, or data that cannot be
        read.
    """
    _check(config)
    device = usable_device(config.field.device)
    device = "cpu" if device in (None, "auto") else str(device)
    made = {name: task(name, config) for name in config.tasks}
    for each in made.values():
        if each.inputs.shape[0] < config.minibatch:
            raise InvalidInputError(
                f"minibatch must be at most the number of examples, {len(each.inputs)} of "
                f"{each.name}; got {config.minibatch}."
            )
    marks = {str(name): each.mark for name, each in made.items()}
    return PdeSubject(
        tasks={name: each.on(torch.device(device)) for name, each in made.items()},
        source=config.study,
        device=device,
        weight_hash=Unavailable("the study trains its own networks"),
        marks={},
        facts={
            "networks": len(config.tasks) * len(config.arms) * len(config.seeds),
            "prompts": config.field.prompts,
            **{f"tokens of {name}": each.tokens for name, each in made.items()},
        },
        hashes=marks,
    )


def _check(config: PdeView) -> None:
    for name, values in (("tasks", config.tasks), ("arms", config.arms), ("seeds", config.seeds)):
        if len(set(values)) < len(values):
            raise InvalidInputError(f"{name} must not name one twice; got {list(values)}.")
    if TRANSFORMER not in config.arms:
        raise InvalidInputError(
            f"arms must hold the transformer, which the others are compared with; got "
            f"{list(config.arms)}."
        )
    if config.width % config.heads:
        raise InvalidInputError(f"heads must divide the width {config.width}; got {config.heads}.")
    if not 8 <= config.field.prompts <= config.tested:
        raise InvalidInputError(
            f"prompts, the test examples whose states are read, must be 8 to tested = "
            f"{config.tested}; got {config.field.prompts}."
        )


def settings_of(bench: PdeBench) -> PdeView:
    """Settings of the study that a bench runs."""
    assert isinstance(bench.study, PdeView)
    return bench.study


PdeBench = Bench[PdeSubject, FieldConfig]
