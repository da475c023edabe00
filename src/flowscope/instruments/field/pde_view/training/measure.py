"""Train every network of the study and write what training left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.field.pde_view.networks import arrays_of, network, shared_weights
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.tasks import Task
from flowscope.instruments.field.pde_view.trained import (
    WEIGHTS,
    Place,
    places,
    readings,
    rivals,
    trained,
)
from flowscope.instruments.field.pde_view.training.loop import (
    Descent,
    Trained,
    fast_products,
    schedule,
)

__all__ = ["Share", "batches", "descended", "training"]

_PIECES = 40  # points of a curve
_TESTED = 256  # examples of a pass
Advance = Callable[[int], None]
Array = NDArray[Any]
Arrays = dict[str, Array]


def training(bench: PdeBench) -> None:
    """Train the networks, a shard each, and write the tables ``networks`` and ``curves``."""
    config, rows, curves = settings_of(bench), [], {}
    every = [*places(config), *rivals(config)]
    counter = bench.counter("networks", len(every) * config.steps)
    store: dict[Place, Arrays] = bench.once("trained", dict)
    for place in every:
        name, arm, seed = place
        task, share = bench.subject.tasks[name], Share(counter.advance, config.steps)
        arrays = bench.shard(
            f"network-{name}-{task.mark[:8]}-{arm}-{seed}",
            partial(_made, bench, task, arm, seed, share.advance),
        )
        share.finish()
        store[place] = {k: v for k, v in arrays.items() if k.startswith(WEIGHTS)}
        if seed in config.seeds:
            curves[place] = arrays["losses"], arrays["gradients"]
            rows.append(_row(bench, place, arrays))
    bench.put("networks", pd.DataFrame(rows))
    bench.put("curves", _curves(curves))


class Share:
    """Share of a piece of work in a progress bar; what a shard saved is finished at once."""

    def __init__(self, advance: Advance, steps: int) -> None:
        self._advance, self._left = advance, steps

    def advance(self, steps: int) -> None:
        """Report finished steps."""
        self._left -= steps
        self._advance(steps)

    def finish(self) -> None:
        """Report the steps that are left."""
        self.advance(self._left)


def descended(
    bench: PdeBench, task: Task, arm: str, seed: int, steps: int, rate: float, advance: Advance
) -> tuple[torch.nn.Module, Trained]:
    """A network of an arm trained on a task, and what its training left."""
    config, place = settings_of(bench), bench.subject.place
    made = network(arm, config, seed, task.sizes).to(place)
    order = batches(len(task.inputs), steps, config.minibatch, seed).to(place)

    def loss(step: Tensor) -> Tensor:
        rows = order.index_select(0, step)[0]
        return F.cross_entropy(made(task.inputs[rows]), task.labels[rows])

    with fast_products(place):
        descent = Descent(made, loss, schedule(steps, rate), shared_weights(made))
        left = descent.run(graph=config.graphs and place.type == "cuda", advance=advance)
    return made, left


def batches(examples: int, steps: int, size: int, seed: int) -> Tensor:
    """Examples of every step, ``[steps, size]``: passes over all of them, each in random order."""
    draw = torch.Generator().manual_seed(seed)
    passes = -(-steps * size // examples)
    order = torch.cat([torch.randperm(examples, generator=draw) for _ in range(passes)])
    return order[: steps * size].reshape(steps, size)


def _made(bench: PdeBench, task: Task, arm: str, seed: int, advance: Advance) -> Arrays:
    config = settings_of(bench)
    made, left = descended(bench, task, arm, seed, config.steps, config.learning_rate, advance)
    with torch.no_grad():
        logits = torch.cat([made(part) for part in torch.split(task.test_inputs, _TESTED)])
    return {
        **{f"{WEIGHTS}{name}": value for name, value in arrays_of(made).items()},
        "losses": left.losses.numpy(),
        "gradients": left.gradients.numpy(),
        "right": (logits.argmax(-1) == task.test_labels).cpu().numpy().astype(np.int8),
        "test_losses": F.cross_entropy(logits, task.test_labels, reduction="none").cpu().numpy(),
    }


def _row(bench: PdeBench, place: Place, arrays: Mapping[str, Array]) -> dict[str, object]:
    """Row of the table ``networks``."""
    name, arm, seed = place
    task, losses, gradients = bench.subject.tasks[name], arrays["losses"], arrays["gradients"]
    later = gradients[len(gradients) // 10 :]
    peak, middle = np.nanquantile(later, 0.99), np.nanmedian(later)
    last = readings(bench, place, trained(bench, place), first=-1)[-1].mean(0)
    return {
        "task": name,
        "arm": arm,
        "seed": seed,
        "weights": sum(v.size for k, v in arrays.items() if k.startswith(WEIGHTS)),
        "accuracy": float(arrays["right"].mean()),
        "chance": float(torch.bincount(task.test_labels).max() / len(task.test_labels)),
        "test_loss": float(arrays["test_losses"].mean()),
        "loss": float(losses[-max(len(losses) // 10, 1) :].mean()),
        "diverged": bool(~np.isfinite(losses).all()),
        "gradient": float(middle),
        "gradient_peak": float(peak / middle),
        "fidelity": float(last[0]),
        "mean_cosine": float(last[2]),
        "effective_rank": float(last[3]),
    }


def _curves(curves: Mapping[Place, tuple[Array, Array]]) -> pd.DataFrame:
    """Table of the curves, pieces of training averaged."""
    rows = []
    for name, arm in dict.fromkeys((name, arm) for name, arm, _ in curves):
        kept = [pair for (task, one, _), pair in curves.items() if (task, one) == (name, arm)]
        losses, gradients = (np.stack(part).astype(float) for part in zip(*kept, strict=True))
        pieces = np.array_split(np.arange(losses.shape[1]), min(_PIECES, losses.shape[1]))
        rows += [{"task": name, "arm": arm, **_piece(losses, gradients, piece)} for piece in pieces]
    return pd.DataFrame(rows)


def _piece(losses: Array, gradients: Array, piece: Array) -> dict[str, float]:
    loss = losses[:, piece].mean(1)
    with np.errstate(divide="ignore"):
        size = np.exp(np.log(gradients[:, piece]).mean(1))
    return {
        "step": float(piece.mean() + 1),
        "loss": loss.mean(), "loss_low": loss.min(), "loss_high": loss.max(),
        "gradient": float(np.exp(np.log(size).mean())),
        "gradient_low": size.min(), "gradient_high": size.max(),
    }  # fmt: skip
