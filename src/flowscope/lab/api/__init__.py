"""Names of ``import flowscope``, and the two files that are written from declarations."""

__all__ = ()
