"""Print the result of ``heads``: verdicts and the heads furthest from equilibrium."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flowscope.instruments.heads.labels import labels_in_words
from flowscope.report.terminal import (
    number_or_dash,
    plain_table,
    print_heading,
    print_report_path,
    print_verdicts,
)

__all__ = ["show"]

_SHOWN_HEADS = 10


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts and the heads that are furthest from equilibrium."""
    measured = document["measured"]
    facts = [f"{measured['prompts']} prompts", f"{measured['tokens']} tokens"]
    print_heading(document, [*facts, f"{document['chain']} chain"], console)
    print_verdicts(document, console)
    if document.get("labels"):
        console.print(escape(labels_in_words(document["labels"])))
    if document["heads"]:
        console.print(_furthest(document["heads"]))
    print_report_path(document, console)


def _furthest(heads: Sequence[Mapping[str, Any]]) -> Table:
    """The heads with the highest entropy production, or the reasons why no head has one."""
    measured = [head for head in heads if head["entropy_production"] is not None]
    if not measured:
        table = plain_table()
        table.add_column("no head has an entropy production", overflow="fold")
        for reason in sorted({head["because"] for head in heads}):
            table.add_row(escape(reason))
        return table
    names = ("layer", "head", "nats/step", "95 % interval", "as sharp", "permuted", "gap")
    table = plain_table(names)
    table.add_column("label", no_wrap=True)
    for head in sorted(measured, key=lambda head: -head["entropy_production"])[:_SHOWN_HEADS]:
        table.add_row(*_row(head))
    return table


def _row(head: Mapping[str, Any]) -> list[str]:
    low, high = head["interval"] or (None, None)
    interval = "" if low is None else f"{low:.3g} … {high:.3g}"
    references = ("entropy_production_as_sharp", "entropy_production_permuted", "gap")
    return [
        str(head["layer"]),
        str(head["head"]),
        f"{head['entropy_production']:.3g}",
        interval,
        *(number_or_dash(head.get(name), ".3g") for name in references),
        head["label"],
    ]
