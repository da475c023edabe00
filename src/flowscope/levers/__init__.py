"""Act on a loaded model through the tap, and undo it."""

from flowscope.levers.attention import (
    AttentionChange,
    TransportAttention,
    transport_attention,
)
from flowscope.levers.refinement import refined

__all__ = ["AttentionChange", "TransportAttention", "refined", "transport_attention"]
