"""MEASURE: model streams in, mergeable tables of scalars out."""

from flowscope.probes.attention import AttentionEntropyProbe
from flowscope.probes.depth import DepthProbe, Rows, pooled_readout, positions_readout
from flowscope.probes.hidden import HiddenProbe
from flowscope.probes.reducer import Arrays, Reducer

__all__ = [
    "Arrays",
    "AttentionEntropyProbe",
    "DepthProbe",
    "HiddenProbe",
    "Reducer",
    "Rows",
    "pooled_readout",
    "positions_readout",
]
