"""Models that are drawn together while they run."""

from flowscope.levers.agreement.lever import (
    TOKENS_PER_FEATURE,
    Align,
    Consensus,
    ConsensusChange,
    Coupling,
    consensus,
)

__all__ = [
    "TOKENS_PER_FEATURE",
    "Align",
    "Consensus",
    "ConsensusChange",
    "Coupling",
    "consensus",
]
