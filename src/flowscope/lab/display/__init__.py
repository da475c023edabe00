"""Finished runs for a reader: listed, compared, drawn, put on a page."""

__all__ = ()
