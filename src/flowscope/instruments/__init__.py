"""The instruments, one package each; adding one takes its folder and one word in `NAMES`."""

__all__ = ["EXPORTS", "NAMES"]

NAMES = ("audit", "heads", "sync", "image", "field", "decode")

EXPORTS = {"MixtureModel": "flowscope.instruments.image.models"}
"""Public names of ``flowscope`` that belong to one instrument, and the module that defines each."""
