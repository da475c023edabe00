"""A run under way: the stages it walks, the folder it writes, the progress it shows."""

__all__ = ()
