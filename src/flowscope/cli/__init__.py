"""The ``flowscope`` command."""

from flowscope.cli.app import app, main

__all__ = ["app", "main"]
