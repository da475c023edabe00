"""Tune the children of the model, make its turned twin, load the model of another seed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from flowscope.instruments.latent.stable_alignment.domains import (
    Domain,
    domains_of,
    settings_of,
    taken,
)
from flowscope.instruments.latent.stable_alignment.generated import GENERATORS
from flowscope.instruments.latent.stable_alignment.names import AVERAGE, OTHER, TWIN
from flowscope.instruments.latent.stable_alignment.turned import turned_twin
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.bench import seeded_generator
from flowscope.lab.claim import Abstention
from flowscope.levers.agreement.members import members_of
from flowscope.models.loading import Loaded
from flowscope.models.preparation import loaded_model
from flowscope.models.prompts import batches_of
from flowscope.records import Unavailable

__all__ = ["members"]

Arrays = dict[str, NDArray[Any]]
_WEIGHTS = "weights/"
_WARM_UP = 0.1  # share of the steps


def members(bench: LatentBench) -> None:
    """Write the table ``members`` and share the models by name.

    Raises
    ------
    Abstention
        For a model that predicts no next token, or a tuning whose loss is not finite.
    """
    domains = bench.once("domains", lambda: domains_of(bench))
    study, loaded = settings_of(bench), bench.subject.loaded
    models: dict[str, nn.Module | Unavailable] = bench.once("members", dict)
    tuned = [domain for domain in domains if domain.tuned is not None]
    counter, rows = bench.counter("tuning", len(tuned) * study.steps), []
    for domain in tuned:
        name = f"{domain.name} child"
        arrays = bench.shard(
            f"child-{domain.mark}", partial(_tuned, bench, domain, counter.advance)
        )
        models[name] = child = _restored(loaded.model, arrays)
        losses = arrays["losses"]
        tenth = max(len(losses) // 10, 1)
        rows.append(
            {
                "member": name, "made": f"tuned on {domain.source}",
                "texts": len(domain.tuned or ()), "steps": study.steps,
                "loss_start": float(losses[:tenth].mean()),
                "loss_end": float(losses[-tenth:].mean()),
                "moved": _moved(loaded.model, child),
            }
        )  # fmt: skip
    models[AVERAGE] = average = _average([models[f"{d.name} child"] for d in tuned])
    rows.append(_row(AVERAGE, "mean of the weights of both children", loaded.model, average))
    models[TWIN] = twin = turned_twin(loaded.model, seed=bench.config.seed)
    rows.append(_row(TWIN, "the model in other coordinates of its states", loaded.model, twin))
    if study.other is not None:
        models[OTHER] = other = _other(bench, loaded, study.other)
        rows.append(_row(OTHER, study.other, loaded.model, other))
    bench.put("members", pd.DataFrame(rows))


def _row(
    name: str, made: str, model: nn.Module, member: nn.Module | Unavailable
) -> dict[str, object]:
    return {
        "member": name, "made": member.reason if isinstance(member, Unavailable) else made,
        "texts": 0, "steps": 0, "loss_start": math.nan, "loss_end": math.nan,
        "moved": math.nan if isinstance(member, Unavailable) else _moved(model, member),
    }  # fmt: skip


def _tuned(bench: LatentBench, domain: Domain, advance: Callable[[int], object]) -> Arrays:
    """Weights of a child, and its loss at every step."""
    study, loaded = settings_of(bench), bench.subject.loaded
    child = copy.deepcopy(loaded.model).float().eval()
    for weight in child.parameters():
        weight.requires_grad_(True)
    optimiser = torch.optim.AdamW(child.parameters(), lr=study.learning_rate, weight_decay=0.0)
    assert domain.tuned is not None
    names = list(GENERATORS)
    draw = seeded_generator(bench.config.seed, 72, names.index(domain.name))
    losses = np.full(study.steps, np.nan)
    with torch.enable_grad():
        for step in range(study.steps):
            for group in optimiser.param_groups:
                group["lr"] = study.learning_rate * _share(step, study.steps)
            rows = torch.randint(len(domain.tuned), (study.minibatch,), generator=draw).numpy()
            loss = _loss(child, loaded, taken(domain.tuned, rows))
            if not bool(loss.isfinite()):
                raise Abstention(
                    f"the loss of the {domain.name} child is not finite at step {step + 1}. Lower "
                    "learning_rate"
                )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses[step] = float(loss.detach())
            advance(1)
    weights = {f"{_WEIGHTS}{n}": w.detach().cpu().numpy() for n, w in child.named_parameters()}
    return {**weights, "losses": losses}


def _share(step: int, steps: int) -> float:
    """Share of the learning rate: a rise over a tenth of the steps, then a fall to zero."""
    rise = max(round(_WARM_UP * steps), 1)
    return min((step + 1) / rise, (steps - step) / max(steps - rise, 1))


def _loss(model: nn.Module, loaded: Loaded, prompts: Any) -> torch.Tensor:
    batch = next(batches_of(loaded, prompts, len(prompts)))
    logits = model(**batch.inputs, use_cache=False).logits[:, :-1].float()
    counted = batch.mask[:, 1:].to(logits.device)
    targets = batch.inputs["input_ids"][:, 1:]
    return F.cross_entropy(logits[counted], targets[counted])


def _restored(model: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> nn.Module:
    child = copy.deepcopy(model).eval()
    with torch.no_grad():
        for name, weight in child.named_parameters():
            weight.copy_(torch.from_numpy(np.array(arrays[f"{_WEIGHTS}{name}"])))
    return child


def _average(models: list[Any]) -> nn.Module:
    mean: nn.Module = copy.deepcopy(models[0])
    with torch.no_grad():
        for name, weight in mean.named_parameters():
            others = [model.get_parameter(name) for model in models]
            weight.copy_(torch.stack([other.double() for other in others]).mean(0))
    return mean


@torch.no_grad()
def _moved(model: nn.Module, other: nn.Module) -> float:
    """Norm of the change of the weights in units of their norm; NaN where names differ."""
    before, after = dict(model.named_parameters()), dict(other.named_parameters())
    if before.keys() != after.keys():
        return math.nan
    change = sum(float((after[n].double() - w.double()).square().sum()) for n, w in before.items())
    size = sum(float(w.double().square().sum()) for w in before.values())
    return math.sqrt(change / size)


def _other(bench: LatentBench, loaded: Loaded, source: str) -> nn.Module:
    """A model of another seed, refused where it does not fit."""
    other = loaded_model(source, bench.config, None)
    members_of([loaded, other])
    return other.model.eval()
