"""The instruments, one package each; adding one takes its folder and one word in `NAMES`."""

__all__ = ["NAMES"]

NAMES = ("audit", "heads", "sync", "image")
