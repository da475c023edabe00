"""Act on a loaded model through the tap, and undo it."""

__all__: list[str] = []
