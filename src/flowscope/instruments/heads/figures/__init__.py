"""How a run of ``flowscope heads`` is drawn and worded."""

__all__ = ()
