"""MEASURE: model streams in, mergeable tables of scalars out."""

from flowscope.probes.block_callable import LiveBlock, live_block
from flowscope.probes.heads.attention import AttentionEntropyProbe
from flowscope.probes.heads.chains import ChainKind, HeadLogits, head_logits
from flowscope.probes.heads.curvature import CurvatureProbe, sampled_pairs
from flowscope.probes.heads.geometry import GeometryProbe
from flowscope.probes.heads.references import MatchedProbe, PermutedProbe
from flowscope.probes.heads.response import Setting, altered, attention_output
from flowscope.probes.inputs import AttentionInputs
from flowscope.probes.layers.coordinates import LogitCoordinates, LogitReadout
from flowscope.probes.layers.depth import DepthProbe, Rows
from flowscope.probes.layers.differences import DifferenceProbe
from flowscope.probes.layers.evolution import EvolutionProbe, variational_inequality
from flowscope.probes.layers.hidden import HiddenProbe
from flowscope.probes.layers.paths import PathProbe
from flowscope.probes.layers.readouts import (
    Readout,
    pooled_readout,
    positions_readout,
    rows_at_once,
)
from flowscope.probes.layers.transplants import TransplantProbe, drawn_donors, spaced_rows
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.probes.tap_loop import (
    InputBatch,
    Piece,
    PlainBatch,
    TapProbe,
    model_anatomy,
    tap_pass,
)

__all__ = [
    "Arrays",
    "AttentionEntropyProbe",
    "AttentionInputs",
    "ChainKind",
    "CurvatureProbe",
    "DepthProbe",
    "DifferenceProbe",
    "EvolutionProbe",
    "GeometryProbe",
    "HeadLogits",
    "HiddenProbe",
    "InputBatch",
    "LiveBlock",
    "LogitCoordinates",
    "LogitReadout",
    "MatchedProbe",
    "PathProbe",
    "PermutedProbe",
    "Piece",
    "PlainBatch",
    "Readout",
    "Reducer",
    "Rows",
    "Setting",
    "TapProbe",
    "TransplantProbe",
    "altered",
    "attention_output",
    "drawn_donors",
    "head_logits",
    "live_block",
    "model_anatomy",
    "pooled_readout",
    "positions_readout",
    "rows_at_once",
    "sampled_pairs",
    "spaced_rows",
    "tap_pass",
    "variational_inequality",
]
