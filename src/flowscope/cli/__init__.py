"""The ``flowscope`` command."""

from flowscope.cli.commands import app, main

__all__ = ["app", "main"]
