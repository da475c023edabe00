"""Print the result of ``audit``: its verdicts."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from flowscope.report.terminal import print_heading, print_report_path, print_verdicts

__all__ = ["show"]


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts of an audit, each with its reason, and where the report is."""
    measured = document["measured"]
    facts = [f"{measured['prompts']} prompts", f"{measured['tokens']} tokens"]
    print_heading(document, facts, console)
    print_verdicts(document, console)
    print_report_path(document, console)
