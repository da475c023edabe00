"""Models on disk and on the hub: where they are, and how their weights are read."""

__all__ = ()
