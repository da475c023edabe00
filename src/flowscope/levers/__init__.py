"""Act on a loaded model through the tap, and undo it."""

from flowscope.levers.agreement import Consensus, ConsensusChange, consensus
from flowscope.levers.attention import (
    AttentionChange,
    TransportAttention,
    transport_attention,
)
from flowscope.levers.coupling import CouplingChange, ReplicaCoupling, couple
from flowscope.levers.geometry import (
    GeometryAttention,
    GeometryChange,
    geometry_attention,
)
from flowscope.levers.intervention import Intervention, intervene
from flowscope.levers.refinement import refined
from flowscope.levers.stopping import StopRecord, calibrated_stop, recorded_stop

__all__ = [
    "AttentionChange",
    "Consensus",
    "ConsensusChange",
    "CouplingChange",
    "GeometryAttention",
    "GeometryChange",
    "Intervention",
    "ReplicaCoupling",
    "StopRecord",
    "TransportAttention",
    "calibrated_stop",
    "consensus",
    "couple",
    "geometry_attention",
    "intervene",
    "recorded_stop",
    "refined",
    "transport_attention",
]
