"""Act on a loaded model through the tap, and undo it."""

from flowscope.levers.attention import (
    AttentionChange,
    TransportAttention,
    transport_attention,
)

__all__ = ["AttentionChange", "TransportAttention", "transport_attention"]
