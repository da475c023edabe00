"""What the study of source 002 measures beyond the heads: every identity, in float64."""

from __future__ import annotations

import numpy as np
import pandas as pd

from flowscope.instruments.heads.diffusion_attention import DiffusionAttention
from flowscope.instruments.heads.subject import HeadsBench
from flowscope.models.material import material_of
from flowscope.probes import AttentionInputs, InputBatch, TapProbe, tap_pass
from flowscope.probes.heads.regime_probe import STATISTICS, RegimeProbe
from flowscope.tap import AttentionCall

__all__ = ["identities"]


def identities(bench: HeadsBench) -> None:
    """Check every identity on every head, on a few short sequences."""
    probe = _probed(bench)
    bench.put("identities", _identity_table(probe))
    bench.put("regimes", _regime_table(probe))


def _probed(bench: HeadsBench) -> RegimeProbe:
    study, loaded = bench.study, bench.subject.loaded
    assert isinstance(study, DiffusionAttention)
    sizes = {"prompts": study.identity_prompts, "tokens": study.identity_tokens, "batch": 1}
    few = material_of(loaded, bench.config.model_copy(update=sizes))
    probe = RegimeProbe(tokens=study.identity_tokens, sweeps=study.sweeps, charge=study.charge)
    bench.list_pass("identities", few.size)
    counter = bench.counter("identities", few.size)
    identities = {"identities": _Identities(probe)}
    tap_pass(loaded.model, few.batches(None), identities, advance=counter.advance)
    return probe


class _Identities(TapProbe):
    """Feeds the attention calls of the chain of blocks to a `RegimeProbe`."""

    hears = ("attention",)
    purpose = "heads to measure"

    def __init__(self, probe: RegimeProbe) -> None:
        self._probe = probe

    def begin(self, batch: InputBatch) -> None:
        self._probe.begin(batch.present)

    def attention(self, call: AttentionCall, inputs: AttentionInputs) -> None:
        self._probe.update(call)


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
