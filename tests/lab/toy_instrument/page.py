"""What the report, the terminal and Python show of the toy."""

from flowscope.instruments.toy import INSTRUMENT
from flowscope.lab import Result
from flowscope.lab.pages import declared_page
from flowscope.records import Unavailable
from flowscope.report import claims, figure_html, listings, terminal, theme


class Toy(Result):
    """Throws of a coin."""


def _figure(source):
    frame = source.table("rounds", "round", "share")
    if isinstance(frame, Unavailable):
        return frame
    trace = {"type": "scatter", "x": list(frame["round"]), "y": list(frame["share"])}
    return {"data": [trace], "layout": theme.layout(theme.axis("round"), theme.axis("heads"), 260)}


def _sections(source):
    said = claims.claims(source, "fair_coins", "000", "coins")
    drawn = figure_html.figure("rounds", _figure(source), "Share of heads in each round.")
    figures = [("rounds", "Rounds", drawn + listings.numbers(source, "rounds"))]
    return [claims.claims_section(said), *figures] if source.study else figures


def show(document, console):
    """Print the verdict and where the report is."""
    terminal.print_heading(document, [f"{document['measured']['throws']} throws"], console)
    terminal.print_verdicts(document, console)
    terminal.print_report_path(document, console)


PAGE = declared_page(INSTRUMENT, kind="coin", sections=_sections)
