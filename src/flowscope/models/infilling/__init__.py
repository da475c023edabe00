"""Models that fill masked positions: how they are called, and proof that they see both ways."""

__all__ = ()
