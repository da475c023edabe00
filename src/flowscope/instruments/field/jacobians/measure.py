"""Bounds on the Jacobian of every block at the state of one prompt, by Lanczos."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, UnsupportedModelError
from flowscope.instruments.field.budget import GAINS
from flowscope.instruments.field.jacobians import TABLES
from flowscope.instruments.field.subject import FieldBench
from flowscope.lab.bench import Counter
from flowscope.lab.claim import Abstention
from flowscope.models.prompts import Prompts
from flowscope.models.twin import fresh_twin
from flowscope.pde import JacobianBounds, jacobian_bounds
from flowscope.probes import model_anatomy
from flowscope.probes.block_visit import check_visit, unchecked_visits, without_cache
from flowscope.records import Unavailable
from flowscope.tap import Chain

__all__ = ["jacobians"]

_BOUNDS = ("sigma_max", "log_norm", "least", "mean_gain")
_COLUMNS = (*_BOUNDS, *(f"{name}_residual" for name in _BOUNDS), "products", "converged")


def jacobians(bench: FieldBench) -> None:
    """Write the table ``jacobians``, and its gains into the table ``blocks``.

    Raises
    ------
    Abstention
        Jacobians are switched off, or a block of this model has no derivative.
    """
    if not bench.config.jacobians:
        raise Abstention("Jacobians are switched off (jacobians: false)")
    model, inputs = bench.subject.loaded.model, _first_prompt(bench)
    bench.list_pass("jacobians", 1)
    depth = model_anatomy(model, inputs).depth
    if isinstance(depth, Unavailable):
        raise Abstention(depth.reason)
    twin = fresh_twin(model, bench.config.seed) if bench.config.controls else _no_controls()
    counter = bench.counter("jacobians", len(depth) * (1 if isinstance(twin, Unavailable) else 2))
    try:
        rows = _bounds(bench, "model", model, inputs, depth, counter)
    except (InvalidInputError, UnsupportedModelError) as error:
        raise Abstention(f"no Jacobian of its blocks: {error}") from error
    table = _table(rows)
    if isinstance(twin, Unavailable):
        bench.abstain("jacobians_twin", twin.reason)
    others = np.full_like(rows, np.nan)
    if not isinstance(twin, Unavailable):
        try:
            others = _bounds(bench, "twin", twin, inputs, depth, counter)
        except (InvalidInputError, UnsupportedModelError) as error:
            bench.abstain("jacobians_twin", str(error).removesuffix("."))
    for name in ("sigma_max", "log_norm", "mean_gain"):
        table[f"{name}_twin"] = others[:, _COLUMNS.index(name)]
    for name, kind in (("products", int), ("converged", bool)):
        table[name] = np.nan_to_num(rows[:, _COLUMNS.index(name)]).astype(kind)
    frame = pd.DataFrame(table)[list(TABLES["jacobians"].schema)]
    bench.put("jacobians", frame)
    gains = [column.name for gain in GAINS for column in gain.expanded()]
    blocks = bench.records.read_table("blocks")
    bench.put("blocks", blocks.assign(**{name: frame[name] for name in gains}))


def _no_controls() -> Unavailable:
    return Unavailable("the controls are switched off (controls: false)")


def _first_prompt(bench: FieldBench) -> Mapping[str, Any]:
    """The first prompt, as long as the settings say; other material as it is."""
    material = bench.subject.material
    inputs = dict(next(material.batches(1)).inputs)
    inputs = {name: x[:1] if _rows(x) else x for name, x in inputs.items()}
    if isinstance(material.prompts, Prompts) and not material.prompts.images:
        length = bench.config.jacobian_tokens
        inputs = {name: x[:, :length] if _rows(x) else x for name, x in inputs.items()}
    return inputs


def _rows(x: Any) -> bool:
    return isinstance(x, Tensor) and x.ndim > 0


def _bounds(
    bench: FieldBench,
    name: str,
    model: nn.Module,
    inputs: Mapping[str, Any],
    depth: Chain,
    counter: Counter,
) -> NDArray[np.float64]:
    """Numbers of every block, a shard each; the model runs only where a shard is missing."""
    visits = cache(lambda: unchecked_visits(model, without_cache(model, inputs)))

    def bounded(layer: int) -> dict[str, NDArray[np.float64]]:
        visit, config = visits()[layer], bench.config
        try:
            check_visit(visit)
            found = jacobian_bounds(
                visit.write, visit.H0, products=config.products, seed=config.seed
            )
        except (InvalidInputError, UnsupportedModelError) as error:
            raise _NoJacobianError(str(error)) from error
        return {"values": _values(found)}

    makers = {
        f"jacobian-{name}-{layer:04d}": partial(bounded, layer) for layer in range(len(depth))
    }
    bench.spread(makers)
    rows: list[NDArray[np.float64]] = []
    reasons: dict[int, str] = {}
    for layer, (shard, make) in enumerate(makers.items()):
        try:
            rows.append(bench.shard(shard, make)["values"])
        except _NoJacobianError as error:
            reasons[layer + 1] = str(error).removesuffix(".")
            rows.append(np.full(len(_COLUMNS), np.nan))
        counter.advance()
    _note_absent(bench, name, reasons, len(depth))
    return np.stack(rows)


class _NoJacobianError(InvalidInputError):
    """One block has no derivative at this state; the others may have."""


def _note_absent(bench: FieldBench, name: str, reasons: dict[int, str], blocks: int) -> None:
    """Name the blocks without a derivative, with the reason of the first."""
    if not reasons:
        return
    first = next(iter(reasons.values()))
    if len(reasons) == blocks:
        raise InvalidInputError(f"{first}.")
    listed = ", ".join(map(str, reasons))
    bench.abstain(f"jacobians, {name}", f"no Jacobian in {len(reasons)} blocks ({listed}): {first}")


def _values(found: JacobianBounds) -> NDArray[np.float64]:
    """In the order of `_COLUMNS`."""
    bounds = [getattr(found, name) for name in _BOUNDS]
    settled = all(bound.converged for bound in bounds[:3])
    return np.array(
        [b.value for b in bounds] + [b.residual for b in bounds] + [found.products, settled],
        dtype=np.float64,
    )


def _table(rows: NDArray[np.float64]) -> dict[str, NDArray[np.generic]]:
    """Values with their ends; those of an average over random directions lie on both sides."""
    table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, len(rows) + 1)}
    for place, name in enumerate(_BOUNDS):
        value, residual = rows[:, place], rows[:, place + len(_BOUNDS)]
        table[name] = value
        if name in ("sigma_max", "log_norm"):
            table |= {f"{name}_low": value, f"{name}_high": value + residual}
        elif name == "mean_gain":
            table |= {f"{name}_low": value - 2 * residual, f"{name}_high": value + 2 * residual}
    return table
