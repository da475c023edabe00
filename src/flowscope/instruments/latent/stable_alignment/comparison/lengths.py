"""What a model loses when all its tokens are given one length after every block.

Source 003 lets tokens move on the unit sphere, because a norm follows. In a model whose norms stand
before attention and feed-forward part, what a block adds is divided by no length: a token with a
longer state turns less. If lengths play no role the loss stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from flowscope.instruments.latent.stable_alignment.comparison.scoring import Arrays, scored
from flowscope.instruments.latent.stable_alignment.comparison.tables import means
from flowscope.instruments.latent.stable_alignment.domains import Domain
from flowscope.instruments.latent.subject import LatentBench
from flowscope.levers.agreement.lockstep import Event, Member, in_lockstep

__all__ = ["sphere_table"]


def sphere_table(bench: LatentBench, domains: Sequence[Domain]) -> pd.DataFrame:
    """Table ``one_sphere``."""
    rows = []
    for domain in domains:
        arrays = bench.shard(f"{domain.mark}-one-sphere", partial(_made, bench, domain))
        losses = np.asarray(arrays["losses"], float)
        row = means(
            {"loss": losses[0], "excess": losses[1] - losses[0]},
            np.asarray(arrays["tokens"], float),
            seed=bench.config.seed,
            resamples=bench.config.resamples,
        )
        rows.append({"domain": domain.name, **row, "spread": float(arrays["spread"].mean())})
    return pd.DataFrame(rows)


def _made(bench: LatentBench, domain: Domain) -> Arrays:
    model = bench.subject.loaded.model
    member, spreads = Member(model, None), list[float]()

    def meet(events: Sequence[Event]) -> list[Any]:
        (event,) = events
        if event.kind != "block":
            return [None]
        state: Tensor = event.value[1]
        lengths = state.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        spreads.append(float(lengths.log().std(1).mean()) if state.shape[1] > 1 else 0.0)
        return [state / lengths * lengths.median(1, keepdim=True).values]

    def both(inputs: dict[str, Any]) -> list[Any]:
        (changed,) = in_lockstep([member.lane], [lambda: member.run((), inputs)], meet)
        return [model(**inputs), changed]

    try:
        arrays = scored(bench.subject.loaded, domain.tested, bench.config.batch, both)
    finally:
        member.close()
    return {**arrays, "spread": np.array(spreads)}
