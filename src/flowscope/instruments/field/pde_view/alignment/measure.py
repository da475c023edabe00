"""Compare paths and attention of simulators with the transformer's, beside nulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.instruments.field.pde_view.alignment.attention import (
    KERNEL_MEASURES,
    kernel_agreement,
    kernels,
    uniform,
)
from flowscope.instruments.field.pde_view.alignment.distillation import Student, distilled
from flowscope.instruments.field.pde_view.names import SIMULATOR, TRANSFORMER
from flowscope.instruments.field.pde_view.networks import Core, core
from flowscope.instruments.field.pde_view.subject import PdeBench, settings_of
from flowscope.instruments.field.pde_view.summaries import summarised
from flowscope.instruments.field.pde_view.trained import (
    places,
    read_examples,
    rival,
    rivals,
    states_of,
    trained,
)
from flowscope.instruments.field.pde_view.training.measure import Share
from flowscope.pde import path_alignment, persistence, straight_line

__all__ = ["alignment"]

_METRICS = ("mse", "cosine", "spectral", "cka", "skill")
Path = Float[Tensor, "L+1 batch N d"]
Values = NDArray[np.float64]


def alignment(bench: PdeBench) -> None:
    """Write the tables ``alignment``, ``alignment_layers``, ``attention`` and ``distilled``."""
    config = settings_of(bench)
    metrics: dict[tuple[str, str], list[Values]] = {}
    rows_of_attention: dict[tuple[str, str], list[Values]] = {}
    losses = []
    steps = len(config.students) * config.distillation_steps
    pairs = [(name, seed) for name in config.tasks for seed in config.seeds]
    counter = bench.counter("alignment", len(pairs) * (steps + 1))
    for name, seed in pairs:
        students = _students(bench, name, seed, counter.advance)
        losses += [
            {"task": name, "student": arm, "seed": seed, "loss": loss}
            for arm, (_, loss) in students.items()
        ]
        _compare(bench, name, seed, students, metrics, rows_of_attention)
        counter.advance()
    bench.put("alignment", _table(metrics, list(_METRICS), layers=False))
    bench.put("alignment_layers", _table(metrics, list(_METRICS), layers=True))
    bench.put("alignment_seeds", _by_seed(metrics, config.seeds))
    bench.put("attention", _attention(rows_of_attention))
    bench.put("distilled", pd.DataFrame(losses, columns=["task", "student", "seed", "loss"]))


def _students(
    bench: PdeBench, name: str, seed: int, advance: Callable[[int], None]
) -> dict[str, Student]:
    config, task = settings_of(bench), bench.subject.tasks[name]
    teacher = trained(bench, (name, TRANSFORMER, seed))
    made: dict[str, Student] = {}
    for arm in config.students:
        share = Share(advance, config.distillation_steps)
        made[arm] = distilled(bench, task, teacher, arm, seed, share.advance)
        share.finish()
    return made


@torch.no_grad()
def _compare(
    bench: PdeBench,
    name: str,
    seed: int,
    students: Mapping[str, Student],
    metrics: dict[tuple[str, str], list[Values]],
    attention: dict[tuple[str, str], list[Values]],
) -> None:
    """Add the agreement of every path of one task and seed."""
    task = bench.subject.tasks[name]
    tokens = task.test_inputs[read_examples(bench, name, seed)]
    teacher = trained(bench, (name, TRANSFORMER, seed))
    truth = states_of(teacher, tokens)
    rows = kernels(teacher.core, truth)
    for path_name, path, blocks in _paths(bench, name, seed, students, tokens, truth):
        metrics.setdefault((name, path_name), []).append(_agreement(path, truth))
        if blocks is not None:
            ours = kernels(blocks, path)
            attention.setdefault((name, path_name), []).append(kernel_agreement(ours, rows))
    even = kernel_agreement(uniform(rows), rows)
    attention.setdefault((name, "uniform"), []).append(even)


def _paths(
    bench: PdeBench,
    name: str,
    seed: int,
    students: Mapping[str, Student],
    tokens: Tensor,
    truth: Path,
) -> Iterator[tuple[str, Path, Core | None]]:
    """Name of each path, its states, and its blocks where it has attention."""
    config = settings_of(bench)
    for own in config.arms:
        if own != TRANSFORMER:
            made = trained(bench, (name, own, seed))
            yield own, states_of(made, tokens), made.core
    for guided, (student, _) in students.items():
        yield f"distilled {guided}", student.path(truth[0]), student
    blind = core(SIMULATOR, config, seed).to(bench.subject.place)
    yield "random", blind.path(truth[0]), blind
    yield "persistence", persistence(truth), None
    yield "straight line", straight_line(truth), None
    after = rival(config, seed)
    known = {*places(config), *rivals(config)}
    for arm, label in ((TRANSFORMER, "another seed"), (SIMULATOR, f"{SIMULATOR}, another seed")):
        if (name, arm, after) in known:
            other = trained(bench, (name, arm, after))
            yield label, states_of(other, tokens), other.core


def _agreement(path: Path, truth: Path) -> Values:
    """Metrics of a path, ``[prompts, layers, metrics]``; NaN where a state is not finite."""
    if not (path.isfinite().all() and truth.isfinite().all()):
        return np.full((truth.shape[1], len(truth) - 1, len(_METRICS)), np.nan)
    found = path_alignment(path, truth)
    values = torch.stack([getattr(found, metric) for metric in _METRICS], -1)
    return values.transpose(0, 1).cpu().numpy()


def _table(
    metrics: Mapping[tuple[str, str], list[Values]], names: list[str], *, layers: bool
) -> pd.DataFrame:
    parts = []
    for key, several in metrics.items():
        values = np.stack(several)  # [seeds, prompts, layers, metrics]
        keys = pd.DataFrame([key] * (values.shape[2] if layers else 1), columns=["task", "path"])
        if layers:
            keys["layer"] = np.arange(1, values.shape[2] + 1)
        parts.append(summarised(keys, names, values if layers else values.mean(2, keepdims=True)))
    return pd.concat(parts, ignore_index=True)


def _by_seed(metrics: Mapping[tuple[str, str], list[Values]], seeds: Sequence[int]) -> pd.DataFrame:
    rows = [
        {"task": task, "path": path, "seed": seed, **dict(zip(_METRICS, means, strict=True))}
        for (task, path), several in metrics.items()
        for seed, means in zip(seeds, (values.mean((0, 1)) for values in several), strict=True)
    ]
    return pd.DataFrame(rows)


def _attention(rows: Mapping[tuple[str, str], list[Values]]) -> pd.DataFrame:
    parts = [
        summarised(
            pd.DataFrame([key], columns=["task", "path"]),
            list(KERNEL_MEASURES),
            np.stack(values)[:, :, None],
        )
        for key, values in rows.items()
    ]
    return pd.concat(parts, ignore_index=True)
