"""The loop that fills masked positions, pass by pass, and what it records."""

__all__ = ()
