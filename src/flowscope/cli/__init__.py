"""The ``flowscope`` command."""

from flowscope.cli.commands import main
from flowscope.cli.frame import app

__all__ = ["app", "main"]
