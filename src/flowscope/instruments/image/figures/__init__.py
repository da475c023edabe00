"""How a run of ``flowscope image`` is drawn and worded."""

__all__ = ()
