"""How a run of ``flowscope sync`` is drawn and worded."""

__all__ = ()
