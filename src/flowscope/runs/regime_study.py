"""Source 002 on a model: the heads as chains, every identity of the geometry, and its claims."""

import numpy as np
import pandas as pd
import torch

from flowscope.errors import UnsupportedModelError
from flowscope.lab.progress import Progress
from flowscope.probes.regime_probe import STATISTICS, RegimeProbe
from flowscope.records import Run
from flowscope.runs.geometer import Geometer
from flowscope.runs.loading import Loaded
from flowscope.runs.material import Material, material_of
from flowscope.runs.preparation import loaded_model
from flowscope.runs.regime_statements import regime_statement_table
from flowscope.runs.studies import DiffusionAttention
from flowscope.tap import AttentionCall, Chain, Tap

__all__ = ["diffusion_attention_run"]


def diffusion_attention_run(config: DiffusionAttention, progress: Progress) -> Run:
    """Run the study; its reading of the heads, if it was begun before, is taken up again."""
    loaded = loaded_model(config.heads.model, config.heads, None)
    material = material_of(loaded, config.heads)
    run = Geometer(loaded, material, config.heads, None, progress).run()
    probe = _identities(config, loaded, progress)
    run.write_table("identities", _identity_table(probe))
    run.write_table("regimes", _regime_table(probe))
    run.write_table(config.study, regime_statement_table(run))
    return run


@torch.no_grad()
def _identities(config: DiffusionAttention, loaded: Loaded, progress: Progress) -> RegimeProbe:
    """Every identity on every head, on a few short sequences."""
    few: Material = material_of(
        loaded,
        config.heads.model_copy(
            update={
                "prompts": config.identity_prompts,
                "tokens": config.identity_tokens,
                "batch": 1,
            }
        ),
    )
    probe = RegimeProbe(tokens=config.identity_tokens, sweeps=config.sweeps, charge=config.charge)
    done = 0
    with Tap(loaded.model) as tap:

        def listen(call: AttentionCall) -> None:
            depth = tap.anatomy.depth
            if not isinstance(depth, Chain):
                raise UnsupportedModelError(f"This model has no heads to read: {depth.reason}.")
            if call.site.chain == depth.name:
                probe.update(call)

        tap.on_attention(listen)
        for batch in few.batches(None):
            probe.begin(batch.mask)
            loaded.model(**batch.inputs)
            done += len(batch.prompts)
            progress("identities", min(done, few.size), few.size)
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
        told = known if len(known) else np.array([np.nan])
        rows.append(
            {
                "quantity": name,
                "meaning": STATISTICS[name],
                "mean": told.mean(),
                "median": np.median(told),
                "least": told.min(),
                "largest": told.max(),
                "readings": len(known),
            }
        )
    return pd.DataFrame(rows)
