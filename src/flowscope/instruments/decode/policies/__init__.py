"""Rules that fill several positions in a pass, each with its published default."""

__all__ = ()
