"""Score members, their combinations and every consensus on each kind of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from flowscope.instruments.latent.stable_alignment.comparison.lengths import sphere_table
from flowscope.instruments.latent.stable_alignment.comparison.scoring import Arrays, Passes, scored
from flowscope.instruments.latent.stable_alignment.comparison.tables import (
    Scores,
    consensus_table,
    prompts_table,
)
from flowscope.instruments.latent.stable_alignment.comparison.twins import alignments, twin_table
from flowscope.instruments.latent.stable_alignment.comparison.ways import (
    Way,
    blocks_of,
    consensus_ways,
)
from flowscope.instruments.latent.stable_alignment.domains import Domain, settings_of
from flowscope.instruments.latent.stable_alignment.names import (
    APART,
    AVERAGE,
    CHILDREN,
    OTHER,
    PAIRED,
    PARENT,
    TRANSPORT,
)
from flowscope.instruments.latent.subject import LatentBench
from flowscope.lab.claim import Abstention
from flowscope.levers import Consensus, consensus
from flowscope.models.loading import weight_hash
from flowscope.models.prompts import Prompts

__all__ = ["comparison"]


def comparison(bench: LatentBench) -> None:
    """Write the tables ``consensus``, ``consensus_prompts``, ``turned_twin``, ``one_sphere``."""
    if AVERAGE not in bench.once("members", dict):
        raise Abstention("the models of the study could not be made; its measurements say why")
    domains: list[Domain] = bench.shared("domains")
    children = _children(bench)
    depth = bench.shared("clouds").layers
    ways = list(consensus_ways(settings_of(bench)))
    counter = bench.counter("ways", len(domains) * (len(ways) + 3) + 1)
    scores: list[Scores] = []
    for domain in domains:
        for each in _plain(bench, domain, children):
            scores.append(each)
            counter.advance(1)
        for way in ways:
            scores.append(_agreed(bench, domain, CHILDREN, children, way, depth))
            counter.advance(1)
        scores += list(_other(bench, domain, depth))
    seed, resamples = bench.config.seed, bench.config.resamples
    bench.put("consensus", consensus_table(scores, seed=seed, resamples=resamples))
    bench.put("consensus_prompts", prompts_table(scores))
    bench.put("one_sphere", sphere_table(bench, domains))
    twin = twin_table(bench, domains[-1])
    if twin is not None:
        bench.put("turned_twin", twin)
    counter.advance(1)


def _children(bench: LatentBench) -> list[nn.Module]:
    models = bench.shared("members")
    return [models[f"{name} child"] for name in ("first", "second")]


def _plain(bench: LatentBench, domain: Domain, children: list[nn.Module]) -> Iterator[Scores]:
    """Parent, both children apart, and their average."""
    models = bench.shared("members")
    for method, members in (
        (PARENT, [bench.subject.loaded.model]),
        (APART, children),
        (AVERAGE, [models[AVERAGE]]),
    ):
        passes = partial(_one_by_one, members)
        arrays = _scored(bench, domain, f"{CHILDREN}-{method}", passes)
        yield Scores(domain=domain.name, members=CHILDREN, method=method, arrays=arrays)


def _one_by_one(members: Sequence[nn.Module], inputs: dict[str, Tensor]) -> list[Any]:
    return [member(**inputs) for member in members]


def _together(lever: Consensus, inputs: dict[str, Tensor]) -> Sequence[Any]:
    return lever(**inputs)


def _agreed(
    bench: LatentBench,
    domain: Domain,
    group: str,
    pair: list[nn.Module],
    way: Way,
    depth: int,
    mark: str = "",
) -> Scores:
    """Members in consensus on one kind of text."""
    most = settings_of(bench).transported if way.method == TRANSPORT else None
    prompts = domain.tested if most is None else domain.tested.first(most)

    def made() -> Arrays:
        with consensus(
            pair, blocks_of(way.layers, depth), way.strength, way.coupling, way.align
        ) as lever:
            if way.align == "procrustes":
                for batch in bench.subject.material.batches(None):
                    lever.fit(**batch.inputs, use_cache=False)
            arrays = _arrays(bench, prompts, partial(_together, lever))
            changes = lever.summary()
        matched = [c.matched for c in changes if c.matched is not None]
        return {
            **arrays,
            "distance": np.array([np.mean([c.distance for c in changes] or [np.nan])]),
            "matched": np.array([np.mean(matched or [np.nan])]),
        }

    name = f"{domain.mark}-{group}{mark}-{way.shard}-{len(prompts)}".replace(" ", "_")
    return Scores(
        domain=domain.name, members=group, method=way.method, arrays=bench.shard(name, made),
        layers=way.layers, strength=way.strength, align=way.align,
    )  # fmt: skip


def _other(bench: LatentBench, domain: Domain, depth: int) -> Iterator[Scores]:
    """The model with one of another seed, where there is one."""
    other = bench.shared("members").get(OTHER)
    if other is None:
        return
    pair, mark = [bench.subject.loaded.model, other], f"-{str(weight_hash(other))[:8]}"
    arrays = _scored(bench, domain, f"{OTHER}{mark}-{APART}", partial(_one_by_one, pair))
    yield Scores(domain=domain.name, members=OTHER, method=APART, arrays=arrays)
    for layers in ("all", "early", "last"):
        for align in ("none", *alignments(bench)):
            way = Way(method=PAIRED, layers=layers, strength=1.0, align=align)  # type: ignore[arg-type]
            yield _agreed(bench, domain, OTHER, pair, way, depth, mark)


def _scored(bench: LatentBench, domain: Domain, name: str, passes: Passes) -> Arrays:
    return bench.shard(
        f"{domain.mark}-{name}".replace(" ", "_"),
        lambda: _arrays(bench, domain.tested, passes),
    )


def _arrays(bench: LatentBench, prompts: Prompts, passes: Passes) -> Arrays:
    return scored(bench.subject.loaded, prompts, bench.config.batch, passes)
