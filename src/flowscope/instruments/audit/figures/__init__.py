"""How a run of ``flowscope audit`` is drawn and worded."""

__all__ = ()
