"""What the study of source 002 measures beyond the heads: every identity, in float64."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from flowscope.errors import UnsupportedModelError
from flowscope.instruments.heads.diffusion_attention import DiffusionAttention
from flowscope.instruments.heads.measuring import HeadsBench
from flowscope.models.material import material_of
from flowscope.probes.regime_probe import STATISTICS, RegimeProbe
from flowscope.tap import AttentionCall, Chain, Tap

__all__ = ["identities"]


def identities(bench: HeadsBench) -> None:
    """Check every identity on every head, on a few short sequences."""
    probe = _probed(bench)
    bench.put("identities", _identity_table(probe))
    bench.put("regimes", _regime_table(probe))


@torch.no_grad()
def _probed(bench: HeadsBench) -> RegimeProbe:
    study, loaded = bench.study, bench.subject.loaded
    assert isinstance(study, DiffusionAttention)
    sizes = {"prompts": study.identity_prompts, "tokens": study.identity_tokens, "batch": 1}
    few = material_of(loaded, bench.config.model_copy(update=sizes))
    probe = RegimeProbe(tokens=study.identity_tokens, sweeps=study.sweeps, charge=study.charge)
    counter = bench.counter("identities", few.size)
    with Tap(loaded.model) as tap:

        def listen(call: AttentionCall) -> None:
            depth = tap.anatomy.depth
            if not isinstance(depth, Chain):
                raise UnsupportedModelError(f"This model has no heads to measure: {depth.reason}.")
            if call.site.chain == depth.name:
                probe.update(call)

        tap.on_attention(listen)
        for batch in few.batches(None):
            probe.begin(batch.mask)
            loaded.model(**batch.inputs)
            counter.advance(len(batch.prompts))
    return probe


def _identity_table(probe: RegimeProbe) -> pd.DataFrame:
    """One row per identity; ``holds`` is empty where no head could be checked."""
    return pd.DataFrame(
        [
            {
                "identity": row.identity,
                "formula": row.formula,
                "error": row.error,
                "scale": row.scale,
                "heads": row.heads,
                "bound": row.bound,
                "holds": str(row.holds) if row.heads else "",
                "refused": row.refused,
            }
            for row in probe.rows()
        ]
    )


def _regime_table(probe: RegimeProbe) -> pd.DataFrame:
    """One row per statistic, over heads and prompts."""
    rows = []
    for name, values in probe.statistics().items():
        known = values[np.isfinite(values)]
        shown = known if len(known) else np.array([np.nan])
        rows.append(
            {
                "quantity": name,
                "meaning": STATISTICS[name],
                "mean": shown.mean(),
                "median": np.median(shown),
                "least": shown.min(),
                "largest": shown.max(),
                "readings": len(known),
            }
        )
    return pd.DataFrame(rows)
